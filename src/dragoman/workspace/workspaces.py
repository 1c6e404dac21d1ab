"""Gives each task, context or caller of a server its workspace, or all of them one."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from weakref import WeakValueDictionary

from dragoman.core.errors import ConfigError, Unsupported
from dragoman.core.model import Json
from dragoman.core.peer import Context

from .folder import Folder
from .openat import FOLDER, Door, Root, Steps, best_door, steps_of, violation
from .paths import WISH
from .settings import Per, Space
from .usage import Usage

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def _digest(*words: str) -> str:
    told = hashlib.sha256()
    for word in words:
        told.update(f"{len(word)}:{word}".encode("utf-8", "surrogatepass"))
    return told.hexdigest()[:40]


Owner = tuple[str, ...]
"""The tenant and principal of a caller, and the agent that it calls if there are several."""


def _task(task_id: str, context_id: str, owner: Owner) -> Steps:
    return "tasks", task_id if _PLAIN.fullmatch(task_id) else _digest(task_id)


# The caller chooses the id of a context, so the folder's name must not be guessable from it.
_FOLDERS: dict[Per, Callable[[str, str, Owner], Steps]] = {
    "task": _task,
    "context": lambda _, context, owner: ("contexts", _digest(*owner, context)),
    "caller": lambda _, __, owner: ("callers", _digest(*owner)),
    "shared": lambda _, __, ___: (),
}


def _wish(said: Iterable[Mapping[str, Json] | None]) -> Json:
    return next((each[WISH] for each in said if each and WISH in each), None)


class Workspaces:
    """Opens the root once, and gives every run its folder beneath it. Agents that share a root
    each have a name; what is not `shared` is then of one agent alone."""

    def __init__(
        self,
        space: Space,
        choose_door: Callable[[int], Door | None] = best_door,
        *,
        agent: str = "",
    ) -> None:
        self.space = space
        self._agent = agent
        self._choose = choose_door
        self._root: Root | None = None
        self._usages: WeakValueDictionary[Steps, Usage] = WeakValueDictionary()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Opens the root, and makes it if need be. Raises `ConfigError` if that fails."""
        path = Path(self.space.root)
        try:
            path.mkdir(0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, FOLDER)  # the operator chooses the root, so links are fine
        except OSError as exc:
            raise ConfigError(f"The workspace {path} cannot be opened: {exc.strerror}.") from None
        door = self._choose(descriptor)
        if door is None:
            os.close(descriptor)
            raise ConfigError("This system cannot confine tools to a workspace; leave it out.")
        self._root = Root(descriptor, door)

    def close(self) -> None:
        """Closes the root. Folders that were given out cannot be used any more."""
        if self._root is not None:
            self._root.close()
            self._root = None

    def folder(
        self, task_id: str, context_id: str, caller: Context, *wishes: Mapping[str, Json] | None
    ) -> Folder:
        """Returns the folder of a run, narrowed to what its caller requests in the first metadata
        with such a request. Raises `WorkspaceViolation` if that is outside of the run's folder."""
        if self._root is None:
            raise Unsupported("The workspace is closed")
        home = self._home(task_id, context_id, caller)
        with self._lock:
            usage = self._usages.get(home)
            if usage is None:
                usage = self._usages[home] = Usage(self.space, self._root, home)
        return Folder(self._root, home, usage).inside("/".join(self._narrowed(home, _wish(wishes))))

    def check(
        self, task_id: str, context_id: str, caller: Context, *wishes: Mapping[str, Json] | None
    ) -> None:
        """Raises `WorkspaceViolation` for a wish that `folder` would refuse. It touches no file."""
        wish = _wish(wishes)
        if wish is not None:
            self._narrowed(self._home(task_id, context_id, caller), wish)

    def _home(self, task_id: str, context_id: str, caller: Context) -> Steps:
        agent = (self._agent,) if self._agent else ()
        owner = (*agent, caller.tenant, caller.principal)
        return _FOLDERS[self.space.per](task_id, context_id, owner)

    def _narrowed(self, home: Steps, wanted: Json) -> Steps:
        if wanted is None:
            return ()
        if not isinstance(wanted, str):
            raise violation(wanted, "is no path")
        if not wanted.startswith("/"):
            return steps_of(wanted)
        # An IAT host on the same machine names folders by absolute paths. They are compared by name
        # here and opened under the root like all others, where a link in the path is refused.
        steps = steps_of(wanted.lstrip("/"))
        for root in (Path(self.space.root).absolute(), Path(self.space.root).resolve()):
            ours = (*PurePosixPath(root).parts[1:], *home)
            if steps[: len(ours)] == ours:
                return steps[len(ours) :]
        raise violation(wanted)
