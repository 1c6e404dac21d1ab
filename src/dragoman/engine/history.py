"""Limits the history of tasks in responses, and adds the states that a task was in.

The states are for callers that activate `urn:dragoman:transitions:1`. A2A 0.3 has the capability
`stateTransitionHistory` but no field for the states; the extension defines one, in every version
(docs/extensions/transitions.md).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from dragoman.core.events import Asked, Opened, Snapshot, Stamped, StateChanged
from dragoman.core.extensions import TRANSITIONS
from dragoman.core.lifecycle import shortened
from dragoman.core.model import Json, Message, State, Status, Task
from dragoman.core.peer import Batch
from dragoman.store.interface import Scope, Store


async def with_history(
    steps: AsyncGenerator[Batch, None], length: int
) -> AsyncGenerator[Batch, None]:
    """Yields the same events, with at most `length` messages in the history of their tasks."""
    try:
        async for batch in steps:
            yield Batch([_cut(entry, length) for entry in batch.entries], batch.last)
    finally:
        await steps.aclose()


def _cut(entry: Stamped | Message, length: int) -> Stamped | Message:
    if not isinstance(entry, Stamped):
        return entry
    event = entry.event
    if isinstance(event, Snapshot):
        return replace(entry, event=Snapshot(task=shortened(event.task, length)))
    if isinstance(event, Opened) and length == 0:  # its only message is the whole history
        task = Task(
            id=entry.task_id,
            context_id=entry.context_id,
            status=Status(State.SUBMITTED, entry.at),
            metadata=event.metadata,
        )
        return replace(entry, event=Snapshot(task=task))
    return entry


PAGE = 256
MOST = 10_000
"""The number of events that are read, which bounds the cost of one request."""


async def with_transitions(store: Store, scope: Scope, task: Task) -> Task:
    """Returns the task with its state history in the metadata. Once the log has been deleted, only
    the final state is known."""
    entries: list[Stamped] = []
    after = 0
    while after < MOST:
        page = await store.read(scope, task.id, after, PAGE)
        if not page.entries:
            break
        entries += (each for each in page.entries if isinstance(each.event, _CHANGES))
        after = page.entries[-1].seq
    told = [_transition(state, at, seq) for state, at, seq in changes(entries)]
    if not told or told[-1]["state"] != task.state:
        row = await store.row(scope, task.id)
        told.append(_transition(task.state, task.status.at, row.last_seq))
    return replace(task, metadata={**(task.metadata or {}), TRANSITIONS: told})


_CHANGES = (Opened, StateChanged, Asked)


def changes(entries: Iterable[Stamped]) -> Iterator[tuple[State, int, int]]:
    """Yields each state of the log with its time and the seq of its event."""
    before: State | None = None
    for entry in entries:
        event = entry.event
        state = event.state if isinstance(event, StateChanged | Asked) else State.SUBMITTED
        if state is not before:
            yield state, entry.at, entry.seq
            before = state


def _transition(state: State, at: int, seq: int) -> dict[str, Json]:
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return {"state": str(state), "at": when.replace("+00:00", "Z"), "seq": seq}
