"""Oddities of REST that golden frames cannot show."""

from __future__ import annotations

import json

import pytest

from dialects.golden import USUAL
from dragoman.core.errors import BadParams, ContentTypeUnsupported, TaskNotFound, Unauthenticated
from dragoman.core.events import Note, Noted, Stamped
from dragoman.core.model import Message, Role, Text
from dragoman.core.operations import GetTask, Invoke, SendMessage
from dragoman.core.session import Call, Fault, Frame, Update
from dragoman.dialects.a2a import REST_0_3, REST_1_0, RestCallee, RestCaller, RpcCaller
from dragoman.dialects.a2a.errors import INFO
from dragoman.dialects.a2a.routes import PLAIN, find_route, is_ours

SAID = Message(message_id="m", role=Role.USER, parts=(Text("hi"),))
BODY = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]%b}}'


def heard(target: str, body: bytes = b"", **headers: str) -> RestCallee:
    session = RestCallee()
    session.receive(Frame(body, target, USUAL | headers))
    return session


@pytest.mark.parametrize(
    ("target", "tenant"),
    [
        ("GET /tasks/t", ""),
        ("GET /acme/tasks/t", "acme"),
        ("GET /a%20b/tasks/t", "a b"),
        ("GET /tasks/t?tenant=acme", "acme"),
        ("GET /acme/tasks?tenant=acme", "acme"),
        ("POST /acme.com/message:send", "acme.com"),
        ("POST /acme/myorg.x/do", "acme"),
        ("POST /myorg.x/do", ""),
        ("GET /v1/tasks/t?tenant=acme", ""),
    ],
)
def test_the_callee_says_which_tenant_it_heard(target: str, tenant: str) -> None:
    assert heard(target, BODY % b"" if "send" in target else b"").tenant == tenant


def test_a_tenant_in_the_body_counts_too() -> None:
    body = BODY.replace(b"}}", b'},"tenant":"acme"}') % b""
    assert heard("POST /message:send", body).tenant == "acme"


def test_the_callee_says_which_dialect_and_header_it_has() -> None:
    new, old = heard("GET /tasks/t"), heard("GET /v1/tasks/t")
    assert (new.dialect, new.extensions_header) == ("a2a-1.0-rest", "a2a-extensions")
    assert (old.dialect, old.extensions_header) == ("a2a-0.3-rest", "x-a2a-extensions")


@pytest.mark.parametrize("word", ["v1", "agents", "iat", "a2a-go", "console", ".well-known"])
def test_words_of_our_own_are_no_tenants(word: str) -> None:
    (fault,) = RestCallee().receive(Frame(b"", f"GET /{word}/extendedAgentCard", USUAL))
    assert isinstance(fault, Fault)


def test_every_route_is_found_at_its_own_path() -> None:
    for binding in (REST_1_0, REST_0_3):
        for route in binding.routes:
            path = binding.prefix + route.path.replace("{", "").replace("}", "")
            found = find_route(path)[1]
            assert found is not None
            assert found.verbs[route.verb].method is route.method
            assert found.ids == route.ids
            assert is_ours(path)
            assert (path in PLAIN) == (not route.ids)


@pytest.mark.parametrize("path", ["/", "", "/x", "/healthz", "/.well-known/agent.json", "/a/b"])
def test_what_is_not_rest_is_left_to_others(path: str) -> None:
    assert not is_ours(path)


def test_a_body_must_say_that_it_is_json_and_no_body_need_not() -> None:
    session = RestCallee()
    (fault,) = session.receive(Frame(BODY % b"", "POST /message:send", {}))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, ContentTypeUnsupported)
    assert [frame.status for frame in session.send(fault)] == [415]
    # Wrong content in a message is not HTTP's own error.
    other = Fault(None, ContentTypeUnsupported("No images."))
    assert [frame.status for frame in session.send(other)] == [400]
    (call,) = RestCallee().receive(Frame(b"", "POST /tasks/t:cancel", {}))
    assert isinstance(call, Call)


def test_an_error_before_the_body_was_read_is_told_in_the_right_form() -> None:
    # As the driver does when it refuses a caller at the door.
    for target, member in (("POST /message:send", "error"), ("POST /v1/message:send", "code")):
        session = heard(target)
        (frame,) = session.send(Fault(None, Unauthenticated()))
        assert frame.status == 401
        assert member in json.loads(frame.body)


def test_bodies_are_not_too_deep() -> None:
    deep = b'{"message":' + b"[" * 100 + b"]" * 100 + b"}"
    (fault,) = RestCallee().receive(Frame(deep, "POST /message:send", USUAL))
    assert isinstance(fault, Fault)
    assert "deeper" in fault.error.message


def test_a_task_s_body_is_an_object() -> None:
    (fault,) = RestCallee().receive(Frame(b"[1]", "POST /tasks/t:cancel", USUAL))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, BadParams)


def test_notes_reach_callers_that_activate_the_work_extension() -> None:
    for binding in (REST_1_0, REST_0_3):
        caller = RestCaller(binding, extensions=["urn:dragoman:work:1"])
        (request,) = caller.send(Call(1, SendMessage(message=SAID), stream=True))
        callee = RestCallee()
        callee.receive(request)
        told = Update(1, Stamped("t", "c", 3, 5, Noted(kind=Note.THOUGHT, body={"a": None})))
        (frame,) = callee.send(told)
        assert list(caller.receive(frame)) == [told]


def test_callers_name_their_tenant() -> None:
    (frame,) = RestCaller(REST_1_0, tenant="a b").send(Call(1, GetTask(task_id="t")))
    assert frame.target == "GET /a%20b/tasks/t"
    (frame,) = RpcCaller(tenant="acme").send(Call(1, GetTask(task_id="t")))
    assert json.loads(frame.body)["params"] == {"tenant": "acme", "id": "t"}
    (frame,) = RpcCaller(tenant="acme").send(Call(1, Invoke(method="a.b/c", params=[1])))
    assert json.loads(frame.body)["params"] == [1]


def test_what_a_caller_did_not_ask_is_not_heard() -> None:
    assert list(RestCaller().receive(Frame(b"{}", status=200))) == []
    assert list(RestCaller().send(Call(1, GetTask(task_id="")))) == []


@pytest.mark.parametrize("reason", [None, 7, [], {}, "WHO_KNOWS"])
def test_an_error_whose_reason_means_nothing_is_told_by_its_status(reason: object) -> None:
    info = {"@type": INFO, "reason": reason}
    error = {"code": 404, "message": "No such task", "details": [info]}
    caller = RestCaller(REST_1_0)
    caller.send(Call(1, GetTask(task_id="t")))
    (fault,) = caller.receive(Frame(json.dumps({"error": error}).encode(), status=404))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, TaskNotFound)
