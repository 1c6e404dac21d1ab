"""Who is calling: the one door every request passes before its body is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..errors import BadParams
from ..peer import ANYONE, Context

Admit = Callable[[Mapping[str, str], str, str], Context]
"""`admit(headers, target, certificate)`: the caller's context, or `Unauthenticated`."""

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_TELLING = frozenset(
    ("last-event-id", "idempotency-key", "traceparent", "a2a-extensions", "x-a2a-extensions")
)
MOST_KEY_CHARS = 255
MOST_CURSOR_DIGITS = 18
"""Cursors are 64-bit numbers; int() of a longer string would also be a cheap way to burn CPU."""


def anyone(headers: Mapping[str, str], target: str, certificate: str) -> Context:
    """Without authentication everybody is `anonymous` of tenant ``; the headers still count.

    Raises `BadParams` for a cursor or key that cannot be one.
    """
    if _TELLING.isdisjoint(headers):
        return ANYONE
    return Context(
        extensions=extensions_in(headers),
        cursor=cursor_in(headers.get("last-event-id")),
        idempotency_key=_key_in(headers.get("idempotency-key", "")),
        trace=trace_in(headers.get("traceparent", "")),
    )


def extensions_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The extensions the caller activates, under either name of the header, in order, once each."""
    listed = f"{headers.get('a2a-extensions', '')},{headers.get('x-a2a-extensions', '')}"
    return tuple(dict.fromkeys(filter(None, map(str.strip, listed.split(",")))))


def cursor_in(value: str | None) -> int | None:
    """The seq of the last event the caller has, if it says so."""
    if value is None:
        return None
    value = value.strip()
    if not (value.isascii() and value.isdigit() and len(value) <= MOST_CURSOR_DIGITS):
        raise BadParams("Last-Event-ID must be the id of an event of this stream.")
    return int(value)


def trace_in(value: str) -> str:
    """The W3C traceparent if it is a valid one; an invalid one counts as none (W3C §3.2.2)."""
    return value if _TRACEPARENT.fullmatch(value) else ""


def _key_in(value: str) -> str:
    if len(value) > MOST_KEY_CHARS:
        raise BadParams(f"Idempotency-Key is longer than {MOST_KEY_CHARS} characters.")
    return value
