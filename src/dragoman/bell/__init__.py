"""Bells say "look again". They may ring for nothing and may be lost: the log is the truth."""

from .local import Bell, LocalBell

__all__ = ["Bell", "LocalBell"]
