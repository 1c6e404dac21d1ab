"""A caller and a callee of every dialect, joined without I/O: what one says, the other hears."""

from __future__ import annotations

import pytest

from dialects.pair import PAIRS, Pair
from dragoman.core.dialect import Dialect
from dragoman.core.errors import TaskNotFound
from dragoman.core.events import ArtifactChunk, Opened, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Artifact, Message, Role, State, Task, Text
from dragoman.core.operations import CancelTask, GetTask, SendMessage, Watch
from dragoman.core.session import Call, End, Fault, Frame, Result, Update

every_dialect = pytest.mark.parametrize("dialect", PAIRS, ids=lambda dialect: dialect.name)


JSON_RPC = {"a2a-1.0", "a2a-0.3", "a2a-0.1", "a2a-go"}
WITHOUT_TASKS = {"a2a-0.1", "a2a-go"}
"""Dialects whose streams have no place for a task, or only where a send begins."""


def said(text: str) -> Message:
    return Message(message_id="m", role=Role.USER, parts=(Text(text),))


def chunk(text: str, *, append: bool = True, last: bool = False) -> ArtifactChunk:
    piece = Artifact(artifact_id="result", parts=(Text(text),))
    return ArtifactChunk(artifact=piece, append=append, last=last)


LOG = [
    Stamped("t", "c", 1, 1000, Opened(message=said("hello"))),
    Stamped("t", "c", 2, 1001, StateChanged(state=State.WORKING)),
    Stamped("t", "c", 3, 1002, chunk("HE", append=False)),
    Stamped("t", "c", 4, 1003, chunk("LLO", last=True)),
    Stamped("t", "c", 5, 1004, StateChanged(state=State.COMPLETED)),
]


def folded(log: list[Stamped]) -> Task:
    fold = Fold("t", "c")
    for entry in log:
        fold.add(entry)
    return fold.task()


@every_dialect
def test_what_one_side_says_the_other_hears(dialect: Dialect) -> None:
    wire = Pair(dialect)
    asked = Call("1", SendMessage(message=said("hello")), stream=True)
    told = Update("1", LOG[2])

    assert wire.caller_says(asked) == [dialect.carried(asked)]
    assert wire.callee_says(told) == [dialect.carried(told)]


@every_dialect
def test_a_streamed_task_is_the_same_task_on_the_other_side(dialect: Dialect) -> None:
    wire = Pair(dialect)
    wire.caller_says(Call("1", SendMessage(message=said("hello")), stream=True))
    heard = [update.entry for entry in LOG for update in wire.callee_says(Update("1", entry))]

    assert [entry.seq for entry in heard] == [1, 2, 3, 4, 5]
    assert folded(heard) == folded([dialect.carried(Update("1", entry)).entry for entry in LOG])
    assert folded(heard).text == "HELLO"
    if dialect.name not in WITHOUT_TASKS:
        assert folded(heard) == folded(LOG)


@every_dialect
def test_a_stream_that_begins_in_the_middle_begins_with_the_task(dialect: Dialect) -> None:
    wire = Pair(dialect)
    assert wire.caller_says(Call(1, Watch(task_id="t"), stream=True))
    now = Stamped("t", "c", 3, 1002, Snapshot(task=folded(LOG[:3])))
    heard = [wire.callee_says(Update(1, entry))[0].entry for entry in (now, *LOG[3:])]

    if dialect.name in WITHOUT_TASKS:  # then with its state
        assert heard[0].event == StateChanged(state=State.WORKING)
        assert folded(heard).text == "LLO"
    else:
        assert folded(heard) == folded(LOG)


@every_dialect
def test_the_end_is_heard_with_the_last_event(dialect: Dialect) -> None:
    wire = Pair(dialect)
    wire.caller_says(Call(1, Watch(task_id="t"), stream=True))
    *_, frame = wire.callee.send(Update(1, LOG[4]))

    assert list(wire.caller.receive(frame))[-1] == End(1)
    assert list(wire.callee.send(End(1))) == []


@every_dialect
def test_calls_at_once_are_answered_by_their_ids(dialect: Dialect) -> None:
    wire = Pair(dialect)
    if dialect.carried(Call("a", GetTask(task_id="t"))).id is None:
        pytest.skip("this wire has no ids: each call has an exchange of its own")
    other = dialect.callee()
    (first,) = wire.caller.send(Call("a", GetTask(task_id="t")))
    (second,) = wire.caller.send(Call("b", CancelTask(task_id="t")))
    wire.callee.receive(first)
    other.receive(second)
    (late,) = wire.callee.send(Result("a", folded(LOG)))
    (soon,) = other.send(Fault("b", TaskNotFound(task_id="t")))

    (fault,) = wire.caller.receive(soon)
    assert isinstance(fault, Fault)
    assert fault.id == "b"
    assert list(wire.caller.receive(late)) == [dialect.carried(Result("a", folded(LOG)))]


@every_dialect
def test_a_silent_call_is_answered_only_if_it_fails(dialect: Dialect) -> None:
    wire = Pair(dialect)
    asked = Call(None, SendMessage(message=said("hello")), silent=True)

    assert wire.caller_says(asked) == [dialect.carried(asked)]
    assert wire.callee_says(Result(None, folded(LOG))) == []
    # Most JSON-RPC requests without an id have forgotten it: the failure is told under null.
    heard = wire.callee_says(Fault(None, TaskNotFound()))
    errors = [type(fault.error) for fault in heard if isinstance(fault, Fault) and not fault.id]
    assert errors == ([TaskNotFound] if dialect.name in JSON_RPC else [])


@every_dialect
def test_each_side_says_only_its_own_signals(dialect: Dialect) -> None:
    wire = Pair(dialect)
    assert list(wire.caller.send(Result(1, folded(LOG)))) == []
    assert list(wire.callee.send(Call(1, GetTask(task_id="t")))) == []
    assert list(wire.caller.receive(Frame(b"", status=204))) == []
