"""Recognises repeated sends by their idempotency key (docs/extensions/idempotency.md)."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import Conflict
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.extensions import IDEMPOTENCY
from dragoman.core.lifecycle import WAITING
from dragoman.core.model import Message, Task
from dragoman.core.operations import SendMessage
from dragoman.core.peer import Context
from dragoman.store.interface import Idempotency, Row, Scope, Store

from .runs.run import Run
from .tail import Place

KEY_TAKEN = "This idempotency key was used for another message"


class IdempotencyKeys:
    """Finds the task of an earlier send with the same idempotency key."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.replying: dict[tuple[Scope, str], Run] = {}
        """The runs that may still reply directly, by scope and key; they are not in the store."""

    async def made(self, key: Idempotency, scope: Scope) -> str:
        """Returns the task of an earlier send with this key, or an empty string. Raises `Conflict`
        if the key was used for another message."""
        run = self.replying.get((scope, key.key))
        if run is not None:
            idempotency = run.writer.idempotency
            task_id, digest = run.task_id, idempotency.digest if idempotency else b""
        else:
            known = await self._store.find_key(scope, key.key)
            task_id, digest = known or ("", key.digest)
        if digest != key.digest:
            raise Conflict(KEY_TAKEN)
        return task_id


def key_of(op: SendMessage, ctx: Context) -> Idempotency | None:
    """Returns the idempotency key of a send: the caller's key, or the id of the message if the
    caller activated the extension."""
    key = ctx.idempotency_key
    if not key and IDEMPOTENCY in ctx.extensions:
        key = op.message.message_id
    if not key:
        return None
    said = (op.message, op.metadata, op.accepts)
    body = msgspec.json.encode((*said, op.open_as) if op.open_as else said)
    return Idempotency(key, hashlib.sha256(body).digest())


def reply_in(row: Row, task: Task) -> Message | None:
    """Returns the direct reply that was stored for repeated sends, or None for a task."""
    said = task.status.message if row.hidden else None
    return replace(said, task_id="") if said is not None else None


def place_of(
    op: SendMessage, ctx: Context, row: Row, task: Task, run: Run | None, now: int
) -> Place:
    """Returns where the stream of a repeated send begins: with the first event, if the send created
    the task, otherwise with the current task after it has received the message."""
    reply = reply_in(row, task)
    if reply is not None:
        return Place(task.id, first=reply)
    if ctx.cursor is not None or not (op.message.task_id or row.inputs):
        return Place(task.id, ctx.cursor or 0, run=run)
    stamp = Stamped(task.id, row.context_id, row.last_seq, now, Snapshot(task=task))
    answer = "" if row.resting or task.state not in WAITING else op.message.message_id
    return Place(task.id, first=stamp, rests=row.resting, answer=answer)
