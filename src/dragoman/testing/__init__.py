"""Tools for authors: test an agent without a port, and prove a store of your own."""

from .client import Client

__all__ = ["Client"]
