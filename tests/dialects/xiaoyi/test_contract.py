"""What every dialect's sessions keep, in the terms of the link: one event may be several frames."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract.test_errors import EVERY
from contract.test_session import BAD
from dialects import strategies
from dialects.pair import LINK, Pair
from dragoman.core.errors import DragomanError, PeerRefused, TaskNotFound
from dragoman.core.events import ArtifactChunk, Opened, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Artifact, Message, Role, State, Task, Text
from dragoman.core.operations import CancelTask, GetTask, Invoke, SendMessage
from dragoman.core.session import Call, End, Fault, Frame, Introduction, Ping, Result, Update
from dragoman.dialects.xiaoyi.callee import XiaoYiCallee
from dragoman.dialects.xiaoyi.caller import XiaoYiCaller
from dragoman.dialects.xiaoyi.parts import MOST_TEXT
from dragoman.dialects.xiaoyi.signing import handshake_headers, sign, verify
from dragoman.dialects.xiaoyi.states import NAMES, STATES
from fuzz.test_dialects import mangled

often = settings(max_examples=1000 if os.environ.get("DRAGOMAN_FULL") else 60, deadline=None)
pieces = st.text(min_size=1, max_size=5)  # nobody can take back all text: empty pieces are ignored
DEEP = "[" * 2000 + "]" * 2000


def said(text: str, **about: Any) -> Message:
    return Message(message_id="m", role=Role.USER, parts=(Text(text),), **about)


def send(id: object = "1", *, stream: bool = True) -> Call:
    return Call(id, SendMessage(message=said("hello", context_id="s"), open_as="t"), stream=stream)  # type: ignore[arg-type]


def entry(seq: int, event: Any) -> Stamped:
    return Stamped("t~0123456789abcdef", "s", seq, 0, event)


def chunk(text: str, *, append: bool = True, name: str = "result") -> ArtifactChunk:
    return ArtifactChunk(artifact=Artifact(artifact_id=name, parts=(Text(text),)), append=append)


def completed(seq: int = 99) -> Stamped:
    return entry(seq, StateChanged(state=State.COMPLETED))


def inner(frame: Frame) -> Any:
    return json.loads(json.loads(frame.body)["msgDetail"])


def response(detail: str | dict[str, Any], link: str = "", task: str = "t") -> Frame:
    text = detail if isinstance(detail, str) else json.dumps(detail)
    body = {"msgType": "agent_response", "agentId": "a", "sessionId": "s", "taskId": task}
    return Frame(json.dumps({**body, "msgDetail": text}).encode(), link)


def piece(text: str, id: str = "x", **flags: bool) -> dict[str, Any]:
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}
    result = {"taskId": "t", "kind": "artifact-update", "artifact": artifact, **flags}
    return {"jsonrpc": "2.0", "id": id, "result": result}


def folded(log: list[Stamped]) -> Task:
    fold = Fold("t", "s")
    for each in log:
        fold.add(each)
    return fold.task()


def streamed(*events: Any) -> list[Stamped]:
    """What the server hears of these events."""
    wire = Pair(LINK)
    wire.caller_says(send())
    heard = []
    for seq, event in enumerate(events, 1):
        heard += wire.callee_says(Update("1", entry(seq, event)))
    return [signal.entry for signal in heard]  # type: ignore[union-attr, misc]


def test_what_the_server_says_the_agent_hears() -> None:
    for asked in (send(), Call("2", CancelTask(task_id="t"))):
        assert Pair(LINK).caller_says(asked) == [LINK.carried(asked)]
    clear = Call("3", Invoke(method="clearContext", params={"sessionId": "s"}))
    assert Pair(LINK).caller_says(clear) == [clear]
    assert Pair(LINK).caller_says(Call("4", GetTask(task_id="t"))) == []


def test_a_streamed_task_is_the_same_task_on_the_other_side() -> None:
    log = [
        Opened(message=said("hello")),
        StateChanged(state=State.WORKING),
        chunk("HE", append=False),
        chunk("LLO"),
        StateChanged(state=State.COMPLETED),
    ]
    heard = streamed(*log)
    assert [each.seq for each in heard] == [1, 2, 3, 4, 5]
    assert folded(heard).text == "HELLO"
    assert folded(heard).state is State.COMPLETED


@given(texts=st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), pieces)))
@often
def test_text_arrives_whole_however_it_grows(texts: list[tuple[str, bool, str]]) -> None:
    chunks = [chunk(text, append=append, name=name) for name, append, text in texts]
    ours = folded([entry(1, each) for each in chunks])
    heard = folded(streamed(*chunks, StateChanged(state=State.COMPLETED)))
    assert heard.text == ours.text
    assert heard.state is State.COMPLETED


@given(entry=strategies.entries | strategies.messages)
@often
def test_whatever_happens_can_be_told_and_heard(entry: Stamped | Message) -> None:
    wire = Pair(LINK)
    wire.caller_says(send())
    for signal in wire.callee_says(Update("1", entry)):
        assert isinstance(signal, Update)


@given(call=strategies.calls)
@often
def test_whatever_is_asked_is_heard_as_declared(call: Call) -> None:
    heard = Pair(LINK).caller_says(call)
    if isinstance(call.op, SendMessage | CancelTask) and not isinstance(heard[0], Fault):
        assert heard == [LINK.carried(call)]


def test_a_call_that_wants_no_stream_gets_the_whole_task() -> None:
    wire = Pair(LINK)
    wire.caller_says(send(7, stream=False))
    assert wire.callee_says(Update(7, entry(1, chunk("hi", append=False)))) == []
    (result,) = wire.callee_says(Update(7, completed()))
    assert isinstance(result, Result)
    assert result.id == 7
    assert isinstance(result.value, Task)
    assert result.value.text == "hi"


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_name_and_every_name_a_state(state: State) -> None:
    heard = streamed(StateChanged(state=state, message=said("why")))
    same = {State.REJECTED: State.FAILED, State.AUTH_REQUIRED: State.INPUT_REQUIRED}
    assert heard[-1].event.state is same.get(state, state)  # type: ignore[union-attr]
    named = {"submitted", "working", "input-required", "completed", "canceled", "failed", "unknown"}
    assert set(NAMES.values()) == named <= STATES.keys()


def test_a_long_text_is_split_into_safe_frames_and_not_repeated() -> None:
    callee = XiaoYiCallee("a")
    list(callee.receive(next(iter(XiaoYiCaller("a").send(send())))))
    text = "长" * (MOST_TEXT * 2 + 1)
    frames = [
        *callee.send(Update("1", entry(1, chunk(text, append=False)))),
        *callee.send(Update("1", completed())),
    ]
    told = [inner(frame)["result"] for frame in frames]
    pieces = [each for each in told if each["kind"] == "artifact-update"]
    assert [each["append"] for each in pieces] == [False, True, True, True]
    assert [each["final"] for each in pieces] == [False, False, False, True]
    texts = [each["artifact"]["parts"][0]["text"] for each in pieces]
    assert "".join(texts) == text
    assert max(map(len, texts)) == MOST_TEXT
    question = entry(2, StateChanged(state=State.INPUT_REQUIRED, message=said(text)))
    asked = [inner(frame)["result"] for frame in callee.send(Update("1", question))]
    assert [each["final"] for each in asked] == [False, False, True]


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_error_can_be_said(cls: type[DragomanError]) -> None:
    wire = Pair(LINK)
    wire.caller_says(send())
    (fault,) = wire.callee_says(Fault("1", cls("why")))
    assert isinstance(fault, Fault)
    assert (type(fault.error), fault.error.message) == (cls, "why")


def test_a_cancel_that_fails_is_told_by_its_state() -> None:
    wire = Pair(LINK)
    wire.caller_says(Call("2", CancelTask(task_id="t")))
    (fault,) = wire.callee_says(Fault("2", TaskNotFound()))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, TaskNotFound)


def test_a_clear_that_fails_is_told_by_its_state() -> None:
    wire = Pair(LINK)
    wire.caller_says(Call("2", Invoke(method="clearContext", params={"sessionId": "s"})))
    (fault,) = wire.callee_says(Fault("2", PeerRefused("no")))
    assert isinstance(fault, Fault)


# Frames of others.


@pytest.mark.parametrize("body", BAD, ids=lambda body: repr(body[:40]))
def test_bad_input_is_a_fault_and_can_be_answered(body: bytes) -> None:
    session = XiaoYiCallee()
    (fault,) = session.receive(Frame(body))
    assert isinstance(fault, Fault)
    (frame,) = session.send(fault)
    assert inner(frame)["error"]["message"]


@pytest.mark.parametrize("body", BAD, ids=lambda body: repr(body[:40]))
def test_bad_answers_are_ignored(body: bytes) -> None:
    session = XiaoYiCaller()
    session.send(send())
    assert not list(session.receive(Frame(body)))
    assert session.notes()
    detail = body.decode(errors="replace")
    assert not list(session.receive(response(detail)))


def test_deep_json_within_a_string_is_refused_like_any_other() -> None:
    request = {"msgType": "data", "sessionId": "s", "msgDetail": DEEP}
    (fault,) = XiaoYiCallee().receive(Frame(json.dumps(request).encode()))
    assert isinstance(fault, Fault)
    assert "nested deeper" in fault.error.message
    caller = XiaoYiCaller()
    caller.send(send())
    assert not list(caller.receive(response(DEEP)))
    assert "nested deeper" in next(iter(caller.notes()))["ignored"]


def test_a_request_for_another_agent_is_ignored() -> None:
    (frame,) = XiaoYiCaller("other").send(send())
    callee = XiaoYiCallee("mine")
    assert not list(callee.receive(frame))
    assert next(iter(callee.notes()))["ignored"] == "another agent"


def test_the_session_in_the_params_counts_before_that_at_the_top() -> None:
    (frame,) = XiaoYiCaller("a").send(send())
    body = json.loads(frame.body) | {"sessionId": "changes-with-every-start"}
    callee = XiaoYiCallee("a")
    (call,) = callee.receive(Frame(json.dumps(body).encode()))
    assert isinstance(call, Call)
    assert isinstance(call.op, SendMessage)
    assert call.op.message.context_id == callee.heard.session == "s"


def test_frames_that_come_over_two_links_count_once() -> None:
    caller = XiaoYiCaller()
    caller.send(send())
    heard: list[Any] = []
    for link, text in (("1", "a"), ("2", "a"), ("1", "a"), ("2", "a"), ("2", "b"), ("1", "b")):
        heard += caller.receive(response(piece(text, append=True), link))
    assert folded([signal.entry for signal in heard]).text == "aab"


def test_a_task_that_completes_without_a_last_piece_is_settled_later() -> None:
    caller = XiaoYiCaller()
    caller.send(send())
    status = {"taskId": "t", "kind": "status-update", "final": False}
    done = {"jsonrpc": "2.0", "id": "x", "result": {**status, "status": {"state": "completed"}}}
    assert list(caller.receive(response(done))) == []
    assert caller.settling == ["1"]
    update, end = caller.settle("1")
    assert isinstance(update, Update)
    assert end == End("1")
    assert caller.settling == []


def test_what_comes_after_the_end_is_ignored() -> None:
    caller = XiaoYiCaller()
    caller.send(send())
    assert list(caller.receive(response(piece("all", final=True))))[-1] == End("1")
    assert list(caller.receive(response(piece("all", final=True)))) == []


@given(body=st.binary(max_size=60) | mangled())
@example(body=b'{"\x80jsonrpc": "2.0", "id": 7, "method": "tasks/send"}')
@often
def test_both_sides_eat_anything(body: bytes) -> None:
    callee, caller = XiaoYiCallee(), XiaoYiCaller()
    for signal in callee.receive(Frame(body)):
        assert isinstance(signal, Call | Fault)
        if isinstance(signal, Fault):
            (frame,) = callee.send(signal)
            assert inner(frame)["error"]["message"]
        elif isinstance(signal.op, SendMessage):
            opened = Stamped("t", "c", 1, 1, Opened(message=signal.op.message))
            assert list(callee.send(Update(signal.id, opened)))
    caller.send(send())
    for frame in (Frame(body), response(body.decode("utf-8", "replace"))):
        for heard in caller.receive(frame):
            assert isinstance(heard, Update | End | Fault | Introduction | Ping)


# The signature.


def test_the_signature_is_that_of_the_source_document() -> None:
    secret, stamp = "a secret key", "1794770000000"
    expected = base64.b64encode(hmac.digest(secret.encode(), stamp.encode(), hashlib.sha256))
    assert sign(secret, stamp) == expected.decode()
    assert verify(secret, stamp, sign(secret, stamp))
    assert not verify(secret, "1794770000001", sign(secret, stamp))
    assert not verify("another", stamp, sign(secret, stamp))
    assert not verify(secret, stamp, "é")
    assert handshake_headers("ak", secret, "agent", 1794770000000) == {
        "x-access-key": "ak",
        "x-sign": sign(secret, stamp),
        "x-ts": stamp,
        "x-agent-id": "agent",
        "dragoman-link": "resubscribe, hops, file-bytes",  # beyond the document
    }
