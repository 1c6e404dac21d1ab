"""Compares paths from the wire by name: whether one is inside another.

Nothing is opened here. A path that passes is opened under the root like all others, so a link in it
is refused there (`openat`).
"""

from __future__ import annotations

from dragoman.core.model import Json

from .openat import Steps, steps_of, violation

WISH = "workspace_root"
"""The metadata key under which a caller narrows the workspace (in IAT, a member of the payload)."""


def inside(path: str, root: str) -> bool:
    """Returns whether an absolute path is this root or inside it."""
    if not (path.startswith("/") and root.startswith("/")):
        return False
    ours = _steps(root)
    return _steps(path)[: len(ours)] == ours


def within(limit: str, wish: Json) -> str:
    """Returns the requested path inside this limit, or the limit itself if none is requested.
    Raises `WorkspaceViolation` if the path leads out."""
    if wish is None:
        return limit
    if not isinstance(wish, str):
        raise violation(wish, "is no path")
    if wish.startswith("/"):
        if not inside(wish, limit):
            raise violation(wish)
        return wish
    return "/".join((limit.rstrip("/"), *steps_of(wish)))


def _steps(path: str) -> Steps:
    return steps_of(path.lstrip("/"))
