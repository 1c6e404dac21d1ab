"""Checks the envelope of JSON-RPC 2.0 and what A2A adds to it."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from ..check import EVERY, RPC, Body, Broken, Level, check, need
from ..http import HttpAnswer
from ..probes import RpcProbe
from ..requests import RPC_METHODS
from ..subject import NO_TASK, Case


def probe(it: Case) -> RpcProbe:
    """Returns the probe: these checks are for JSON-RPC only."""
    return it.through(RpcProbe)


def call(it: Case, **members: Any) -> HttpAnswer:
    """Sends a request with arbitrary members. By default it asks for a task that does not exist."""
    method = RPC_METHODS[it.version]["get"]
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": NO_TASK}, **members}
    kept = {key: value for key, value in request.items() if value is not ...}
    return probe(it).post(json.dumps(kept).encode())


def code(it: Case, answer: HttpAnswer, *codes: int) -> None:
    """Raises `Broken` unless the answer is one of these errors."""
    refusal = probe(it).read(answer).refusal
    wanted = " or ".join(map(str, codes))
    if refusal is None:
        raise Broken(f"accepted; expected {wanted}")
    need(refusal.code in codes, f"answered {refusal}, not {wanted}")


def returns(id: str | int) -> Body:
    """Sends a request under this id, which must come back."""

    def run(it: Case) -> None:
        found = call(it, id=id).json().get("id")
        need(found == id and type(found) is type(id), f"the id came back as {found!r}")

    return run


def refuses(*codes: int, body: bytes = b"", **members: Any) -> Body:
    """Sends a request with these members, or this body, which must be refused."""
    return lambda it: code(it, probe(it).post(body) if body else call(it, **members), *codes)


rpc = partial(check, bindings=RPC, versions=EVERY)
SAME_ID, ERRORS, REQUESTS = "1.0 §9.1; 0.3 §6.11.2", "1.0 §9.5; 0.3 §8.1", "1.0 §9.1; 0.3 §6.11.1"

rpc("rpc.id-string", SAME_ID, says="A string id is returned unchanged.")(returns("a-1/é"))
rpc("rpc.id-number", SAME_ID, says="A numeric id is returned as a number.")(returns(41))
rpc("rpc.id-large", SAME_ID, says="A numeric id of nine or more digits keeps all of them.")(
    returns(2**53 - 1)
)
rpc("rpc.no-method", ERRORS, says="An unknown method is -32601.")(
    refuses(-32601, method="doctor/noSuchMethod")
)
rpc("rpc.parse-error", ERRORS, says="A body that is not JSON is -32700.")(
    refuses(-32700, body=b'{"jsonrpc": "2.0", "id": 1, "method": ')
)
rpc("rpc.without-method", ERRORS, says="A request without a method is -32600.")(
    refuses(-32600, method=...)
)
rpc("rpc.wrong-version", ERRORS, says='A request whose jsonrpc is not "2.0" is -32600.')(
    refuses(-32600, jsonrpc="1.0")
)
rpc("rpc.not-a-request", ERRORS, says="JSON that is not an object is -32600.")(
    refuses(-32600, body=b'"hello"')
)
rpc("rpc.odd-id", REQUESTS, Level.SHOULD, says="An id that is an object is -32600.")(
    refuses(-32600, id={"a": 1})
)
rpc("rpc.params", ERRORS, says="Params of the wrong type are -32602.")(
    refuses(-32602, params={"id": {"not": "a string"}})
)
rpc(
    "rpc.params-array",
    REQUESTS,
    Level.SHOULD,
    says="Params that are not an object are refused (-32602 or -32600).",
)(refuses(-32602, -32600, params=["x"]))


@rpc("rpc.envelope", SAME_ID)
def envelope(it: Case) -> None:
    """Every answer has jsonrpc "2.0" and either a result or an error."""
    for answer in (it.sent.answer, call(it)):
        if answer is None:
            continue
        value = answer.json()
        need(isinstance(value, dict), "the answer is not an object")
        need(value.get("jsonrpc") == "2.0", f"jsonrpc is {value.get('jsonrpc')!r}")
        need(("result" in value) != ("error" in value), f"it holds {sorted(value)}")


@rpc("rpc.type", "1.0 §9.1; 0.3 §3.2.1")
def content_type(it: Case) -> None:
    """Answers are application/json."""
    answer = call(it)
    need(answer.type == "application/json", f"it is {answer.type or 'nothing'}")


@rpc("rpc.status", "1.0 §9.5; 0.3 §8", Level.SHOULD)
def status(it: Case) -> None:
    """An error of a call is in the body, with HTTP 200."""
    answer = call(it)
    need(answer.status == 200, f"the status is {answer.status}")


@rpc("rpc.error", "1.0 §9.5; 0.3 §6.12")
def error(it: Case) -> None:
    """An error has an integer code and a message."""
    value = call(it).json().get("error")
    need(isinstance(value, dict), f"error is {value!r}")
    need(isinstance(value.get("code"), int), f"code is {value.get('code')!r}")
    need(isinstance(value.get("message"), str), f"message is {value.get('message')!r}")


@rpc("rpc.null-id", SAME_ID)
def null_id(it: Case) -> None:
    """If the id cannot be read, the id of the answer is null."""
    value = probe(it).post(b"{").json()
    need("id" in value and value["id"] is None, f"the id is {value.get('id', 'missing')!r}")


@rpc("rpc.batch", "1.0 §9.1; JSON-RPC §6", Level.SHOULD)
def batch(it: Case) -> None:
    """A batch is refused with -32600, or answered completely as JSON-RPC defines it."""
    method = RPC_METHODS[it.version]["get"]
    one = {"jsonrpc": "2.0", "method": method, "params": {"id": NO_TASK}}
    answer = probe(it).post(json.dumps([{**one, "id": 1}, {**one, "id": 2}]).encode())
    value = answer.json()
    if isinstance(value, list):
        need(sorted(r.get("id", 0) for r in value) == [1, 2], "the answers are not those asked for")
    else:
        code(it, answer, -32600)


@rpc("rpc.notification", "JSON-RPC §4.1; 0.3 §6.11.1", Level.SHOULD)
def notification(it: Case) -> None:
    """A request without an id gets no answer, or an error with the id null."""
    answer = call(it, id=...)
    if answer.status < 500 and not answer.body:
        return
    # It asks for an unknown task, so the error may be about the task or about the missing id.
    code(it, answer, -32001, -32600, -32602)
    need(answer.json().get("id") is None, "the error has an id that nobody gave")


@check("rpc.media-type", "1.0 §9.1; 0.3 §3.2.1", Level.SHOULD, bindings=RPC)
def media_type(it: Case) -> None:
    """A body that is not declared as JSON is refused."""
    body = probe(it).body("get", {"id": NO_TASK})
    answer = probe(it).post(body, {"content-type": "text/plain"})
    refusal = probe(it).read(answer).refusal
    right = refusal and (refusal.code in (-32005, -32600, -32700) or 400 <= refusal.status < 500)
    need(right, f"answered {refusal or 'as if nothing were wrong'}")
