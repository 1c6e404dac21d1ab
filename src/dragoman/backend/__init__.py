"""Tasks that are kept elsewhere, served like any agent's."""

from .backend import Backend
from .peer import BackendPeer

__all__ = ["Backend", "BackendPeer"]
