"""What is granted: which folder, shared by whom, and how much of it."""

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
    """The folder; made if it is not there. Empty: what the agent says, if anything."""
    per: Per = "task"
    """Who gets a folder of its own beneath it: each task, context or caller; or all share it."""
    size: int = 1024 * 1024 * 1024
    """Bytes in one such folder."""
    files: int = 10_000
    """Files and folders in it."""
    file_size: int = 64 * 1024 * 1024
    """Bytes in one file, read or written."""


def granted(host: Space, agent: Space | None) -> Space | None:
    """What counts: the host's folder, else the agent's with no more than the host's limits."""
    if host.root or agent is None:
        return space_of(host)
    return replace(
        agent,
        size=min(agent.size, host.size),
        files=min(agent.files, host.files),
        file_size=min(agent.file_size, host.file_size),
    )


def keep_apart(space: Space | None, store: Path | None) -> None:
    """`ConfigError` if tools could read the tasks of everybody, and the key beside them."""
    if space is None or store is None or space.per != "shared":
        return
    if store.resolve().is_relative_to(Path(space.root).resolve()):
        raise ConfigError(
            f"The store lies in the workspace {space.root}, where tools could read it. "
            "Put one of them elsewhere."
        )


def space_of(given: Space | Path | str | None) -> Space | None:
    """What an author or an operator grants; None if nothing. `ConfigError` if that is no good."""
    space = given if isinstance(given, Space) or given is None else Space(root=str(given))
    if space is None or not space.root:
        return None
    for key in ("size", "files", "file_size"):
        if getattr(space, key) <= 0:
            raise ConfigError(f"workspace.{key} must be more than 0.")
    if Path(space.root).resolve().parent == Path(space.root).resolve():
        raise ConfigError("workspace.root must be a folder of its own, not the whole machine.")
    return space
