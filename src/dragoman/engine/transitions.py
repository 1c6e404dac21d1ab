"""The states a task was in, out of its log, for callers that activate `urn:dragoman:transitions:1`.

0.3 has the capability `stateTransitionHistory` and no place for what it promises; this is the
place, in every version (docs/extensions/transitions.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from ..agent.agent import TRANSITIONS
from ..events import Asked, Opened, Stamped, StateChanged
from ..model import Json, State, Task
from ..store.base import Scope, Store

PAGE = 256
MOST = 10_000
"""Events looked at: what a caller may cost us with one question."""


async def with_transitions(store: Store, scope: Scope, task: Task) -> Task:
    """The task with the list in its metadata. Once its log is gone only the last state is known."""
    entries: list[Stamped] = []
    after = 0
    while after < MOST:
        page = await store.read(scope, task.id, after, PAGE)
        if not page.entries:
            break
        entries += (each for each in page.entries if isinstance(each.event, _CHANGES))
        after = page.entries[-1].seq
    told = [_said(state, at, seq) for state, at, seq in changes(entries)]
    if not told or told[-1]["state"] != task.state:
        row = await store.row(scope, task.id)
        told.append(_said(task.state, task.status.at, row.last_seq))
    return replace(task, metadata={**(task.metadata or {}), TRANSITIONS: told})


_CHANGES = (Opened, StateChanged, Asked)


def changes(entries: Iterable[Stamped]) -> Iterator[tuple[State, int, int]]:
    """Each state the log brings the task to, when, and with which event."""
    before: State | None = None
    for entry in entries:
        event = entry.event
        state = event.state if isinstance(event, StateChanged | Asked) else State.SUBMITTED
        if state is not before:
            yield state, entry.at, entry.seq
            before = state


def _said(state: State, at: int, seq: int) -> dict[str, Json]:
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return {"state": str(state), "at": when.replace("+00:00", "Z"), "seq": seq}
