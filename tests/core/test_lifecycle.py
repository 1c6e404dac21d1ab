"""The state table, every state against every event, and the fold that makes a task of its log."""

from __future__ import annotations

import pytest

from dragoman.core.events import (
    AnyEvent,
    ArtifactChunk,
    Ask,
    Asked,
    Note,
    Noted,
    Opened,
    Snapshot,
    Stamped,
    StateChanged,
)
from dragoman.core.lifecycle import ENDS_STREAM, FINAL, NEXT, WAITING, Fold, may_follow, shortened
from dragoman.core.model import AnyPart, Artifact, Data, Message, Role, State, Status, Task, Text

S = State
LIVE = [S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED]
DONE = [S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED]


def said(name: str, role: Role = Role.AGENT) -> Message:
    return Message(message_id=name, role=role, parts=(Text(name),))


def piece(*parts: AnyPart, append: bool = True, **more: str) -> ArtifactChunk:
    return ArtifactChunk(
        artifact=Artifact(artifact_id="a", parts=parts, **more),  # type: ignore[arg-type]
        append=append,
    )


def fold(*events: AnyEvent) -> Fold:
    made = Fold("t", "c")
    for seq, event in enumerate(events, 1):
        made.add(Stamped("t", "c", seq, 100 + seq, event))
    return made


# The table


@pytest.mark.parametrize("before", S)
@pytest.mark.parametrize("after", S)
def test_what_may_follow(before: State, after: State) -> None:
    allowed = before not in DONE and after not in (S.SUBMITTED, S.UNKNOWN)
    if before is S.UNKNOWN:
        allowed = after is not S.UNKNOWN  # whoever could not say may say anything next
    assert may_follow(before, after) is allowed


def test_the_sets_are_derived() -> None:
    assert NEXT.keys() == set(S)
    assert set(DONE) == FINAL
    assert {S.INPUT_REQUIRED, S.AUTH_REQUIRED} == WAITING
    assert FINAL | {S.INPUT_REQUIRED} == ENDS_STREAM
    assert not any(NEXT[state] for state in FINAL)
    assert all(NEXT[state] >= FINAL for state in LIVE)


# Every state x every event

EVENTS: list[tuple[AnyEvent, State | None]] = [
    (Opened(message=said("m", Role.USER)), S.SUBMITTED),
    *((StateChanged(state=state), state) for state in S),
    (Asked(question="q", kind=Ask.INPUT, message=said("?")), S.INPUT_REQUIRED),
    (Asked(question="q", kind=Ask.APPROVAL, message=said("?")), S.INPUT_REQUIRED),
    (Asked(question="q", kind=Ask.TOOL, message=said("?")), S.INPUT_REQUIRED),
    (Asked(question="q", kind=Ask.CREDENTIALS, message=said("?")), S.AUTH_REQUIRED),
    (piece(Text("x")), None),
    (Noted(kind=Note.LOG, body="x"), S.WORKING),
    (Noted(kind=Note.THOUGHT, body="x", state=S.SUBMITTED), S.SUBMITTED),
    (Snapshot(task=Task(id="t", context_id="c", status=Status(S.FAILED, 7))), S.FAILED),
]


@pytest.mark.parametrize("before", S)
@pytest.mark.parametrize(("event", "after"), EVENTS)
def test_the_fold_follows_the_log(before: State, event: AnyEvent, after: State | None) -> None:
    """It does not judge: what is in the log has happened. Only the engine asks `may_follow`."""
    made = fold(StateChanged(state=before), event)
    assert made.state is (before if after is None else after)
    assert made.seq == 2
    assert made.task().state is made.state


# Status and history


def test_opened_brings_the_callers_message_and_metadata() -> None:
    task = fold(Opened(message=said("m", Role.USER), metadata={"k": 1})).task()
    assert task == Task(
        id="t",
        context_id="c",
        status=Status(S.SUBMITTED, 101),
        history=(said("m", Role.USER),),
        metadata={"k": 1},
    )


