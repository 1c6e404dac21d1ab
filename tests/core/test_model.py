"""The words themselves: what they say in short, and that they survive being stored."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from dialects import strategies
from dragoman.core.card import Card
from dragoman.core.dialect import unchanged
from dragoman.core.events import Ask, Asked, Stamped
from dragoman.core.model import Artifact, Blob, Data, Link, Message, Role, State, Status, Task, Text
from dragoman.core.peer import ANYONE, Batch, Context
from dragoman.core.session import End

PARTS = (Text("a"), Data({"k": 1}), Text("b"), Blob(b"x"), Link("https://x.example"))


def test_the_text_of_things() -> None:
    artifact = Artifact(artifact_id="a", parts=PARTS)
    empty = Artifact(artifact_id="b", parts=(Data(None),))
    task = Task(
        id="t", context_id="c", status=Status(State.WORKING), artifacts=(artifact, empty, artifact)
    )
    assert Message(message_id="m", role=Role.USER, parts=PARTS).text == "a\nb"
    assert Message(message_id="m", role=Role.USER, parts=(Text("a"),)).text == "a"
    assert artifact.text == "ab"
    assert task.text == "ab\nab"
    assert task.state is State.WORKING


def said(text: str, role: Role = Role.AGENT) -> Message:
    return Message(message_id=text, role=role, parts=(Text(text),) if text else ())


def ended(state: State, message: Message | None = None, *history: Message) -> Task:
    return Task(id="t", context_id="c", status=Status(state, 1, message), history=history)


def test_the_answer_of_a_task_without_artifacts_is_its_last_message() -> None:
    question, asked = said("Where?", Role.USER), said("Which city?")
    in_status = ended(State.COMPLETED, said("Oslo"), question, said("Let me see"))
    in_history = ended(State.COMPLETED, None, question, said("Let me see"), said("Oslo"))
    empty = ended(State.COMPLETED, said(""), question, said("Oslo"))
    for task in (in_status, in_history, empty):
        assert task.text == "Oslo"
        assert task.answer == said("Oslo")
    made = msgspec.structs.replace(
        in_status, artifacts=(Artifact(artifact_id="a", parts=(Data(1),)),)
    )
    assert (made.answer, made.text) == (None, "")
    hollow = msgspec.structs.replace(in_status, artifacts=(Artifact(artifact_id="a", parts=()),))
    assert hollow.text == "Oslo"
    for other in (
        ended(State.COMPLETED, None, question, asked, said("Oslo", Role.USER)),
        ended(State.INPUT_REQUIRED, asked, question),
        ended(State.FAILED, said("No such city"), question),
        ended(State.WORKING, said("Let me see"), question),
        ended(State.COMPLETED),
    ):
        assert (other.answer, other.text) == (None, "")


@pytest.mark.parametrize("kind", Ask)
def test_credentials_are_asked_for_in_their_own_state(kind: Ask) -> None:
    asked = Asked(
        question="q", kind=kind, message=Message(message_id="m", role=Role.AGENT, parts=())
    )
    waiting = State.AUTH_REQUIRED if kind is Ask.CREDENTIALS else State.INPUT_REQUIRED
    assert asked.state is waiting


@given(entry=strategies.entries)
@settings(max_examples=50, deadline=None)
def test_a_log_entry_survives_being_stored(entry: Stamped) -> None:
    for codec in (msgspec.json, msgspec.msgpack):
        if codec is msgspec.msgpack and _too_big(entry):
            continue
        assert codec.decode(codec.encode(entry), type=Stamped) == entry


def _too_big(entry: Stamped) -> bool:
    """MessagePack ends at 64 bits; JSON does not."""
    try:
        msgspec.msgpack.encode(entry)
    except OverflowError:
        return True
    return False


@given(card=strategies.cards)
@settings(max_examples=30, deadline=None)
def test_a_card_survives_being_stored(card: Card) -> None:
    assert msgspec.json.decode(msgspec.json.encode(card), type=Card) == card


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Text("a").text = "b"  # type: ignore[misc]


def test_small_things() -> None:
    assert Context() == ANYONE
    assert Batch([], last=True).last
    assert unchanged(End(1)) == End(1)
