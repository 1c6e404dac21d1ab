"""The interface between a turn and the run behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.core.events import AnyEvent, Ask, Opened
from dragoman.core.model import Json, Message, Task
from dragoman.core.peer import Context
from dragoman.core.task_size import CallerSizes

from .remote_calls import Outside, StartedCall

if TYPE_CHECKING:
    from dragoman.workspace import Folder


class SharedByRuns(Protocol):
    """What all runs of an agent have in common."""

    @property
    def state(self) -> SimpleNamespace: ...

    @property
    def outside(self) -> Outside | None: ...

    @property
    def max_task_size(self) -> int: ...

    @property
    def max_relayed_size(self) -> int: ...

    @property
    def relayed_sizes(self) -> CallerSizes: ...

    @property
    def step_threads(self) -> Executor: ...


class RunApi(Protocol):
    """The run behind a turn. The engine implements it."""

    task_id: str
    context_id: str
    opened: Opened
    attempt: int
    caller: Context

    @property
    def shared(self) -> SharedByRuns: ...

    @property
    def cancelled(self) -> bool: ...

    @property
    def unopened(self) -> bool: ...

    @property
    def keyed(self) -> bool: ...

    @property
    def leaving(self) -> bool: ...

    @property
    def over(self) -> bool: ...

    @property
    def seconds_left(self) -> float: ...

    resumed: bool
    on_stop: Callable[[], None] | None

    def stop_code(self) -> None: ...

    def before_end(self, work: Coroutine[Any, Any, None]) -> None: ...

    def stop_call(self, call: StartedCall) -> None: ...

    def emit(self, event: AnyEvent) -> None: ...

    async def throttle(self) -> None: ...

    def recorded(self, key: str) -> bytes | None: ...

    async def begin(self) -> None: ...

    async def begin_unseen(self) -> None: ...

    async def record(self, key: str, value: bytes) -> None: ...

    async def record_unseen(self, key: str, value: bytes) -> None: ...

    def show_after(self, seconds: float) -> asyncio.TimerHandle: ...

    def note(self, key: str, value: bytes, *, soon: bool = True) -> None: ...

    async def ask(
        self, key: str, kind: Ask, message: Message, body: Json, expires: float | None
    ) -> tuple[Message, Json]: ...

    def history(self) -> tuple[Message, ...]: ...

    async def conversation(self, limit: int) -> tuple[Message, ...]: ...

    async def calls_of(self, ids: Iterable[str] | None) -> dict[str, list[StartedCall]]: ...

    async def tasks(self, ids: Iterable[str]) -> tuple[Task, ...]: ...

    async def reply(self, message: Message) -> None: ...

    async def detach(self, message: Message | None) -> None: ...

    async def complete(self, message: Message | None) -> None: ...

    def folder(self) -> Folder: ...
