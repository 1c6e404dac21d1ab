"""A stream that continues after a question, for dialects whose caller answers while it listens.

In A2A a stream ends when its task asks a question, and a new one begins with the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Message
from dragoman.core.operations import GetTask, Streamed, Watch
from dragoman.core.peer import Batch, Context, Peer


async def stream_until_final(peer: Peer, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
    """Yields the events of a task up to its end, across all its questions."""
    if isinstance(op, Watch) and ctx.cursor is None:
        task = await peer.call(GetTask(task_id=op.task_id), ctx)
        if task.state in FINAL:  # A2A refuses to subscribe to a finished task
            end = Stamped(task.id, task.context_id, 0, task.status.at, Snapshot(task=task))
            yield Batch([end], last=True)
            return
    while True:
        latest: Stamped | Message | None = None
        final = Batch([], last=True)
        async with aclosing(peer.stream(op, ctx)) as steps:
            async for batch in steps:
                if batch.entries:
                    latest = batch.entries[-1]
                if batch.last:
                    final = batch
                    break
                yield batch
        if not isinstance(latest, Stamped) or not final.entries or _over(latest):
            yield final
            return
        yield Batch(final.entries, last=False)
        op, ctx = Watch(task_id=latest.task_id), replace(ctx, cursor=latest.seq)


def _over(entry: Stamped) -> bool:
    match entry.event:
        case StateChanged(state=state):
            return state in FINAL
        case Snapshot(task=task):
            return task.state in FINAL
        case _:
            return False
