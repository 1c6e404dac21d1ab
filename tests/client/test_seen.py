"""The comparison behind streams that survive, without a socket: any log, cut anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counts import count
from dragoman.core.events import AnyEvent, ArtifactChunk, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Artifact, Data, Message, Role, State, Status, Task, Text
from dragoman.core.operations import SendMessage, Watch
from dragoman.core.stream_state import NoSnapshot, StreamState

SAID = Message(message_id="m", role=Role.USER, parts=(Text("go"),))


def opened() -> Task:
    return Task(id="t", context_id="c", status=Status(State.SUBMITTED, 1), history=(SAID,))


def at(seq: int, event: AnyEvent) -> Stamped:
    return Stamped("t", "c", seq, seq, event)


def chunk(name: str, *parts: Any, append: bool = True) -> ArtifactChunk:
    return ArtifactChunk(artifact=Artifact(artifact_id=name, parts=parts), append=append)


def status(state: State, words: str = "", number: int = 0) -> StateChanged:
    said = Message(message_id=f"a{number}", role=Role.AGENT, parts=(Text(words),))
    return StateChanged(state=state, message=said if words else None)


pieces = st.one_of(st.text("ab ", min_size=1, max_size=3).map(Text), st.integers().map(Data))
happenings = st.one_of(
    st.builds(chunk, st.sampled_from("xy"), pieces, append=st.just(True)),
    st.builds(status, st.just(State.WORKING), st.sampled_from(["", "hm", "well"])),
)


@settings(max_examples=count(50, 200), deadline=None)
@given(
    log=st.lists(st.tuples(happenings, st.sampled_from(["told", "told", "lost", "again"]))),
    numbered=st.booleans(),
)
def test_whatever_is_lost_the_fold_is_the_task_and_no_text_comes_twice(
    log: list[tuple[Any, str]], numbered: bool
) -> None:
    server = Fold.of(opened(), 1)
    seen = StreamState(SendMessage(message=SAID), numbered=numbered)
    told: list[Any] = seen.take([at(1, Snapshot(task=opened()))])
    listening, last = True, 1
    kept: list[Stamped] = []
    for number, (happening, fate) in enumerate(log, 2):
        if isinstance(happening, StateChanged) and happening.message is not None:
            happening = status(happening.state, happening.message.text, number)
        entry = at(number, happening)
        server.add(entry)
        kept.append(entry)
        if fate == "lost":
            listening = False
        elif not listening or fate == "again":
            cursor = numbered and seen.seq > 0
            seen.connected(cursor=cursor)
            missed = [each for each in kept if each.seq > seen.seq]
            begin = [at(number, Snapshot(task=server.task()))]
            told += seen.take(missed if cursor else begin)
            listening = True
        else:
            told += seen.take([entry])
        last = number
    end = at(last + 1, status(State.COMPLETED, "done", last + 1))
    server.add(end)
    seen.connected(cursor=numbered)
    told += seen.take([*kept, end] if numbered else [at(last + 1, Snapshot(task=server.task()))])

    assert seen.task() == server.task()
    assert seen.over
    for name in "xy":
        texts = "".join(
            each.event.artifact.text
            for each in told
            if isinstance(each.event, ArtifactChunk) and each.event.artifact.artifact_id == name
        )
        made = server.artifact(name)
        assert texts == (made.text if made is not None else "")
    if numbered:
        assert [each.seq for each in told] == list(range(1, last + 2))
    again = Fold("t", "c")
    for each in told:
        again.add(each)
    assert again.task() == server.task()


def begun(*events: AnyEvent, numbered: bool = False) -> StreamState:
    seen = StreamState(Watch(task_id="t"), numbered=numbered)
    seen.take([at(1, Snapshot(task=opened())), *(at(2, event) for event in events)])
    return seen


def test_a_resumed_stream_that_begins_anywhere_is_not_believed() -> None:
    seen = begun()
    seen.connected(cursor=False)
    with pytest.raises(NoSnapshot):
        seen.take([at(9, chunk("x", Text("z")))])


def test_an_artifact_that_became_another_is_told_anew() -> None:
    seen = begun(chunk("x", Text("draft"), append=False))
    there = Fold.of(opened(), 1)
    there.add(at(3, chunk("x", Text("final"), append=False)))
    (step,) = seen.catch_up(there.task())
    assert isinstance(step, Stamped)
    assert isinstance(step.event, ArtifactChunk)
    assert (step.event.append, step.event.artifact.text) == (False, "final")


def test_parts_that_others_keep_apart_are_one_text() -> None:
    seen = begun(chunk("x", Text("ab"), append=False))
    apart = Artifact(artifact_id="x", parts=(Text("a"), Text("b"), Text("c")))
    task = Task(
        id="t",
        context_id="c",
        status=Status(State.SUBMITTED, 1),
        artifacts=(apart,),
        history=(SAID,),
    )
    (step,) = seen.catch_up(task)
    assert isinstance(step, Stamped)
    assert isinstance(step.event, ArtifactChunk)
    assert (step.event.append, step.event.artifact.text) == (True, "c")


def test_a_history_that_is_not_told_is_kept() -> None:
    seen = begun(status(State.WORKING, "hm", 2))
    bare = Task(id="t", context_id="c", status=Status(State.COMPLETED, 5))
    seen.catch_up(bare)
    task = seen.task()
    assert task is not None
    assert [message.text for message in task.history] == ["go", "hm"]
    assert task.state is State.COMPLETED


def test_what_we_said_to_a_waiting_task_is_heard_by_its_next_event() -> None:
    waiting = Task(id="t", context_id="c", status=Status(State.INPUT_REQUIRED, 2), history=(SAID,))
    answer = Message(message_id="m2", role=Role.USER, parts=(Text("Oslo"),), task_id="t")
    seen = StreamState(SendMessage(message=answer), numbered=False)
    seen.take([at(2, Snapshot(task=waiting))])
    assert not seen.rests
    (step,) = seen.take([at(3, StateChanged(state=State.WORKING))])
    assert isinstance(step, Stamped)
    assert isinstance(step.event, StateChanged)
    assert step.event.heard is not None
    assert step.event.heard.text == "Oslo"
