"""The stores of tasks. `open_store` returns the store for a URL."""

from .interface import Store
from .urls import open_store

__all__ = ["Store", "open_store"]
