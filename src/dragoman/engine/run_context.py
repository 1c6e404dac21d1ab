"""What every run needs of its runner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct

from dragoman.agent.remote_calls import Outside
from dragoman.bell import Bell
from dragoman.core.model import Message
from dragoman.store.approvals import Audit
from dragoman.store.interface import Input, Store
from dragoman.workspace import Workspaces


class RunContext(Struct, frozen=True, kw_only=True):
    """What every run needs of its runner."""

    loop: asyncio.AbstractEventLoop
    store: Store
    bell: Bell
    clock: Callable[[], int]
    waiting_ms: int
    max_task_size: int
    over: Callable[[Any], None]
    """Called when a run lets go of its task."""
    parked: Callable[[Any], None]
    """Called when a run begins to wait for its caller,"""
    woken: Callable[[Any], None]
    """and when it waits no more."""
    conversation: Callable[[Any, int], Awaitable[tuple[Message, ...]]]
    mailed: Callable[[], None]
    """Called when a commit left something for a webhook."""
    opened: Callable[[str, Input], Input]
    """An input of a task as it was given; the store holds credentials sealed."""
    audit: Audit
    """What was approved, and by whom."""
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Does something beside the run, and beyond it if need be."""
    outside: Outside | None
    """Reaches other agents."""
    workspaces: Workspaces | None = None
