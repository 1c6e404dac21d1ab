"""What only REST has: routes, statuses, bodies and details of errors."""

from __future__ import annotations

import json

from ..check import REST, V1, Broken, Level, check, need
from ..expected_errors import NOT_FOUND, explained
from ..probes import RestProbe
from ..requests import rest_request
from ..subject import NO_TASK, Case

JSON_TYPES = ("application/json", "application/a2a+json")


def probe(it: Case) -> RestProbe:
    """These checks are for REST only."""
    return it.through(RestProbe)


def prefix(it: Case) -> str:
    """Where the routes begin."""
    return "" if it.version == "1.0" else "/v1"


@check(
    "rest.type", "Answers are JSON by their content type.", "1.0 §11.2; 0.3 §3.2.3", bindings=REST
)
def content_type(it: Case) -> None:
    answer = it.sent.answer
    need(answer and answer.type in JSON_TYPES, f"it is {answer and answer.type}")


@check("rest.route", "An unknown path is 404.", "1.0 §11.3; 0.3 §3.5.3", bindings=REST)
def route(it: Case) -> None:
    answer = probe(it).call("GET", f"{prefix(it)}/tasks/{NO_TASK}/no/such/path")
    need(answer.status == 404, f"the status is {answer.status}")


@check(
    "rest.verb",
    "A known path with the wrong verb is 405 (or 404).",
    "1.0 §11.3; 0.3 §3.5.3",
    Level.SHOULD,
    bindings=REST,
)
def verb(it: Case) -> None:
    answer = probe(it).call("PUT", f"{prefix(it)}/message:send", b"{}")
    need(answer.status in (404, 405, 501), f"the status is {answer.status}")


@check("rest.parse-error", "A body that is not JSON is 400.", "1.0 §11.6; 0.3 §8.1", bindings=REST)
def parse_error(it: Case) -> None:
    answer = probe(it).call("POST", f"{prefix(it)}/message:send", b'{"message": ')
    wanted = (400,) if it.version == "1.0" else (400, 422)
    need(answer.status in wanted, f"the status is {answer.status}")


@check(
    "rest.error-body",
    "An error is {error: {code, status, message, details}}, its code the HTTP status.",
    "1.0 §11.6",
    bindings=REST,
    versions=V1,
)
def error_body(it: Case) -> None:
    answer = probe(it).call("GET", f"/tasks/{NO_TASK}")
    value = answer.json()
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        raise Broken(f"error is {error!r}")
    need(error.get("code") == answer.status, f"code is {error.get('code')!r}")
    need(error.get("status") == "NOT_FOUND", f"status is {error.get('status')!r}")
    need(isinstance(error.get("message"), str), "message is missing")


@check(
    "rest.error-info",
    "An error of A2A carries an ErrorInfo with its reason and a2a-protocol.org.",
    "1.0 §11.6",
    bindings=REST,
    versions=V1,
)
def error_info(it: Case) -> None:
    explained(it.ask("get", id=NO_TASK).refusal, NOT_FOUND)


@check(
    "rest.error-json",
    "An error is told in JSON with a message.",
    "0.3 §8; 1.0 §11.6",
    Level.SHOULD,
    bindings=REST,
)
def error_json(it: Case) -> None:
    reply = it.ask("get", id=NO_TASK)
    answer = reply.answer
    need(answer and "json" in answer.type, f"it is {answer and answer.type}")
    need(reply.refusal and reply.refusal.message, "it has no message")


@check(
    "rest.a2a-json",
    "A body of type application/a2a+json is accepted.",
    "1.0.1 §11.2",
    Level.SHOULD,
    bindings=REST,
    versions=V1,
)
def a2a_json(it: Case) -> None:
    it.accepted(it.send(headers={"content-type": "application/a2a+json"}))


@check(
    "rest.media-type",
    "A body that is not declared as JSON is refused with 4xx.",
    "1.0 §11.2; 0.3 §3.2.3",
    Level.SHOULD,
    bindings=REST,
)
def media_type(it: Case) -> None:
    verb, path, body = rest_request(it.version, "send", {"message": it.message()})
    answer = probe(it).call(verb, path, json.dumps(body).encode(), {"content-type": "text/plain"})
    need(400 <= answer.status < 500, f"the status is {answer.status}")


@check(
    "rest.empty-body",
    "A cancel with an empty body is as good as one with {}.",
    "1.0 §11.3; 0.3 §3.5.3",
    Level.SHOULD,
    bindings=REST,
)
def empty_body(it: Case) -> None:
    answer = probe(it).call("POST", f"{prefix(it)}/tasks/{NO_TASK}:cancel")
    need(answer.status == 404, f"the status is {answer.status}, not 404 for an unknown task")


@check(
    "rest.query",
    "A query member that nobody knows is ignored.",
    "1.0 §11.5; 0.3 §3.5.3",
    Level.SHOULD,
    bindings=REST,
)
def query(it: Case) -> None:
    answer = probe(it).call("GET", f"{prefix(it)}/tasks/{it.done['id']}?doctorAsks=1")
    need(answer.status == 200, f"the status is {answer.status}")
