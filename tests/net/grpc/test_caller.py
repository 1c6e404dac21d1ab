"""The side that asks: joined with the side that is asked, without a wire, in both versions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counts import count
from dialects import strategies
from dragoman.core import errors as e
from dragoman.core.events import ArtifactChunk, Opened, Stamped, StateChanged
from dragoman.core.extensions import CURSOR
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Artifact, Hook, Message, Role, State, Status, Task, Text
from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    HookPage,
    Invoke,
    ListHooks,
    ListTasks,
    Resolve,
    SendMessage,
    SetHook,
    TaskPage,
    Watch,
)
from dragoman.core.session import Call, End, Fault, Frame, Result, Signal, Update
from dragoman.dialects import DIALECTS
from dragoman.dialects.a2a.grpc.callee import GrpcCallee
from dragoman.dialects.a2a.grpc.caller import GrpcCaller, error_in, failed
from dragoman.dialects.a2a.proto import writer

from .test_codec import CARD, EVERY

FEW = count(10, 40, 1000)
VERSIONS = ("1.0", "0.3")
CARRIED = {"1.0": DIALECTS["a2a-1.0"].carried, "0.3": DIALECTS["a2a-0.3"].carried}
both = pytest.mark.parametrize("version", VERSIONS)
SAID = Message(message_id="m", role=Role.USER, parts=(Text("hi"),), metadata={"a": [1, None]})
HOOK = Hook(hook_id="h", task_id="t", url="https://x.example", token="k", scheme="Bearer")
TASK = Task(
    id="t",
    context_id="c",
    status=Status(State.INPUT_REQUIRED, 1234, SAID),
    artifacts=(Artifact(artifact_id="a", parts=(Text("x"),), name="n", description="d"),),
    history=(SAID,),
    metadata={"b": 0.5},
)
PAGE = TaskPage((TASK, TASK), "next", 2, 7)


class Pair:
    """What one side says, the other hears."""

    def __init__(self, version: str, *extensions: str, tenant: str = "") -> None:
        self.caller, self.callee = GrpcCaller(version, extensions, tenant), GrpcCallee()

    def asked(self, op: Any, *, stream: bool = False) -> Any:
        (frame,) = self.caller.send(Call(7, op, stream))
        (signal,) = self.callee.receive(frame)
        assert isinstance(signal, Call), signal
        assert signal.stream == stream
        return signal.op

    def told(self, signal: Signal) -> list[Signal]:
        (frame,) = self.callee.send(signal)
        if isinstance(signal, Fault):
            frame = failed(frame.status or 0, frame.headers["grpc-message"], frame.body)
        return list(self.caller.receive(frame))


ASKED: list[tuple[Any, Any]] = [
    (SendMessage(message=SAID, wait=False, history_length=3, accepts=("a/b",)), TASK),
    (SendMessage(message=SAID, metadata={"x": "y"}), SAID),
    (GetTask(task_id="t", history_length=2), TASK),
    (ListTasks(context_id="c", state=State.WORKING, since=99, page_size=2, page_token="p"), PAGE),
    (ListTasks(history_length=4, with_artifacts=True), PAGE),
    (CancelTask(task_id="t"), TASK),
    (SetHook(hook=HOOK), HOOK),
    (GetHook(task_id="t", hook_id="h"), HOOK),
    (GetHook(task_id="t"), HOOK),
    (ListHooks(task_id="t", page_size=3, page_token="p"), HookPage((HOOK,), "more")),
    (DeleteHook(task_id="t", hook_id="h"), None),
    (Invoke(method="org.x/do", params={"n": [1, {"m": None}]}), [1, {"a": "b"}, None]),
]


@both
@pytest.mark.parametrize(("op", "answer"), ASKED, ids=lambda value: type(value).__name__)
def test_what_is_asked_and_answered(version: str, op: Any, answer: Any) -> None:
    pair = Pair(version)
    assert pair.asked(op) == op
    assert pair.told(Result(None, answer)) == [Result(7, answer)]
    assert list(pair.caller.receive(Frame(b"", status=0))) == []  # it is over


@both
def test_a_webhook_comes_along_with_a_send(version: str) -> None:
    op = SendMessage(message=SAID, hook=HOOK)
    asked = Pair(version).asked(op)
    assert asked.hook == Hook(
        hook_id="h",
        task_id="t" if version == "1.0" else "",
        url=HOOK.url,
        token="k",
        scheme="Bearer",
    )


@both
def test_the_extended_card(version: str) -> None:
    pair = Pair(version)
    assert pair.asked(GetExtendedCard()) == GetExtendedCard()
    (answer,) = pair.told(Result(None, CARD))
    assert isinstance(answer, Result)
    card: Any = answer.value
    assert (card.name, card.skills, card.push, card.extended) == ("Desk", CARD.skills, True, True)
    assert card.extensions == CARD.extensions
    assert (card.provider, card.signatures) == (CARD.provider, CARD.signatures)
    assert card.security == CARD.security
    assert set(card.schemes) == set(CARD.schemes)
    expected = CARD.interfaces if version == "1.0" else CARD.interfaces[1:]
    assert card.interfaces == expected


def test_what_a_version_cannot_ask() -> None:
    assert list(GrpcCaller().send(Call(1, Resolve(task_id="t", question="q", value=1)))) == []
    assert list(GrpcCaller().send(Call(1, GetTask(task_id="t"), stream=True))) == []
    assert list(GrpcCaller().send(Call(1, Invoke(method="o.x/y"), stream=True))) == []
    assert list(GrpcCaller().send(Result(1, None))) == []
    with pytest.raises(e.BadParams, match="object"):
        GrpcCaller().send(Call(1, Invoke(method="o.x/y", params=[1])))
    # 0 is what was not given, in 0.3.
    assert Pair("0.3").asked(GetTask(task_id="t", history_length=0)).history_length is None
    assert Pair("1.0").asked(GetTask(task_id="t", history_length=0)).history_length == 0


def test_what_goes_along() -> None:
    pair = Pair("1.0", "urn:a", "urn:b", tenant="acme")
    pair.asked(GetTask(task_id="t"))
    assert (pair.callee.tenant, pair.callee.extensions) == ("acme", ("urn:a", "urn:b"))
    (frame,) = GrpcCaller("0.3", ["urn:a"], "acme").send(Call(1, GetTask(task_id="t")))
    assert frame.headers == {"a2a-version": "0.3", "x-a2a-extensions": "urn:a"}
    assert frame.target == "/a2a.v1.A2AService/GetTask"
    pair = Pair("0.3", tenant="acme")
    pair.asked(Invoke(method="org.x/do"))
    assert pair.callee.tenant == "acme"


CHUNK = ArtifactChunk(artifact=TASK.artifacts[0], append=True, last=True)
LOG = [
    Stamped("t", "c", 1, 1000, Opened(message=SAID)),
    Stamped("t", "c", 2, 1001, StateChanged(state=State.WORKING, metadata={"n": 1})),
    Stamped("t", "c", 3, 1002, ArtifactChunk(artifact=TASK.artifacts[0])),
    Stamped("t", "c", 4, 1003, CHUNK),
    Stamped("t", "c", 5, 1004, StateChanged(state=State.COMPLETED, message=SAID)),
]


def folded(log: list[Stamped]) -> Task:
    fold = Fold("t", "c")
    for entry in log:
        fold.add(entry)
    return fold.task()


@both
@pytest.mark.parametrize("marked", [True, False])
def test_a_stream_adds_up_to_the_same_task(version: str, marked: bool) -> None:
    pair = Pair(version, *([CURSOR] if marked else []))
    pair.asked(Watch(task_id="t"), stream=True)
    signals = [signal for entry in LOG for signal in pair.told(Update(None, entry))]
    assert signals[-1] == End(7)
    heard: list[Any] = [signal.entry for signal in signals if isinstance(signal, Update)]
    assert [entry.seq for entry in heard] == ([1, 2, 3, 4, 5] if marked else [0] * 5)
    assert folded(heard) == folded(LOG)
    assert not any(CURSOR in str(entry) for entry in heard)


@both
def test_a_stream_ends_where_the_version_says_so(version: str) -> None:
    pair = Pair(version)
    pair.asked(SendMessage(message=SAID), stream=True)
    waits = Stamped("t", "c", 2, 0, StateChanged(state=State.INPUT_REQUIRED))
    signals = pair.told(Update(None, waits))
    assert [type(each) for each in signals] == [Update, *([End] if version == "0.3" else [])]
    if version == "1.0":
        assert list(pair.caller.receive(Frame(b"", status=0))) == [End(7)]
    pair = Pair(version)
    pair.asked(SendMessage(message=SAID), stream=True)
    assert pair.told(Update(None, SAID)) == [Update(7, SAID), End(7)]


@both
@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_error_is_heard_as_the_same(version: str, cls: type[e.DragomanError]) -> None:
    pair = Pair(version)
    pair.asked(GetTask(task_id="t"))
    (fault,) = pair.told(Fault(None, cls("It broke", task_id="t")))
    assert isinstance(fault, Fault)
    expected = CARRIED[version](Fault(None, cls("It broke", task_id="t")))
    assert isinstance(expected, Fault)
    wanted = type(expected.error)
    assert (type(fault.error), fault.error.message) == (wanted, expected.error.message)
    assert fault.error.public == {"task_id": "t"}


def test_what_grpc_itself_says() -> None:
    large = error_in(8, "Received message larger than max (70000 vs. 65536)")
    assert isinstance(large, e.TooLarge)
    assert isinstance(error_in(8, "slow down"), e.TooMany)
    assert isinstance(error_in(12, "Method not found!"), e.UnknownMethod)
    assert isinstance(error_in(14, "failed to connect"), e.StoreUnavailable)
    cancelled = error_in(1, "")
    assert isinstance(cancelled, e.PeerRefused)
    assert cancelled.code == 1
    assert isinstance(error_in(5, "no", b"\xff\xff nonsense"), e.TaskNotFound)
    other = writer("google.rpc.Status")({"code": 5, "details": [{"type_url": "type/else"}]})
    assert isinstance(error_in(5, "no", other), e.TaskNotFound)
    assert failed(0).status == 13


@both
def test_what_makes_no_sense_is_their_fault(version: str) -> None:
    send, get = SendMessage(message=SAID), GetTask(task_id="t")
    said: list[tuple[bytes, Any, bool]] = [
        *((b"\xff\xff", send, False), (b"\xff\xff", send, True)),
        *((b"", send, False), (b"", get, False)),  # nothing at all is not a task either
    ]
    for body, op, stream in said:
        pair = Pair(version)
        pair.asked(op, stream=stream)
        (fault,) = pair.caller.receive(Frame(body, status=0))
        assert isinstance(fault, Fault)
        assert isinstance(fault.error, e.PeerMisbehaved)


@both
@settings(max_examples=FEW, deadline=None)
@given(op=strategies.sends, answer=strategies.tasks | strategies.messages)
def test_any_send_and_any_answer(version: str, op: SendMessage, answer: Task | Message) -> None:
    """All of it arrives, but for declared losses and what a double does not hold."""
    pair, carried = Pair(version), CARRIED[version]
    asked, expected = pair.asked(op), carried(Call(7, op))
    assert isinstance(expected, Call)
    assert doubles(asked.message) == doubles(expected.op.message)  # type: ignore[union-attr]
    assert (asked.wait, asked.accepts) == (op.wait, op.accepts)
    (told,) = pair.told(Result(None, answer))
    assert doubles(told) == doubles(carried(Result(7, answer)))


def doubles(value: Any) -> Any:
    """The same with all numbers as protobuf holds them."""
    found = msgspec.to_builtins(value)

    def walk(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: walk(each) for key, each in one.items()}
        if isinstance(one, list | tuple):
            return [walk(each) for each in one]
        return float(one) if type(one) is int else one

    return walk(found)


@both
@settings(max_examples=FEW, deadline=None)
@given(stream=st.booleans(), body=st.binary(max_size=200), status=st.sampled_from([0, 3, 5, 13]))
def test_any_bytes_are_heard(version: str, stream: bool, body: bytes, status: int) -> None:
    caller = GrpcCaller(version)
    caller.send(Call(1, SendMessage(message=SAID), stream))
    for signal in caller.receive(Frame(body, "", {"grpc-message": "x"}, status)):
        assert isinstance(signal, Result | Update | End | Fault)
