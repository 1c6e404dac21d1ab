"""Serves tasks that live in another system, like those of an agent."""

from .backend import Backend
from .peer import BackendPeer

__all__ = ["Backend", "BackendPeer"]
