"""Oddities of A2A that golden frames cannot show."""

from __future__ import annotations

import json

import pytest

from dialects.golden import USUAL
from dragoman.core.errors import ContentTypeUnsupported, TooLarge
from dragoman.core.events import Note, Noted, Stamped
from dragoman.core.model import Message, Role, State, Status, Task, Text
from dragoman.core.operations import GetTask, SendMessage
from dragoman.core.session import Call, Fault, Frame, Result, Update
from dragoman.dialects.a2a import V0_3, V1_0, RpcCallee, RpcCaller
from dragoman.dialects.a2a.scalars import Wrong, base64_in, count_in, stamp_in, stamp_out


def asked(method: str, params: object, **headers: str) -> Frame:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return Frame(json.dumps(body).encode(), "POST /", USUAL | headers)


def test_the_callee_says_which_dialect_it_heard() -> None:
    session = RpcCallee()
    session.receive(asked("GetTask", {"id": "t"}))
    assert session.dialect == "a2a-1.0"
    session.receive(asked("tasks/get", {"id": "t"}))
    assert session.dialect == "a2a-0.3"


def test_the_callee_says_which_tenant_and_extensions_it_heard() -> None:
    session = RpcCallee()
    assert (session.tenant, session.extensions) == ("", ())
    session = RpcCallee()
    session.receive(asked("GetTask", {"id": "t", "tenant": "x"}, **{"a2a-extensions": "a, b,,"}))
    assert (session.tenant, session.extensions) == ("x", ("a", "b"))
    session.receive(asked("tasks/get", {"id": "t", "tenant": "x"}))
    assert session.tenant == ""


def test_a_wrong_content_type_is_http_s_own_error_and_wrong_content_is_not() -> None:
    session = RpcCallee()
    (fault,) = session.receive(Frame(b"{}", "POST /", {"content-type": "text/html"}))
    assert isinstance(fault, Fault)
    assert [frame.status for frame in session.send(fault)] == [415]
    other = Fault(1, ContentTypeUnsupported("No images."))
    assert [frame.status for frame in session.send(other)] == [200]
    assert [frame.status for frame in session.send(Fault(1, TooLarge()))] == [413]


def test_a_missing_content_type_is_a_wrong_one() -> None:
    # A browser sends such requests to any site without asking first.
    (fault,) = RpcCallee().receive(Frame(b"{}", "POST /"))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, ContentTypeUnsupported)


def test_an_answer_to_nothing_is_empty() -> None:
    task = Task(id="t", context_id="c", status=Status(State.WORKING))
    assert [frame.status for frame in RpcCallee().send(Result(1, task))] == [204]


@pytest.mark.parametrize("version", [V1_0, V0_3], ids=lambda version: version.name)
def test_notes_reach_callers_that_activate_the_work_extension(version: object) -> None:
    caller = RpcCaller(version, extensions=["urn:dragoman:work:1"])  # type: ignore[arg-type]
    callee = RpcCallee()
    message = Message(message_id="m", role=Role.USER, parts=(Text("hi"),))
    (request,) = caller.send(Call(1, SendMessage(message=message), stream=True))
    callee.receive(request)
    told = Update(1, Stamped("t", "c", 3, 5, Noted(kind=Note.THOUGHT, body={"a": None})))
    (frame,) = callee.send(told)
    assert list(caller.receive(frame)) == [told]


def test_what_the_caller_forgot_is_not_answered() -> None:
    caller = RpcCaller()
    caller.send(Call(1, GetTask(task_id="a")))
    caller.send(Call(2, GetTask(task_id="b")))
    (fault,) = caller.receive(Frame(b'{"jsonrpc":"2.0","id":3,"result":{}}'))
    assert isinstance(fault, Fault)
    assert fault.id == 3
    (fault,) = caller.receive(Frame(b"{", status=200))
    assert isinstance(fault, Fault)
    assert fault.id is None


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1767225600007, "2026-01-01T00:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
        (-62135596800000, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_times(at: int, text: str) -> None:
    assert stamp_out(at) == text
    assert stamp_in(text) == at


@pytest.mark.parametrize(
    "text",
    ["2026-01-01T00:00:00", "2026-01-01T02:00:00+02:00", "2026-01-01t00:00:00.000999z"],
)
def test_times_as_others_write_them(text: str) -> None:
    assert stamp_in(text) == 1767225600000


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-01", "2026-13-01T00:00:00Z", f"2026-01-01T00:00:00.{'1' * 100}Z"],
)
def test_no_times(text: str) -> None:
    with pytest.raises(Wrong):
        stamp_in(text)


@pytest.mark.parametrize(("value", "count"), [(5, 5), (5.0, 5), ("5", 5), ("0005", 5)])
def test_counts(value: int | float | str, count: int) -> None:
    assert count_in(value, "") == count


@pytest.mark.parametrize(
    "value", [-1, 2**31, 1.5, 1e300, "", "x", "-1", "1.0", "9" * 99, "٣", " 1", "1_0"]
)
def test_no_counts(value: int | float | str) -> None:
    with pytest.raises(Wrong):
        count_in(value, "")


@pytest.mark.parametrize("text", ["", "+/8=", "+/8", "-_8=", "-_8"])
def test_base64(text: str) -> None:
    assert base64_in(text) == (b"\xfb\xff" if text else b"")


@pytest.mark.parametrize("text", ["a", "aaaaa", "a b", "a\n", "*", "=a", "é", "aGk=aGk="])
def test_no_base64(text: str) -> None:
    with pytest.raises(Wrong):
        base64_in(text)
