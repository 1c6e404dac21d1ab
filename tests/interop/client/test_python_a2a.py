"""The caller side of python-a2a's server without a socket."""

from __future__ import annotations

import json

from dragoman.client.cards import card_in
from dragoman.client.negotiation import choices
from dragoman.core.errors import PeerMisbehaved, TaskNotFound
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.model import Hook, Message, Role, Text
from dragoman.core.operations import GetTask, ListTasks, SendMessage, SetHook, Watch
from dragoman.core.session import Call, End, Fault, Frame, Result, Update
from dragoman.dialects.a2a import PythonCaller

SAY = SendMessage(message=Message(message_id="m", role=Role.USER, parts=(Text("hi"),)))


def asked(caller: PythonCaller, op: object, *, stream: bool = False) -> list[Frame]:
    return list(caller.send(Call(1, op, stream)))  # type: ignore[arg-type]


def task(state: str) -> bytes:
    return json.dumps({"id": "t", "sessionId": "s", "status": {"state": state}}).encode()


def test_each_method_has_its_path_and_streams_share_one() -> None:
    for op, stream, path in (
        (SAY, False, "/tasks/send"),
        (GetTask(task_id="t"), False, "/tasks/get"),
        (SAY, True, "/tasks/stream"),
        (Watch(task_id="t"), True, "/tasks/stream"),
    ):
        (frame,) = asked(PythonCaller(), op, stream=stream)
        assert frame.target == f"POST {path}"
        assert "a2a-version" not in frame.headers
    methods = [
        json.loads(asked(PythonCaller(), op, stream=True)[0].body)["method"]
        for op in (SAY, Watch(task_id="t"))
    ]
    assert methods == ["tasks/sendSubscribe", "tasks/resubscribe"]
    assert not asked(PythonCaller(), ListTasks())
    assert not list(PythonCaller().send(End(1)))
    assert not asked(PythonCaller(), SetHook(hook=Hook(hook_id="", task_id="t", url="u")))


def test_a_stream_is_bare_tasks_and_its_ids_are_no_numbers() -> None:
    caller = PythonCaller()
    asked(caller, SAY, stream=True)
    (first,) = caller.receive(Frame(task("submitted"), status=200, mark="7", name="update"))
    assert isinstance(first, Update)
    assert isinstance(first.entry, Stamped)
    assert first.entry.seq == 0
    assert isinstance(first.entry.event, Snapshot)
    last = list(
        caller.receive(Frame(task("input-required"), status=200, mark="7", name="complete"))
    )
    assert [type(signal) for signal in last] == [Update, End]


def test_what_is_no_task_and_what_is_none_there() -> None:
    caller = PythonCaller()
    asked(caller, SAY, stream=True)
    (fault,) = caller.receive(Frame(b"[]", status=200))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, PeerMisbehaved)
    for stream in (False, True):
        caller = PythonCaller()
        asked(caller, Watch(task_id="t") if stream else GetTask(task_id="t"), stream=stream)
        told = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "Task not found"}}
        (fault,) = caller.receive(Frame(json.dumps(told).encode(), status=404))
        assert isinstance(fault, Fault)
        assert isinstance(fault.error, TaskNotFound)
    caller = PythonCaller()
    asked(caller, SAY)
    body = b'{"jsonrpc":"2.0","id":1,"result":' + task("completed") + b"}"
    (answer,) = caller.receive(Frame(body, status=200))
    assert isinstance(answer, Result)


def test_its_card_is_known_by_a_capability_whatever_version_it_claims() -> None:
    card = {
        "name": "x",
        "url": "http://x.example",
        "version": "1",
        "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": True, "google_a2a_compatible": True},
        "skills": [],
    }
    assert [how.name for _, how in choices(card_in(json.dumps(card).encode()))] == ["python-a2a"]
    del card["capabilities"]["google_a2a_compatible"]  # type: ignore[attr-defined]
    assert [how.name for _, how in choices(card_in(json.dumps(card).encode()))] == ["a2a-0.3"]
