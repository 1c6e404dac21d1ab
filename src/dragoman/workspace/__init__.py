"""File access for tools, confined to one folder."""

from typing import TYPE_CHECKING

from dragoman.lazy_names import lazy_names

if TYPE_CHECKING:
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
__getattr__ = lazy_names(
    __name__,
    {
        "folder": "Entry Folder Workspace",
        "paths": "WISH inside within",
        "settings": "Space granted keep_apart space_of",
        "workspaces": "Workspaces",
    },
)
