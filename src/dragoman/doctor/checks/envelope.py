"""JSON-RPC 2.0 itself, with whatever A2A adds to it."""

from __future__ import annotations

import json
from typing import Any

from ..check import EVERY, RPC, V1, Broken, Level, check, need
from ..expected_errors import NOT_FOUND, explained
from ..http import HttpAnswer
from ..probes import RpcProbe
from ..requests import RPC_METHODS
from ..subject import NO_TASK, Case


def probe(it: Case) -> RpcProbe:
    """These checks are for JSON-RPC only."""
    return it.through(RpcProbe)


def call(it: Case, **members: Any) -> HttpAnswer:
    """A request whose members may be anything; by default one that asks for a task nobody has."""
    method = RPC_METHODS[it.version]["get"]
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": NO_TASK}, **members}
    kept = {key: value for key, value in request.items() if value is not ...}
    return probe(it).post(json.dumps(kept).encode())


def code(it: Case, answer: HttpAnswer, *codes: int) -> None:
    """Objects unless this error came."""
    refusal = probe(it).read(answer).refusal
    wanted = " or ".join(map(str, codes))
    if refusal is None:
        raise Broken(f"accepted; expected {wanted}")
    need(refusal.code in codes, f"answered {refusal}, not {wanted}")


@check(
    "rpc.id-string",
    "A string id comes back as it was.",
    "1.0 §9.1; 0.3 §6.11.2",
    bindings=RPC,
    versions=EVERY,
)
def id_string(it: Case) -> None:
    value = call(it, id="a-1/é").json()
    need(value.get("id") == "a-1/é", f"the id came back as {value.get('id')!r}")


@check(
    "rpc.id-number",
    "A number as id comes back as a number.",
    "1.0 §9.1; 0.3 §6.11.2",
    bindings=RPC,
    versions=EVERY,
)
def id_number(it: Case) -> None:
    value = call(it, id=41).json()
    right = value.get("id") == 41 and isinstance(value.get("id"), int)
    need(right, f"the id came back as {value.get('id')!r}")


@check(
    "rpc.id-large",
    "An id of nine digits and more keeps them all.",
    "1.0 §9.1; 0.3 §6.11.2",
    bindings=RPC,
    versions=EVERY,
)
def id_large(it: Case) -> None:
    value = call(it, id=9007199254740991).json()
    need(value.get("id") == 9007199254740991, f"the id came back as {value.get('id')!r}")


@check(
    "rpc.envelope",
    'Every answer says jsonrpc "2.0" and holds either result or error.',
    "1.0 §9.1; 0.3 §6.11.2",
    bindings=RPC,
    versions=EVERY,
)
def envelope(it: Case) -> None:
    for answer in (it.sent.answer, call(it)):
        if answer is None:
            continue
        value = answer.json()
        need(isinstance(value, dict), "the answer is not an object")
        need(value.get("jsonrpc") == "2.0", f"jsonrpc is {value.get('jsonrpc')!r}")
        need(("result" in value) != ("error" in value), f"it holds {sorted(value)}")


@check(
    "rpc.type",
    "Answers are application/json.",
    "1.0 §9.1; 0.3 §3.2.1",
    bindings=RPC,
    versions=EVERY,
)
def content_type(it: Case) -> None:
    answer = call(it)
    need(answer.type == "application/json", f"it is {answer.type or 'nothing'}")


@check(
    "rpc.status",
    "An error of a call is told in the body, with HTTP 200.",
    "1.0 §9.5; 0.3 §8",
    Level.SHOULD,
    bindings=RPC,
    versions=EVERY,
)
def status(it: Case) -> None:
    answer = call(it)
    need(answer.status == 200, f"the status is {answer.status}")


@check(
    "rpc.error",
    "An error has an integer code and a message.",
    "1.0 §9.5; 0.3 §6.12",
    bindings=RPC,
    versions=EVERY,
)
def error(it: Case) -> None:
    value = call(it).json().get("error")
    need(isinstance(value, dict), f"error is {value!r}")
    need(isinstance(value.get("code"), int), f"code is {value.get('code')!r}")
    need(isinstance(value.get("message"), str), f"message is {value.get('message')!r}")


@check(
    "rpc.error-info",
    "An error of A2A carries an ErrorInfo with its reason and a2a-protocol.org.",
    "1.0 §9.5",
    Level.SHOULD,
    bindings=RPC,
    versions=V1,
)
def error_info(it: Case) -> None:
    explained(it.ask("get", id=NO_TASK).refusal, NOT_FOUND)