def test_history_holds_all_messages_but_the_one_in_the_status() -> None:
    made = fold(
        Opened(message=said("hello", Role.USER)),
        StateChanged(state=S.WORKING, message=said("one")),
        StateChanged(state=S.WORKING, message=said("two")),
        Asked(question="q", kind=Ask.INPUT, message=said("which?")),
        StateChanged(state=S.WORKING, heard=said("that", Role.USER)),
        Noted(kind=Note.LOG, body=1),
        StateChanged(state=S.COMPLETED, message=said("done")),
    )
    task = made.task()
    assert [m.message_id for m in task.history] == ["hello", "one", "two", "which?", "that"]
    assert task.status == Status(S.COMPLETED, 107, said("done"))
    assert [m.message_id for m in made.history()][-2:] == ["that", "done"]


def test_history_without_a_status_message() -> None:
    made = fold(Opened(message=said("hello", Role.USER)), StateChanged(state=S.WORKING))
    assert made.history() == made.task().history


# Artifacts


def test_chunks_are_joined_to_one_text() -> None:
    made = fold(piece(Text("a"), append=False), piece(Text("b")), piece(Text("c"), Text("d")))
    assert made.task().artifacts == (Artifact(artifact_id="a", parts=(Text("abcd"),)),)
    assert made.task().text == "abcd"


def test_only_plain_adjacent_texts_are_joined() -> None:
    dressed = [Text("b", metadata={"k": 1}), Text("c", filename="f"), Text("d", media_type="t")]
    made = fold(piece(Text("a"), *dressed, Data(1), Text("e"), append=False), piece(Text("f")))
    assert made.task().artifacts[0].parts == (Text("a"), *dressed, Data(1), Text("ef"))


def test_looking_changes_nothing() -> None:
    made = fold(piece(Text("a"), append=False))
    for text in ("b", "c"):
        made.task()
        made.add(Stamped("t", "c", 9, 0, piece(Text(text))))
    assert made.artifact("a") == Artifact(artifact_id="a", parts=(Text("abc"),))
    assert made.artifact("b") is None


def test_append_false_begins_anew() -> None:
    made = fold(piece(Text("old"), name="n", append=False), piece(Text("new"), append=False))
    assert made.task().artifacts == (Artifact(artifact_id="a", parts=(Text("new"),)),)


def test_append_to_nothing_begins() -> None:
    assert fold(piece(Text("x"))).task().text == "x"


def test_an_artifact_may_be_empty() -> None:
    assert fold(piece(append=False)).task().artifacts == (Artifact(artifact_id="a", parts=()),)


def test_later_chunks_add_to_the_head() -> None:
    first = Artifact(artifact_id="a", parts=(), name="n", metadata={"k": 1, "l": 1})
    later = Artifact(artifact_id="a", parts=(), name="m", description="d", metadata={"k": 2})
    made = fold(ArtifactChunk(artifact=first), ArtifactChunk(artifact=later, append=True))
    assert made.task().artifacts == (
        Artifact(artifact_id="a", parts=(), name="m", description="d", metadata={"k": 2, "l": 1}),
    )


def test_artifacts_stay_in_the_order_they_came() -> None:
    other = Artifact(artifact_id="b", parts=(Text("y"),))
    made = fold(piece(Text("x")), ArtifactChunk(artifact=other), piece(Text("z")))
    assert [artifact.artifact_id for artifact in made.task().artifacts] == ["a", "b"]
    assert made.task().text == "xz\ny"


# Snapshots


def test_a_fold_goes_on_from_a_snapshot() -> None:
    whole = [
        Opened(message=said("m", Role.USER), metadata={"k": 1}),
        StateChanged(state=S.WORKING, message=said("one")),
        piece(Text("a"), append=False),
        piece(Text("b")),
        StateChanged(state=S.COMPLETED),
    ]
    at_three = fold(*whole[:3]).task()
    gone_on = Fold.of(at_three, 3)
    assert gone_on.seq == 3
    for seq, event in enumerate(whole[3:], 4):
        gone_on.add(Stamped("t", "c", seq, 100 + seq, event))
    assert gone_on.task() == fold(*whole).task()


@pytest.mark.parametrize(("length", "left"), [(None, 3), (9, 3), (3, 3), (2, 2), (1, 1), (0, 0)])
def test_shortened(length: int | None, left: int) -> None:
    history = tuple(said(name) for name in "abc")
    task = Task(id="t", context_id="c", status=Status(S.WORKING), history=history)
    short = shortened(task, length)
    assert short.history == history[3 - left :]
    assert (short is task) == (left == 3)
