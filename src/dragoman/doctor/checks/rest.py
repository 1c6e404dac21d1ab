"""Checks that apply to REST only: routes, statuses, bodies and details of errors."""

from __future__ import annotations

import json
from functools import partial

from ..check import REST, V1, Body, Broken, Level, check, need
from ..probes import RestProbe
from ..requests import rest_request
from ..subject import NO_TASK, Case

JSON_TYPES = ("application/json", "application/a2a+json")


def probe(it: Case) -> RestProbe:
    """Returns the probe: these checks are for REST only."""
    return it.through(RestProbe)


def prefix(it: Case) -> str:
    """Returns the prefix of the routes."""
    return "" if it.version == "1.0" else "/v1"


def answers(*statuses: int, verb: str, path: str, body: bytes = b"") -> Body:
    """Calls a path whose response must have one of these statuses."""

    def run(it: Case) -> None:
        found = probe(it).call(verb, f"{prefix(it)}{path}", body).status
        need(found in statuses, f"the status is {found}")

    return run


rest = partial(check, bindings=REST)
ROUTES = "1.0 §11.3; 0.3 §3.5.3"

rest("rest.route", ROUTES, says="An unknown path is 404.")(
    answers(404, verb="GET", path=f"/tasks/{NO_TASK}/no/such/path")
)
rest("rest.verb", ROUTES, Level.SHOULD, says="A known path with the wrong verb is 405 (or 404).")(
    answers(404, 405, 501, verb="PUT", path="/message:send", body=b"{}")
)
rest(
    "rest.empty-body",
    ROUTES,
    Level.SHOULD,
    says="A cancel with an empty body is as good as one with {}.",
)(answers(404, verb="POST", path=f"/tasks/{NO_TASK}:cancel"))


@rest("rest.parse-error", "1.0 §11.6; 0.3 §8.1")
def parse_error(it: Case) -> None:
    """A body that is not JSON is 400."""
    wanted = (400,) if it.version == "1.0" else (400, 422)
    answers(*wanted, verb="POST", path="/message:send", body=b'{"message": ')(it)


@rest("rest.type", "1.0 §11.2; 0.3 §3.2.3")
def content_type(it: Case) -> None:
    """Answers are JSON by their content type."""
    answer = it.sent.answer
    need(answer and answer.type in JSON_TYPES, f"it is {answer and answer.type}")


@rest("rest.error-body", "1.0 §11.6", versions=V1)
def error_body(it: Case) -> None:
    """An error is {error: {code, status, message, details}}, its code the HTTP status."""
    answer = probe(it).call("GET", f"/tasks/{NO_TASK}")
    value = answer.json()
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        raise Broken(f"error is {error!r}")
    need(error.get("code") == answer.status, f"code is {error.get('code')!r}")
    need(error.get("status") == "NOT_FOUND", f"status is {error.get('status')!r}")
    need(isinstance(error.get("message"), str), "message is missing")


@rest("rest.error-json", "0.3 §8; 1.0 §11.6", Level.SHOULD)
def error_json(it: Case) -> None:
    """An error is JSON with a message."""
    reply = it.ask("get", id=NO_TASK)
    answer = reply.answer
    need(answer and "json" in answer.type, f"it is {answer and answer.type}")
    need(reply.refusal and reply.refusal.message, "it has no message")


@rest("rest.a2a-json", "1.0.1 §11.2", Level.SHOULD, versions=V1)
def a2a_json(it: Case) -> None:
    """A body of type application/a2a+json is accepted."""
    it.accepted(it.send(headers={"content-type": "application/a2a+json"}))


@rest("rest.media-type", "1.0 §11.2; 0.3 §3.2.3", Level.SHOULD)
def media_type(it: Case) -> None:
    """A body that is not declared as JSON is refused with 4xx."""
    verb, path, body = rest_request(it.version, "send", {"message": it.message()})
    answer = probe(it).call(verb, path, json.dumps(body).encode(), {"content-type": "text/plain"})
    need(400 <= answer.status < 500, f"the status is {answer.status}")


@rest("rest.query", "1.0 §11.5; 0.3 §3.5.3", Level.SHOULD)
def query(it: Case) -> None:
    """An unknown query parameter is ignored."""
    answer = probe(it).call("GET", f"{prefix(it)}/tasks/{it.done['id']}?doctorAsks=1")
    need(answer.status == 200, f"the status is {answer.status}")
