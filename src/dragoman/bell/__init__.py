"""Bells tell readers to look again. A ring may be spurious or lost: only the log counts."""

from .local import Bell, LocalBell
from .shared import SharedBell

__all__ = ["Bell", "LocalBell", "SharedBell"]
