"""Where tasks live. `open_store` finds the right store for a URL."""

from .interface import Store
from .urls import open_store

__all__ = ["Store", "open_store"]
