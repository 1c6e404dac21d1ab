"""Tools for authors: test an agent without a port, and prove a store of your own."""

from .client import Client
from .served import served

__all__ = ["Client", "served"]
