"""What all runs of a runner share."""

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
    """What all runs of a runner share: its loop, its store, its limits, and whom to tell."""

    loop: asyncio.AbstractEventLoop
    store: Store
    bell: Bell
    clock: Callable[[], int]
    waiting_ms: int
    """How long a question stays open, unless it says so itself."""
    max_task_size: int
    on_close: Callable[[Any], None]
    """Called with a run that lets go of its task,"""
    on_park: Callable[[Any], None]
    """with one that begins to wait for its caller,"""
    on_wake: Callable[[Any], None]
    """and with one that waits no longer."""
    conversation: Callable[[Any, int], Awaitable[tuple[Message, ...]]]
    """The latest messages of a run's whole context."""
    on_webhook_due: Callable[[], None]
    """Called when a commit left something for a webhook."""
    open_input: Callable[[str, Input], Input]
    """An input of a task as it was given; the store holds credentials sealed."""
    audit: Audit
    """Records what was approved, and by whom."""
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Starts work beside the run that may outlast it."""
    outside: Outside | None
    """Reaches other agents; None if this engine has no way to them."""
    workspaces: Workspaces | None = None
