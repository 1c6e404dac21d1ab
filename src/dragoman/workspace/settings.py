"""The settings of workspaces: which folder, who shares it, and how much it may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import ConfigError

Per = Literal["task", "context", "caller", "shared"]


class Space(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[workspace]`: the folder that tools may touch, and how much each part of it may hold."""

    root: str = ""
    """The folder, which is made if it does not exist. If it is empty, the agent's own setting
    counts."""
    per: Per = "task"
    """Whether each task, context or caller has a folder of its own, or all share one."""
    size: int = 1024 * 1024 * 1024
    """The number of bytes that one such folder may hold."""
    files: int = 10_000
    """The number of files and folders that it may hold."""
    file_size: int = 64 * 1024 * 1024
    """The number of bytes that one file may have."""


def granted(host: Space, agent: Space | None) -> Space | None:
    """Returns the settings that count: the folder of the host, or that of the agent within the
    host's limits."""
    if host.root or agent is None:
        return space_of(host)
    return replace(
        agent,
        size=min(agent.size, host.size),
        files=min(agent.files, host.files),
        file_size=min(agent.file_size, host.file_size),
    )


def keep_apart(space: Space | None, store: Path | None) -> None:
    """Raises `ConfigError` if the store, and the key beside it, lie where tools could read them."""
    if space is None or store is None or space.per != "shared":
        return
    if store.resolve().is_relative_to(Path(space.root).resolve()):
        raise ConfigError(
            f"The store lies in the workspace {space.root}, where tools could read it. "
            "Put one of them elsewhere."
        )


def space_of(given: Space | Path | str | None) -> Space | None:
    """Returns what an author or an operator grants, or None. Raises `ConfigError` if it is not
    valid."""
    space = given if isinstance(given, Space) or given is None else Space(root=str(given))
    if space is None or not space.root:
        return None
    for key in ("size", "files", "file_size"):
        if getattr(space, key) <= 0:
            raise ConfigError(f"workspace.{key} must be more than 0.")
    if Path(space.root).resolve().parent == Path(space.root).resolve():
        raise ConfigError("workspace.root must be a folder of its own, not the whole machine.")
    return space
