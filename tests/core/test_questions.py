"""What a waiting task asks, whoever wrote it, and what an answer to it means."""

from __future__ import annotations

import pytest

from dragoman.core.events import Ask, Asked, Snapshot, Stamped, StateChanged
from dragoman.core.extensions import QUESTION
from dragoman.core.model import AnyPart, Data, Json, Message, Role, State, Status, Task, Text
from dragoman.core.questions import (
    Question,
    decision_in,
    question_at,
    question_of,
    question_part,
    yes_or_no,
)

MARK: dict[str, Json] = {QUESTION: "input:x"}


def said(*parts: AnyPart) -> Message:
    return Message(message_id="m", role=Role.AGENT, parts=parts)


def waiting(*parts: AnyPart, state: State = State.INPUT_REQUIRED) -> Task:
    return Task(id="t", context_id="c", status=Status(state, message=said(*parts)))


@pytest.mark.parametrize("kind", Ask)
def test_what_is_written_is_what_is_read(kind: Ask) -> None:
    part = question_part(kind, "q#1", {"a": 1})
    bare = Data(part.value)  # as a dialect without metadata of parts carries it
    state = State.AUTH_REQUIRED if kind is Ask.CREDENTIALS else State.INPUT_REQUIRED
    for each in (part, bare):
        found = question_of(waiting(Text("Well?"), each, state=state))
        assert found == Question(kind, "Well?", "q#1", {"a": 1})


@pytest.mark.parametrize(
    ("about", "kind"),
    [
        ({"kind": "approval", "details": 7}, Ask.APPROVAL),
        ({"kind": "credentials", "details": 7}, Ask.CREDENTIALS),
        ({"kind": ["approval"], "details": 7}, Ask.INPUT),
        ({"kind": {}, "details": 7}, Ask.INPUT),
        ({"kind": "sword", "details": 7}, Ask.INPUT),
        ({"details": 7}, Ask.INPUT),
    ],
)
def test_the_kind_is_one_we_know(about: dict[str, Json], kind: Ask) -> None:
    found = question_of(waiting(Text("Which?"), Data(about, metadata=MARK)))
    assert found == Question(kind, "Which?", "", 7)


def test_parts_that_describe_no_question_go_along() -> None:
    odd, plain = Data([1], metadata=MARK), Data({"kind": "approval"})
    found = question_of(waiting(Text("Which?"), odd, plain))
    assert found == Question(Ask.INPUT, "Which?", more=(odd, plain))


def test_a_task_in_auth_required_asks_for_credentials_whatever_its_data_says() -> None:
    part = question_part(Ask.APPROVAL, "q", None)
    for parts in ((Text("Who are you?"),), (Text("Who are you?"), part)):
        found = question_of(waiting(*parts, state=State.AUTH_REQUIRED))
        assert found is not None
        assert found.kind is Ask.CREDENTIALS


@pytest.mark.parametrize("state", [State.WORKING, State.COMPLETED, State.UNKNOWN])
def test_a_task_that_does_not_wait_asks_nothing(state: State) -> None:
    assert question_of(waiting(Text("?"), state=state)) is None
    changed = StateChanged(state=state, message=said(Text("?")))
    assert question_at(Stamped("t", "c", 2, 0, changed)) is None


def test_an_event_asks_what_the_task_asks_after_it() -> None:
    parts = (Text("Well?"), question_part(Ask.APPROVAL, "q#1", 5))
    task = waiting(*parts)
    for event in (
        Asked(question="q#1", kind=Ask.APPROVAL, message=said(*parts), body=5),
        Asked(question="q#1", kind=Ask.APPROVAL, message=said(Text("Well?")), body=5),
        StateChanged(state=State.INPUT_REQUIRED, message=said(*parts)),
        Snapshot(task=task),
    ):
        assert question_at(Stamped("t", "c", 3, 0, event)) == question_of(task)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        *((word, True) for word in ("yes", " Y ", "OK!", "sure", "approve", "好的", "同意。")),
        *((word, False) for word in ("no", "N", "denied.", "不同意", "取消！")),
        *((word, None) for word in ("", "maybe", "yes but", "not", "?")),
    ],
)
def test_a_decision_needs_a_clear_word(text: str, means: bool | None) -> None:
    assert yes_or_no(text) is means
    assert decision_in(said(Text(text))) is means
    assert decision_in(said(Text(text)), {"approved": True}) is True
    assert decision_in(said(Text(text), Data({"approved": False}))) is False
