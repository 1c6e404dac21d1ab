"""The context that all runs of a runner share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from dragoman.agent.remote_calls import Outside
from dragoman.bell import Bell
from dragoman.core.model import Message
from dragoman.core.peer import Context
from dragoman.core.task_size import CallerSizes
from dragoman.store.approvals import Audit
from dragoman.store.interface import Input, Store

if TYPE_CHECKING:
    from dragoman.workspace import Workspaces


class ReceivingRun(Protocol):
    """The part of a run that the receiver of its messages uses."""

    task_id: str
    caller: Context

    def recorded(self, key: str) -> bytes | None: ...

    async def begin(self) -> None: ...

    async def record(self, key: str, value: bytes) -> None: ...


Receiver = Callable[[ReceivingRun, Message], Awaitable[Message]]
"""Called with each message of the caller before the skill gets it, and returns what the skill gets.
What it does is part of the run: it may be canceled, and is repeated after a crash unless it is
recorded."""


class RunContext(Struct, frozen=True, kw_only=True):
    """The context that all runs of a runner share: loop, store, limits and callbacks."""

    loop: asyncio.AbstractEventLoop
    store: Store
    bell: Bell
    clock: Callable[[], int]
    waiting_ms: int
    """How long a question stays open, unless it has its own limit."""
    max_task_size: int
    max_relayed_size: int
    relayed_sizes: CallerSizes
    on_close: Callable[[Any], None]
    """Called with a run that closes."""
    on_park: Callable[[Any], None]
    """Called with a run that begins to wait for its caller."""
    on_wake: Callable[[Any], None]
    """Called with a run that no longer waits."""
    on_webhook_due: Callable[[], None]
    """Called when a commit has created a delivery for a webhook."""
    open_input: Callable[[str, Input], Input]
    """Decrypts an input of a task; the store contains credentials in encrypted form."""
    audit: Audit
    """Records approvals in the audit log."""
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Starts work beside the run that may outlast it."""
    spawn_until_stop: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Starts work beside the run that ends with the engine at the latest."""
    outside: Outside | None
    """The connections to other agents; None if this engine cannot call any."""
    state: SimpleNamespace
    """What the agent's own functions opened at the start."""
    step_threads: Executor
    """The threads for steps that are plain functions."""
    workspaces: Workspaces | None = None
    receiver: Receiver | None = None
