"""The changes that are handed to a store, and the errors with which a store may refuse them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.core.events import Ask, Stamped
from dragoman.core.model import Hook, Json, Message, State, Task

from .task_row import Claim, Idempotency, Row

Done = Callable[[Exception | None], None]
"""Called in the event loop after the commit with None, or with the error that prevented it."""


class Draft(Struct, frozen=True, gc=False, kw_only=True):
    """A task to be created, with its first events."""

    row: Row
    entries: tuple[Stamped, ...]
    idempotency: Idempotency | None = None
    ended: Task | None = None
    """The whole task, if its first events already end it."""
    hook: Hook | None = None
    """A webhook that is set together with the task, and receives its first events too."""
    records: tuple[Record, ...] = ()
    """Calls that the run has recorded by then."""


class Input(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A message that the caller sent to an existing task."""

    message: Message
    question: str = ""
    """The question it answers, or empty if none was open."""
    value: Json = None
    """The answer as data, if it came through `Resolve`."""
    by: str = ""
    """The name of the sender, for the audit log of approvals."""
    key: Idempotency | None = None
    """The key that the caller chose for it."""
    n: int = 0
    """Its number within the task, counted from 1 by the store."""
    sealed: str = ""
    """Credentials, sealed with the server's key; message and value are then empty."""


class Record(Struct, frozen=True, gc=False, kw_only=True):
    """A call of the run that has been made and must not be repeated."""

    key: str
    value: bytes
    seq: int = 0
    """The length of the log when the call was recorded."""


class Write(Struct, frozen=True, gc=False, kw_only=True):
    """The changes of one append: events, records, and the fields of the row after them."""

    claim: Claim
    base: int
    """The length of the log that this continues. The store refuses any other."""
    entries: tuple[Stamped, ...]
    state: State
    status_at: int
    heard: int
    question: str = ""
    asking: Ask | None = None
    expires_at: int = 0
    records: tuple[Record, ...] = ()
    forget: tuple[int, ...] = ()
    """The numbers of inputs whose content must not be kept, such as credentials."""
    ended: Task | None = None
    """The whole task, if this ends it. The task is then frozen and its claim given up."""
    fresh: bool = False
    """Whether the run has received an answer, so that the attempts are counted from 1 again."""
    shown: bool = False
    """Whether a task that was hidden until now is one like any other from now on."""


class Unheard(Exception):
    """The task cannot end yet, because its caller sent a message that the run has not received."""


class Existing(Exception):
    """The idempotency key was used before, for this task."""

    def __init__(self, task_id: str, *, same: bool) -> None:
        super().__init__(task_id)
        self.task_id = task_id
        self.same = same
        """Whether it was used for the same message."""


async def commit(hand_over: Callable[[Done], None]) -> None:
    """Hands a change over and returns when it is committed; raises the error that prevented it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    hand_over(lambda error: resolve(future, error))
    await future


def resolve(future: asyncio.Future[Any], error: Exception | None) -> None:
    """Passes the outcome of a change on to a future."""
    # The task that awaits the future may have been canceled meanwhile.
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
