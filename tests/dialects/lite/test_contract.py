"""What every dialect's sessions keep, in the terms of a room: most is told with the result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.test_errors import EVERY
from contract.test_session import BAD
from counts import count
from dialects import strategies
from dialects.lite import reference_parser
from dialects.pair import ROOM, Pair
from dragoman.core.card import Card, CardSkill
from dragoman.core.errors import DragomanError, NotCancelable, TaskNotFound
from dragoman.core.events import (
    ArtifactChunk,
    Ask,
    Asked,
    Note,
    Noted,
    Opened,
    Stamped,
    StateChanged,
)
from dragoman.core.extensions import PROGRESS
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Artifact, Blob, Data, Link, Message, Role, State, Status, Task, Text
from dragoman.core.operations import (
    CancelTask,
    GetExtendedCard,
    GetTask,
    ListTasks,
    SendMessage,
    Watch,
)
from dragoman.core.session import Call, End, Fault, Frame, Introduction, Result, Update
from dragoman.dialects.lite.callee import LiteCallee
from dragoman.dialects.lite.caller import LiteCaller, id_out
from dragoman.dialects.lite.card import CardDetails
from dragoman.dialects.lite.parts import PostFile, parts_in, parts_out, posted
from dragoman.dialects.lite.states import NAMES, STATES, state_in
from dragoman.dialects.lite.telling import Telling, figures_in, figures_out

often = settings(max_examples=count(20, 60, 1000), deadline=None)


def said(text: str, **about: Any) -> Message:
    return Message(message_id="m", role=Role.USER, parts=(Text(text),), **about)


def send(*, stream: bool = True, id: Any = "1", text: str = "hello") -> Call:
    return Call(id, SendMessage(message=said(text), open_as="t"), stream=stream)


def entry(seq: int, event: Any) -> Stamped:
    return Stamped("t~0123456789abcdef", "s", seq, 0, event)


def chunk(text: str, *, append: bool = True) -> ArtifactChunk:
    return ArtifactChunk(artifact=Artifact(artifact_id="a", parts=(Text(text),)), append=append)


def state(which: State, text: str = "", **about: Any) -> StateChanged:
    return StateChanged(state=which, message=said(text) if text else None, **about)


def post(text: str, *files: PostFile) -> Frame:
    told = [{"name": f.name, "content": "", "mediaType": f.media_type} for f in files]
    return Frame(json.dumps({"text": text, "files": told}).encode())


def texts(frames: Any) -> list[str]:
    return [json.loads(frame.body)["text"] for frame in frames]


def folded(log: list[Stamped]) -> Task:
    fold = Fold("t", "")
    for each in log:
        fold.add(each)
    return fold.task()


def streamed(*events: Any) -> list[Stamped]:
    """What the requester hears of these events."""
    wire = Pair(ROOM)
    wire.caller_says(send())
    heard = []
    for seq, event in enumerate(events, 1):
        heard += wire.callee_says(Update("t", entry(seq, event)))
    return [signal.entry for signal in heard if isinstance(signal, Update)]  # type: ignore[misc]


def heard_by_caller(*posts: str) -> tuple[LiteCaller, list[Any]]:
    caller = LiteCaller("kiln")
    caller.send(send())
    return caller, [signal for text in posts for signal in caller.receive(post(text))]


def events_of(*posts: str) -> list[Any]:
    _, heard = heard_by_caller(*posts)
    return [signal.entry.event for signal in heard if isinstance(signal, Update)]


# Both sides.


def test_what_the_requester_says_the_agent_hears() -> None:
    for op in (
        SendMessage(message=said("hello"), open_as="t"),
        SendMessage(
            message=said("hello"), metadata={"skillId": "fire", "priority": "high", "x": 1}
        ),
        CancelTask(task_id="t"),
        CancelTask(task_id="t", metadata={"reason": "user-request"}),
        CancelTask(task_id="t", metadata={"reason": "the user wants no pots"}),
        Watch(task_id="t"),
        GetExtendedCard(),
    ):
        asked = Call("1", op)
        assert Pair(ROOM).caller_says(asked) == [ROOM.carried(asked)]
    assert Pair(ROOM).caller_says(Call("4", GetTask(task_id="t"))) == []
    assert Pair(ROOM).caller_says(Call("4", ListTasks())) == []


def test_a_streamed_task_is_the_same_task_on_the_other_side() -> None:
    heard = streamed(
        Opened(message=said("hello")),
        state(State.WORKING),
        chunk("HE", append=False),
        chunk("LLO"),
        state(State.COMPLETED),
    )
    assert heard[0].event == StateChanged(state=State.SUBMITTED)
    assert folded(heard).text == "HELLO"
    assert folded(heard).state is State.COMPLETED


def test_a_room_is_told_what_is_worth_it() -> None:
    callee = LiteCallee()
    list(callee.receive(post("[A2A:task id=t skill=fire]\nhello")))
    told = []
    for event in (
        Opened(message=said("hello")),
        state(State.WORKING),
        Noted(kind=Note.THOUGHT, body={"text": "hm"}),
        state(State.WORKING, "I begin."),
        state(State.WORKING, metadata={PROGRESS: {"fraction": 0.4, "eta": 180}}),
        chunk("HE", append=False),
        chunk("LLO"),
        ArtifactChunk(
            artifact=Artifact(artifact_id="p.txt", parts=(Blob(b"x", media_type="text/x"),))
        ),
        state(State.COMPLETED),
    ):
        told += texts(callee.send(Update("t", entry(1, event))))
    assert told == [
        "[A2A:ack task=t]\nGot it.",
        "[A2A:status task=t state=working]\nI begin.",
        "[A2A:status task=t state=working progress=40% eta=3m]",
        "[A2A:result task=t state=completed artifacts=p.txt]\nHELLO\n[附件: p.txt]",
    ]


def test_a_question_is_told_with_its_details_and_the_same_id_answers_it() -> None:
    heard = streamed(
        Asked(question="q", kind=Ask.APPROVAL, message=said("Fire it?"), body={"degrees": 1200})
    )
    (asked,) = (each.event for each in heard)
    assert asked.state is State.INPUT_REQUIRED
    assert asked.message.parts == (
        *(Text("Fire it?"), Data({"degrees": 1200}), Text("(yes or no)")),
    )
    callee = LiteCallee()
    (call,) = callee.receive(post("[A2A:task id=t]\nYes"))
    assert call.op.open_as == "t"
    assert call.op.message.text == "Yes"


@given(entry=strategies.entries | strategies.messages)
@often
def test_whatever_happens_can_be_told_and_heard(entry: Stamped | Message) -> None:
    wire = Pair(ROOM)
    wire.caller_says(send())
    for signal in wire.callee_says(Update("t", entry)):
        assert isinstance(signal, Update)
    callee = LiteCallee()
    list(callee.receive(post("[A2A:task id=t]\nhello")))
    for text in texts(callee.send(Update("t", entry))):
        read = reference_parser.read(text)
        assert read is not None
        assert read.params["task"] == "t"


@given(call=strategies.calls)
@often
def test_whatever_is_asked_is_heard_as_declared(call: Call) -> None:
    heard = Pair(ROOM).caller_says(call)
    assert heard == ([ROOM.carried(call)] if heard else [])
    if isinstance(call.op, SendMessage | CancelTask | Watch | GetExtendedCard):
        assert heard
    for text in texts(LiteCaller().send(call)):
        assert reference_parser.read(text) is not None


def test_a_call_that_wants_no_stream_gets_the_whole_task() -> None:
    wire = Pair(ROOM)
    wire.caller_says(send(id=7, stream=False))
    assert wire.callee_says(Update("t", entry(1, state(State.WORKING, "on it")))) == []
    (result,) = wire.callee_says(Update("t", entry(2, state(State.COMPLETED, "done"))))
    assert isinstance(result, Result)
    assert result.id == 7
    assert isinstance(result.value, Task)
    assert result.value.text == "done"


def test_a_whole_task_and_a_direct_reply_are_results() -> None:
    task = folded([entry(1, chunk("HI", append=False)), entry(2, state(State.COMPLETED))])
    for value in (task, said("HI")):
        callee = LiteCallee()
        list(callee.receive(post("[A2A:task id=t]\nhello")))
        assert texts(callee.send(Result("t", value))) == ["[A2A:result task=t state=completed]\nHI"]
    running = Task(id="t", context_id="", status=Status(State.WORKING, 0, said("on it")))
    waiting = Task(id="t", context_id="", status=Status(State.INPUT_REQUIRED))
    for value, told in (
        (running, "[A2A:status task=t state=working]\non it"),
        (waiting, "[A2A:status task=t state=input-required]\nWhat do you say?"),
    ):
        callee = LiteCallee()
        list(callee.receive(post("[A2A:task id=t]\nhello")))
        assert texts(callee.send(Result("t", value))) == [told]


@pytest.mark.parametrize("which", State)
def test_every_state_has_a_name_and_every_name_a_state(which: State) -> None:
    seven = {
        *("accepted", "working", "input-required", "completed", "failed", "cancelled", "rejected"),
    }
    assert set(NAMES.values()) == seven
    same = {State.AUTH_REQUIRED: State.INPUT_REQUIRED, State.UNKNOWN: State.WORKING}
    assert state_in(NAMES[which]) is same.get(which, which)
    assert STATES["canceled"] is STATES["cancelled"] is State.CANCELED
    assert state_in("pondering") is State.UNKNOWN
    heard = streamed(StateChanged(state=which, message=said("why")))
    assert heard[-1].event.state is same.get(which, which)  # type: ignore[union-attr]


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_error_can_be_said(cls: type[DragomanError]) -> None:
    wire = Pair(ROOM)
    wire.caller_says(send())
    (fault,) = wire.callee_says(Fault("t", cls("why")))
    assert isinstance(fault, Fault)
    assert fault.id == "1"
    assert (type(fault.error), fault.error.message) == (cls, "why")


def test_cards_are_asked_for_and_told() -> None:
    wire = Pair(ROOM)
    skill = CardSkill(id="fire", name="Fire", description="Fires pots", input_modes=("text/plain",))
    card = Card(name="Kiln", description="Fires pots.", version="1.2", skills=(skill,))
    assert wire.caller_says(Call("1", GetExtendedCard())) == [Call("", GetExtendedCard())]
    (result,) = wire.callee_says(Result("", card))
    assert isinstance(result, Result)
    assert result.id == "1"
    assert isinstance(result.value, Card)
    assert (result.value.name, result.value.skills[0].id) == ("Kiln", "fire")
    (met,) = wire.callee_says(Introduction(None, "kiln", card))
    assert isinstance(met, Introduction)
    assert met.card is not None
    assert met.card.name == "Kiln"


def test_a_card_in_prose_is_understood() -> None:
    caller = LiteCaller("kiln")
    (met,) = caller.receive(post("[A2A:card]\nI fire pots."))
    assert isinstance(met, Introduction)
    assert met.card is not None
    assert (met.who, met.card.name, met.card.description) == ("kiln", "kiln", "I fire pots.")


def test_the_card_says_whether_the_channel_carries_files() -> None:
    card = Card(name="Kiln", description="", version="1")
    for files in (True, False):
        callee = LiteCallee(CardDetails("kiln"), files=files)
        (text,) = texts(callee.send(Result("", card)))
        assert (f'"fileTransfer":{str(files).lower()}') in text


# Cancels.


def test_a_cancel_is_answered_by_the_end_of_the_task() -> None:
    caller = LiteCaller()
    caller.send(send())
    assert texts(caller.send(Call("2", CancelTask(task_id="t")))) == [
        "[A2A:cancel task=t]\nPlease stop."
    ]
    ended = list(caller.receive(post("[A2A:status task=t state=cancelled]")))
    assert ended[:2] == [
        Update("1", Stamped("t", "", 1, 0, StateChanged(state=State.CANCELED))),
        End("1"),
    ]
    assert isinstance(ended[2], Result)
    assert ended[2].id == "2"
    assert list(caller.receive(post("[A2A:status task=t state=cancelled]"))) == []


def test_a_cancel_that_comes_too_late_or_is_refused_fails() -> None:
    caller = LiteCaller()
    caller.send(Call("2", CancelTask(task_id="t")))
    (fault,) = caller.receive(post("[A2A:result task=t state=completed]\nDone"))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, NotCancelable)
    wire = Pair(ROOM)
    wire.caller_says(Call("2", CancelTask(task_id="t")))
    (fault,) = wire.callee_says(Fault("cancel t", TaskNotFound()))
    assert isinstance(fault, Fault)
    assert fault.id == "2"
    assert isinstance(fault.error, TaskNotFound)


# Agents of others.


def test_an_answer_of_the_reference_implementation_is_understood() -> None:
    assert events_of(
        "[A2A:ack task=t]\nGot it.",
        "[A2A:status task=t state=accepted]\nMine.",
        "[A2A:status task=t state=working progress=40% eta=3m]\nHalfway.",
        "[A2A:result task=t state=completed artifacts=a.md]\nDone.",
    ) == [
        StateChanged(state=State.SUBMITTED),
        StateChanged(state=State.WORKING, message=agent_said("t.1", "Mine.")),
        StateChanged(
            state=State.WORKING,
            message=agent_said("t.2", "Halfway."),
            metadata={PROGRESS: {"fraction": 0.4, "eta": 180.0}},
        ),
        ArtifactChunk(artifact=Artifact(artifact_id="result", parts=(Text("Done."),))),
        StateChanged(state=State.COMPLETED),
    ]


def agent_said(id: str, text: str) -> Message:
    return Message(message_id=id, role=Role.AGENT, parts=(Text(text),), task_id="t")


def test_a_failure_told_as_a_status_ends_the_task() -> None:
    for name, which in (("failed", State.FAILED), ("rejected", State.REJECTED)):
        caller, heard = heard_by_caller(f"[A2A:status task=t state={name}]\nNo paper left")
        assert heard[0].entry.event == StateChanged(
            state=which, message=agent_said("t.1", "No paper left")
        )
        assert heard[1] == End("1")
        assert list(caller.receive(post("[A2A:result task=t state=completed]"))) == []


def test_a_task_that_is_completed_in_a_status_waits_for_its_result() -> None:
    caller, heard = heard_by_caller("[A2A:status task=t state=completed]")
    assert heard == []
    assert caller.settling == ["1"]
    told = list(caller.receive(post("[A2A:result task=t state=completed]\nfive lines")))
    assert [type(each) for each in told] == [Update, Update, End]
    caller, _ = heard_by_caller("[A2A:status task=t state=completed]")
    update, end = caller.settle("1")
    assert isinstance(update, Update)
    assert end == End("1")
    assert caller.settling == []
    assert list(caller.settle("1")) == []


def test_unknown_states_types_and_parameters_are_ignored() -> None:
    assert events_of("[A2A:status task=t state=pondering mood=good]") == [
        StateChanged(state=State.WORKING, metadata={"state": "pondering"})
    ]
    assert events_of("[A2A:negotiate task=t price=3]\nWell?") == []
    assert events_of("[A2A:status task=t]\nhm") == [
        StateChanged(state=State.WORKING, message=agent_said("t.1", "hm"))
    ]
    assert events_of("[A2A:result task=t]\nhere")[-1] == StateChanged(state=State.COMPLETED)
    assert events_of("[A2A:result task=other state=completed]\nspoofed") == []
    assert events_of("[A2A:result state=completed]\nno task") == []
    callee = LiteCallee()
    for text in (
        *("[A2A:negotiate task=t]", "[A2A:task]\nno id", "[A2A:cancel]", "[A2A:ack task=t]"),
        *(
            "[A2A:card]\nme",
            "[A2A:result task=t state=completed]",
            "hello",
            "[A2A:status task=t state=x]",
        ),
        f"[A2A:task id={'x' * 300}]",
    ):
        assert list(callee.receive(post(text))) == []
        assert next(iter(callee.notes()))["ignored"]


def test_an_agent_without_markers_still_answers() -> None:
    caller = LiteCaller()
    caller.send(send())
    assert list(caller.receive(post("Here are your five lines."))) == []
    told = list(caller.hear_plain("Here are your five lines."))
    assert [type(each) for each in told] == [Update, Update, End]
    assert folded([each.entry for each in told[:2]]).text == "Here are your five lines."
    assert list(caller.hear_plain("Bye.")) == []
    caller.send(send())
    caller.send(Call("2", SendMessage(message=said("x"), open_as="u"), stream=True))
    assert list(caller.hear_plain("Which one?")) == []


def test_we_ask_again_for_a_task_that_we_lost_sight_of() -> None:
    assert texts(LiteCaller().send(Call("1", Watch(task_id="t"), stream=True))) == [
        "[A2A:status task=t]\nHow is it going?"
    ]
    (call,) = LiteCallee().receive(post("[A2A:status task=t]\nHow is it going?"))
    assert call == Call("t", Watch(task_id="t"), stream=True)


def test_a_call_that_nobody_waits_for_is_forgotten() -> None:
    caller = LiteCaller()
    caller.send(send())
    caller.send(Call("2", CancelTask(task_id="t")))
    caller.send(Call("3", GetExtendedCard()))
    for id in ("1", "2", "3"):
        caller.abandon(id)
    assert list(caller.receive(post("[A2A:result task=t state=completed]\nlate"))) == []
    (met,) = caller.receive(post("[A2A:card]\nme"))
    assert isinstance(met, Introduction)


def test_a_silent_call_has_no_answer() -> None:
    caller = LiteCaller()
    for op in (SendMessage(message=said("x"), open_as="t"), CancelTask(task_id="t")):
        assert list(caller.send(Call(None, op, silent=True)))
    assert list(caller.receive(post("[A2A:result task=t state=cancelled]"))) == []
    assert list(caller.send(Call(None, GetExtendedCard(), silent=True)))
    assert list(caller.send(End("1"))) == []
    assert list(LiteCallee().send(send())) == []
    assert list(LiteCallee().send(Fault("x", TaskNotFound()))) == []
    assert list(LiteCallee().send(Result("x", {"a": 1}))) == []


def test_ids_are_safe_in_every_marker() -> None:
    assert id_out("kiln-7f3a") == "kiln-7f3a"
    assert id_out("with space") != id_out("with  space")
    assert len(id_out("x" * 65)) == 32


# Parts, figures and frames.

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    [
        "```json data\n{}\n```",
        "```json  data",
        "```json data",
        "```",
        "\n",
        "x\n",
        "\n```json data\n1\n```\n",
    ]
)
VALUES = st.sampled_from([Data({"a": [1, None]}), Data("x\n```\n"), Data([]), Data(5), Data(None)])
PARTS = st.lists(TEXTS.map(Text) | VALUES, max_size=5).map(tuple)


@given(parts=PARTS)
@often
def test_texts_and_data_survive_a_body(parts: tuple[Any, ...]) -> None:
    found = parts_in(*_posted(parts))
    values = [part.value for part in parts if isinstance(part, Data)]
    assert [part.value for part in found if isinstance(part, Data)] == values
    words = "".join(part.text for part in parts if isinstance(part, Text))
    assert "".join("".join(p.text for p in found if isinstance(p, Text)).split()) == "".join(
        words.split()
    )


def _posted(parts: tuple[Any, ...]) -> tuple[str, tuple[PostFile, ...]]:
    body, files = parts_out(parts)
    return body, posted(files)


def test_parts_are_told_so_that_people_can_read_them() -> None:
    parts = (
        *(Text("one"), Text("two"), Data({"a": 1}), Link("https://example.com/a", filename="a")),
        *(Blob(b"x", filename="../b.txt", media_type="text/plain"), Blob(b"y"), Text("three")),
    )
    body, files = _posted(parts)
    assert body == 'one\ntwo\n```json data\n{"a":1}\n```\na: https://example.com/a\nthree'
    assert files == (PostFile("b.txt", b"x", "text/plain"), PostFile("file", b"y"))
    assert parts_in(body, files) == (
        *(Text("one\ntwo"), Data({"a": 1}), Text("a: https://example.com/a\nthree")),
        Blob(b"x", filename="b.txt", media_type="text/plain"),
        Blob(b"y", filename="file"),
    )
    broken = "```json data\nnot json\n```"
    assert parts_in(f"Look:\n{broken}") == (Text("Look:"), Text(broken))
    deep = "```json data\n" + "[" * 100 + "]" * 100 + "\n```"
    assert all(isinstance(part, Text) for part in parts_in(deep))


def test_a_block_that_somebody_wrote_is_text() -> None:
    text = 'Mend this:\n```json\n{"a": 1,}\n```'
    assert parts_in(text) == (Text(text),)


def test_figures_are_read_as_people_write_them() -> None:
    assert figures_in({"progress": "50%", "eta": "10m"}) == {"fraction": 0.5, "eta": 600.0}
    assert figures_in({"progress": "0.5", "eta": "2h"}) == {"fraction": 0.5, "eta": 7200.0}
    assert figures_in({"progress": "250", "eta": "90"}) == {"fraction": 1.0, "eta": 90.0}
    assert figures_in({"progress": "half", "eta": "soon"}) == {}
    assert figures_out({"fraction": 0.5, "eta": 90}) == {"progress": "50%", "eta": "90s"}
    assert figures_out("x") == figures_out({"fraction": "x"}) == {}


def test_people_are_told_in_words_how_a_task_ended() -> None:
    assert Telling(state=State.COMPLETED).plain == "Done."
    assert Telling(state=State.REJECTED, text="No.").plain == "No."
    assert Telling(state=State.COMPLETED, files=(Blob(b""),)).plain == ""
    assert Telling(state=State.WORKING).plain == ""
    many = Telling(state=State.COMPLETED, files=(Blob(b"", filename="x" * 100),) * 3)
    assert "artifacts" not in many.marked("t").params


@pytest.mark.parametrize("body", BAD, ids=lambda body: repr(body[:40]))
def test_what_is_no_post_is_ignored(body: bytes) -> None:
    for session in (LiteCallee(), LiteCaller()):
        assert list(session.receive(Frame(body))) == []
        assert next(iter(session.notes()))["ignored"]


@given(text=st.text() | st.from_regex(r"\[A2A:[a-z]{1,6}( [a-z]{2,5}=[a-z\-%0-9]{1,9}){0,4}\]\n.*"))
@often
def test_both_sides_eat_anything(text: str) -> None:
    callee, caller = LiteCallee(), LiteCaller()
    caller.send(send())
    frame = Frame(json.dumps({"text": text}).encode("utf-8", "replace"))
    for signal in callee.receive(frame):
        assert isinstance(signal, Call)
    for heard in caller.receive(frame):
        assert isinstance(heard, Update | End | Fault | Introduction | Result)
