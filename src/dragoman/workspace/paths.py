"""Paths as they are said on the wire, compared by name: which lies in which.

Nothing is opened here. A path that passes is opened beneath the root like all others, so a link on
the way is refused there (`beneath`).
"""

from __future__ import annotations

from dragoman.core.model import Json

from .openat import Steps, steps_of, violation

WISH = "workspace_root"
"""The metadata key under which a caller narrows the workspace (in IAT, a member of the payload)."""


def inside(path: str, root: str) -> bool:
    """Returns whether an absolute path is this root or lies in it."""
    if not (path.startswith("/") and root.startswith("/")):
        return False
    ours = _steps(root)
    return _steps(path)[: len(ours)] == ours


def within(limit: str, wish: Json) -> str:
    """A wish as a path in this limit, or the limit itself if nothing is wished for;
    `WorkspaceViolation` if it leads out."""
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
