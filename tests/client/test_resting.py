"""What a task of another agent asks, whatever the other agent writes."""

from __future__ import annotations

import pytest

from dragoman.client.waiting import question
from dragoman.core.events import Ask
from dragoman.core.model import AnyPart, Data, Json, Message, Role, State, Status, Task, Text

MARK: dict[str, Json] = {"urn:dragoman:work:1/question": "input:x"}


def waiting(*parts: AnyPart, state: State = State.INPUT_REQUIRED) -> Task:
    said = Message(message_id="m", role=Role.AGENT, parts=parts)
    return Task(id="t", context_id="c", status=Status(state, message=said))


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"kind": "approval", "details": 7}, Ask.APPROVAL),
        ({"kind": "credentials", "details": 7}, Ask.CREDENTIALS),
        ({"kind": "tool", "details": 7}, Ask.INPUT),
        ({"kind": ["approval"], "details": 7}, Ask.INPUT),
        ({"kind": {}, "details": 7}, Ask.INPUT),
        ({"details": 7}, Ask.INPUT),
    ],
)
def test_the_kind_is_one_we_know(told: dict[str, Json], kind: Ask) -> None:
    asked = question(waiting(Text("Which?"), Data(told, metadata=MARK)))
    assert asked == (kind, "Which?", 7, ())


def test_what_is_no_question_goes_along() -> None:
    odd, plain = Data([1], metadata=MARK), Data({"kind": "approval"})
    assert question(waiting(Text("Which?"), odd, plain)) == (
        Ask.INPUT,
        "Which?",
        None,
        (odd, plain),
    )


def test_a_task_that_wants_credentials_asks_for_them() -> None:
    task = waiting(Text("Who are you?"), state=State.AUTH_REQUIRED)
    assert question(task)[0] is Ask.CREDENTIALS
