"""Checks that the agent answers bad input clearly and keeps working."""

from __future__ import annotations

import json
from contextlib import suppress

from ..check import HTTP, Level, check, need
from ..expected_errors import BAD_PARAMS, NOT_FOUND
from ..http import HttpAnswer, NoAnswer
from ..probes import RestProbe, RpcProbe
from ..requests import rest_request
from ..subject import NO_TASK, Case

DEEP = 20_000
HUGE = 24 * 1024 * 1024


def post(it: Case, insert: bytes, marker: str = "DOCTOR-PUTS-IT-HERE") -> HttpAnswer:
    """Sends an ordinary message in which one string is replaced by anything."""
    args = {"message": it.message(metadata={"doctor": marker})}
    if isinstance(it.probe, RpcProbe):
        return it.probe.post(it.probe.body("send", args).replace(f'"{marker}"'.encode(), insert))
    verb, path, body = rest_request(it.version, "send", args)
    raw = json.dumps(body).encode().replace(f'"{marker}"'.encode(), insert)
    return it.through(RestProbe).call(verb, path, raw)


def clear(answer: HttpAnswer) -> None:
    """Raises `Broken` for a server error or an unreadable answer."""
    need(answer.status < 500, f"the status is {answer.status}")
    if answer.body and answer.status < 300:
        answer.json()


def alive(it: Case) -> None:
    """Raises `Broken` unless the next request works."""
    it.refused(it.ask("get", id=NO_TASK), NOT_FOUND)


def refused(answer: HttpAnswer) -> None:
    """Raises `Broken` if the request was accepted."""
    value = answer.json() if answer.body and answer.status < 300 else {}
    taken = answer.status < 300 and not (isinstance(value, dict) and "error" in value)
    need(not taken, "it was taken as if nothing were wrong")


@check("input.deep", "1.0 §13; 0.3 §10.2", Level.SHOULD, bindings=HTTP)
def deep(it: Case) -> None:
    """Deeply nested JSON does no harm."""
    clear(post(it, b"[" * DEEP + b"]" * DEEP))
    alive(it)


@check("input.huge", "1.0 §13; 0.3 §10.2", Level.SHOULD, bindings=HTTP)
def huge(it: Case) -> None:
    """A body of 24 MiB does no harm."""
    # A server may close the connection while we still write (RFC 9110 §15.5.14).
    with suppress(NoAnswer):
        clear(post(it, b" " * HUGE + b'"x"'))  # blanks leave the agent nothing to store
    alive(it)


@check("input.nan", "1.0 §9.5; 0.3 §8.1", Level.SHOULD, bindings=HTTP)
def nan(it: Case) -> None:
    """NaN is not JSON."""
    answer = post(it, b"NaN")
    clear(answer)
    refused(answer)
    alive(it)


@check("input.utf8", "1.0 §9.1; 0.3 §3.2.1", bindings=HTTP)
def utf8(it: Case) -> None:
    """Bytes that are not UTF-8 are refused."""
    answer = post(it, b'"\xff\xfe"')
    clear(answer)
    refused(answer)
    alive(it)


@check("input.surrogate", "1.0 §9.1; 0.3 §3.2.1", Level.SHOULD, bindings=HTTP)
def surrogate(it: Case) -> None:
    """A lone surrogate is never returned as broken JSON."""
    clear(post(it, b'"\\ud800"'))
    alive(it)


@check("input.number", "1.0 §13; 0.3 §10.2", Level.SHOULD, bindings=HTTP)
def number(it: Case) -> None:
    """An extremely large number does no harm."""
    clear(post(it, b"1" + b"0" * 5000))
    alive(it)


@check("input.empty", "1.0 §9.5; 0.3 §8.1", bindings=HTTP)
def empty(it: Case) -> None:
    """An empty body is refused."""
    if isinstance(it.probe, RpcProbe):
        answer = it.probe.post(b"")
    else:
        answer = it.through(RestProbe).call(*rest_request(it.version, "send", {})[:2])
    clear(answer)
    refused(answer)
    alive(it)


@check("input.id", "1.0 §3.1.3; 0.3 §7.3")
def odd_id(it: Case) -> None:
    """An id with unusual characters is an unknown id."""
    # Over gRPC 0.3 an id is part of a resource's name, which such an id breaks.
    named = (it.binding, it.version) == ("grpc", "0.3")
    kinds = (NOT_FOUND, BAD_PARAMS) if named else (NOT_FOUND,)
    it.refused(it.ask("get", id="../%2e%2e/'\";--é 1"), *kinds)


@check("input.long-id", "1.0 §3.1.3; 0.3 §7.3", Level.SHOULD)
def long_id(it: Case) -> None:
    """An id of 4,000 characters is an unknown id."""
    reply = it.ask("get", id="x" * 4000)
    need(reply.refusal is not None, "it was found")
    status = reply.refusal.status if reply.refusal else 0
    need(status < 500, f"the status is {status}")
    alive(it)


@check("input.text", "1.0 §3.1.1; 0.3 §7.1")
def long_text(it: Case) -> None:
    """A text of 200 KB is accepted or refused, but answered."""
    reply = it.send(it.agent.text + " " * 200_000)
    status = reply.refusal.status if reply.refusal else 0
    need(status < 500, f"the status is {status}")
    alive(it)
