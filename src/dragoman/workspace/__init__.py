"""File access for tools, confined to one folder."""

from .folder import Entry, Folder, Workspace
from .paths import WISH, inside, within
from .settings import Space, granted, keep_apart, space_of
from .workspaces import Workspaces

__all__ = [
    "WISH",
    "Entry",
    "Folder",
    "Space",
    "Workspace",
    "Workspaces",
    "granted",
    "inside",
    "keep_apart",
    "space_of",
    "within",
]