@check(
    "rpc.no-method",
    "An unknown method is -32601.",
    "1.0 §9.5; 0.3 §8.1",
    bindings=RPC,
    versions=EVERY,
)
def no_method(it: Case) -> None:
    code(it, call(it, method="doctor/noSuchMethod"), -32601)


@check(
    "rpc.parse-error",
    "What is not JSON is -32700.",
    "1.0 §9.5; 0.3 §8.1",
    bindings=RPC,
    versions=EVERY,
)
def parse_error(it: Case) -> None:
    code(it, probe(it).post(b'{"jsonrpc": "2.0", "id": 1, "method": '), -32700)


@check(
    "rpc.null-id",
    "When the id cannot be read, the answer's id is null.",
    "1.0 §9.1; 0.3 §6.11.2",
    bindings=RPC,
    versions=EVERY,
)
def null_id(it: Case) -> None:
    value = probe(it).post(b"{").json()
    need("id" in value and value["id"] is None, f"the id is {value.get('id', 'missing')!r}")


@check(
    "rpc.without-method",
    "A request without a method is -32600.",
    "1.0 §9.5; 0.3 §8.1",
    bindings=RPC,
    versions=EVERY,
)
def without_method(it: Case) -> None:
    code(it, call(it, method=...), -32600)


@check(
    "rpc.wrong-version",
    'A request whose jsonrpc is not "2.0" is -32600.',
    "1.0 §9.5; 0.3 §8.1",
    bindings=RPC,
    versions=EVERY,
)
def wrong_version(it: Case) -> None:
    code(it, call(it, jsonrpc="1.0"), -32600)


@check(
    "rpc.not-a-request",
    "JSON that is no object is -32600.",
    "1.0 §9.5; 0.3 §8.1",
    bindings=RPC,
    versions=EVERY,
)
def not_a_request(it: Case) -> None:
    code(it, probe(it).post(b'"hello"'), -32600)


@check(
    "rpc.odd-id",
    "An id that is an object is -32600.",
    "1.0 §9.1; 0.3 §6.11.1",
    Level.SHOULD,
    bindings=RPC,
    versions=EVERY,
)
def odd_id(it: Case) -> None:
    code(it, call(it, id={"a": 1}), -32600)


@check(
    "rpc.params",
    "Params of the wrong type are -32602.",
    "1.0 §9.5; 0.3 §8.1",
    bindings=RPC,
    versions=EVERY,
)
def params(it: Case) -> None:
    code(it, call(it, params={"id": {"not": "a string"}}), -32602)


@check(
    "rpc.params-array",
    "Params that are no object are refused (-32602 or -32600).",
    "1.0 §9.1; 0.3 §6.11.1",
    Level.SHOULD,
    bindings=RPC,
    versions=EVERY,
)
def params_array(it: Case) -> None:
    code(it, call(it, params=["x"]), -32602, -32600)


@check(
    "rpc.batch",
    "A batch is refused with -32600 or answered as JSON-RPC says; never half.",
    "1.0 §9.1; JSON-RPC §6",
    Level.SHOULD,
    bindings=RPC,
    versions=EVERY,
)
def batch(it: Case) -> None:
    method = RPC_METHODS[it.version]["get"]
    one = {"jsonrpc": "2.0", "method": method, "params": {"id": NO_TASK}}
    answer = probe(it).post(json.dumps([{**one, "id": 1}, {**one, "id": 2}]).encode())
    value = answer.json()
    if isinstance(value, list):
        need(sorted(r.get("id", 0) for r in value) == [1, 2], "the answers are not those asked for")
    else:
        code(it, answer, -32600)


@check(
    "rpc.notification",
    "A request without id gets no result: nothing, or an error under the id null.",
    "JSON-RPC §4.1; 0.3 §6.11.1",
    Level.SHOULD,
    bindings=RPC,
    versions=EVERY,
)
def notification(it: Case) -> None:
    answer = call(it, id=...)
    if answer.status < 500 and not answer.body:
        return
    # It asks for a task that nobody has: what failed may be told, or that the id is missing.
    code(it, answer, -32001, -32600, -32602)
    need(answer.json().get("id") is None, "the error has an id that nobody gave")


@check(
    "rpc.media-type",
    "A body that is not declared as JSON is refused.",
    "1.0 §9.1; 0.3 §3.2.1",
    Level.SHOULD,
    bindings=RPC,
)
def media_type(it: Case) -> None:
    body = probe(it).body("get", {"id": NO_TASK})
    answer = probe(it).post(body, {"content-type": "text/plain"})
    refusal = probe(it).read(answer).refusal
    right = refusal and (refusal.code in (-32005, -32600, -32700) or 400 <= refusal.status < 500)
    need(right, f"answered {refusal or 'as if nothing were wrong'}")
