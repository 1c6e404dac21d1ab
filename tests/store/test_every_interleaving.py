"""Every order in which three workers can claim, write, die, sleep and cancel one task, searched
breadth-first over the rules that all stores share."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from counts import count
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.model import State, Status, Task
from dragoman.store import rules
from dragoman.store.interface import Claim, Row, Write

WORKERS = ("w1", "w2", "w3")
LONGEST = count(3, 3, 6)
"""The length of a log after which workers only end the task."""

OPENED = Row(
    task_id="t",
    context_id="c",
    tenant="",
    principal="",
    agent="a",
    skill="s",
    dialect="d",
    state=State.WORKING,
    last_seq=1,
    created_at=0,
    status_at=0,
    runnable=True,
)


class Belief(NamedTuple):
    """What a worker believes: its claim, and the length of the log that it will continue."""

    claim: Claim
    base: int


class World(NamedTuple):
    """The row, the log as the epochs that wrote it, and what each worker believes."""

    row: Row
    log: tuple[tuple[int, bool], ...]
    """The epoch of the writer of each event, and whether the event is an end."""
    beliefs: tuple[Belief | None, ...]
    crashes: int = 0
    sleeps: int = 0
    lost: int = 0
    cancels: int = 0


class Broken(Exception):
    """A promise is broken in a world."""


def steps(world: World, *, reconciles: bool, most: int) -> Iterator[World]:
    """Every world that may come next. There are at most `most` faults of each kind."""
    row = world.row
    for n, worker in enumerate(WORKERS):
        belief = world.beliefs[n]
        if row.runnable and belief is None:
            taken = _claimed(row, worker)
            yield _with(world, n, Belief(taken.claim, taken.last_seq), row=taken)
            if world.lost < most:  # the answer to the claim is lost
                yield world._replace(row=taken, lost=world.lost + 1)
        if belief is not None:
            yield from _writes(world, n, belief, most)
            if world.crashes < most:  # it forgets all, and its lease runs out
                yield _with(world, n, None, row=_reaped(row, worker), crashes=world.crashes + 1)
            if world.sleeps < most and row.worker == worker:  # it remembers, and is taken for dead
                yield world._replace(row=_reaped(row, worker), sleeps=world.sleeps + 1)
        elif reconciles and row.worker == worker and not row.final:
            taken = _claimed(row, worker)
            yield _with(world, n, Belief(taken.claim, taken.last_seq), row=taken)
        if world.cancels == 1 and not row.final and belief is None:  # it takes the task to end it
            taken = _claimed(row, worker)
            yield _with(world, n, Belief(taken.claim, taken.last_seq), row=taken, cancels=2)
    if world.cancels == 0 and not row.final:
        yield world._replace(row=rules.request_cancel(row, 0), cancels=1)


def _writes(world: World, n: int, belief: Belief, most: int) -> Iterator[World]:
    for end in (False, True) if belief.base < LONGEST else (True,):
        try:
            row = rules.append(world.row, _write(belief, end=end))
        except DragomanError:
            yield _with(world, n, None)  # it knows now that it has lost the task
            continue
        _check(world, belief)
        log = (*world.log, (belief.claim.epoch, end))
        after = None if end else Belief(belief.claim, belief.base + 1)
        yield _with(world, n, after, row=row, log=log)
        if world.lost < most:  # it does not hear that this was written, and will write it again
            yield world._replace(row=row, log=log, lost=world.lost + 1)


def _check(world: World, belief: Belief) -> None:
    """What must hold when a write is accepted."""
    if any(end for _, end in world.log):
        raise Broken("an event after the end")
    if belief.claim.epoch < max((epoch for epoch, _ in world.log), default=0):
        raise Broken("an event of a writer that had lost the task")
    if belief.base != len(world.log):
        raise Broken("an event that is not the next one")


def _write(belief: Belief, *, end: bool) -> Write:
    state = State.COMPLETED if end else State.WORKING
    entry = Stamped("t", "c", belief.base + 1, 0, StateChanged(state=state))
    ended = Task(id="t", context_id="c", status=Status(state=state, at=0)) if end else None
    return Write(
        claim=belief.claim,
        base=belief.base,
        entries=(entry,),
        state=state,
        status_at=0,
        heard=0,
        ended=ended,
    )


def _claimed(row: Row, worker: str) -> Row:
    """A random token would make every world another one; this one does not recur either."""
    taken = rules.claim(row, worker)
    return replace(taken, token=f"{worker} {taken.epoch}", attempt=0)


def _reaped(row: Row, worker: str) -> Row:
    return replace(rules.reap(row, 0), run_at=0) if row.worker == worker else row


def _with(world: World, n: int, belief: Belief | None, **more: object) -> World:
    beliefs = (*world.beliefs[:n], belief, *world.beliefs[n + 1 :])
    return world._replace(beliefs=beliefs, **more)  # type: ignore[arg-type]


def explore(*, reconciles: bool = True, most: int = 1) -> tuple[int, int]:
    """Returns the number of worlds, and of those from which the task can never end."""
    first = World(OPENED, ((0, False),), (None,) * len(WORKERS))
    seen, queue = {_key(first)}, deque([first])
    before: dict[object, list[object]] = defaultdict(list)
    ends: list[object] = []
    while queue:
        world = queue.popleft()
        place = _key(world)
        if world.row.last_seq != len(world.log):
            raise Broken("row and log differ")
        if world.row.final:
            ends.append(place)
        for following in steps(world, reconciles=reconciles, most=most):
            key = _key(following)
            before[key].append(place)
            if key not in seen:
                seen.add(key)
                queue.append(following)
    hopeful, waiting = set(ends), deque(ends)
    while waiting:
        for place in before[waiting.popleft()]:
            if place not in hopeful:
                hopeful.add(place)
                waiting.append(place)
    return len(seen), len(seen - hopeful)


def _key(world: World) -> object:
    row = world.row
    state = (row.state, row.last_seq, row.worker, row.epoch, bool(row.token), row.runnable)
    beliefs = tuple(each and (each.claim.epoch, each.base) for each in world.beliefs)
    faults = (world.crashes, world.sleeps, world.lost, world.cancels)
    return (*state, row.cancel, world.log, beliefs, faults)


def test_no_order_of_things_breaks_a_promise(capsys: pytest.CaptureFixture[str]) -> None:
    worlds, stuck = explore()
    with capsys.disabled():
        print(f"\n  every interleaving: {worlds} worlds, {stuck} from which no task ends")
    assert worlds > 1_000
    assert stuck == 0


def test_without_a_fence_an_order_is_found_that_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _holds_whoever_asks(monkeypatch)
    with pytest.raises(Broken):
        explore()


def _holds_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    anyone: Callable[[Row, Claim], bool] = lambda row, claim: True  # noqa: E731
    monkeypatch.setattr(rules, "holds", anyone)


def test_without_a_look_at_lost_claims_an_order_is_found_that_never_ends() -> None:
    _, stuck = explore(reconciles=False)
    assert stuck > 0
