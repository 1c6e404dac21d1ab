"""A check has an id, a statement, the section of the specification and a small function.

The function returns if the statement is true. It raises `Broken` with what is wrong, or
`Unknowable` with the reason why it cannot decide. A new check is a decorated function whose
docstring is the statement; the table, the documentation and the test that every check can fail
include it automatically.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct

ALL = frozenset({"jsonrpc", "rest", "grpc"})
HTTP = frozenset({"jsonrpc", "rest"})
RPC = frozenset({"jsonrpc"})
REST = frozenset({"rest"})
GRPC = frozenset({"grpc"})
V1 = frozenset({"1.0"})
V0_3 = frozenset({"0.3"})
SINCE_0_3 = frozenset({"0.3", "1.0"})
EVERY = frozenset({"0.1", "0.3", "1.0"})


class Level(StrEnum):
    """The requirement level of RFC 2119 that the specification uses."""

    MUST = "must"
    SHOULD = "should"
    MAY = "may"


class Broken(Exception):
    """The agent does not do what the statement says."""


class Unknowable(Exception):
    """The check cannot be decided for this agent; the text says why."""


class Check(Struct, frozen=True, kw_only=True):
    """A statement that is true of a conforming agent, and the function that checks it."""

    id: str
    level: Level
    says: str
    spec: str
    """The sections of the specification: `1.0 §3.1.1; 0.3 §7.1`."""
    run: Callable[[Any], None]
    bindings: frozenset[str] = ALL
    versions: frozenset[str] = SINCE_0_3
    once: bool = False
    """Whether it is about the card or the whole agent, and not about one interface."""

    @property
    def group(self) -> str:
        """Returns the first word of its id."""
        return self.id.partition(".")[0]


CHECKS: dict[str, Check] = {}
"""All checks by id."""
GROUPS = {
    "card": "the agent card",
    "rpc": "JSON-RPC itself",
    "rest": "REST itself",
    "grpc": "gRPC itself",
    "auth": "credentials",
    "send": "sending a message",
    "ask": "questions and answers",
    "get": "reading a task",
    "cancel": "cancelling a task",
    "list": "listing tasks",
    "stream": "streams",
    "subscribe": "coming back to a stream",
    "push": "webhooks",
    "version": "versions",
    "extensions": "extensions",
    "extended": "the extended card",
    "across": "all interfaces together",
    "input": "bad input",
}
"""The meaning of the first word of an id, in the order in which the checks are run."""


def in_order() -> list[Check]:
    """Returns all checks in the order in which they are run."""
    order = {group: place for place, group in enumerate(GROUPS)}
    return sorted(CHECKS.values(), key=lambda check: order[check.group])


Body = Callable[[Any], None]


def check(
    id: str,
    spec: str,
    level: Level = Level.MUST,
    *,
    says: str = "",
    bindings: frozenset[str] = ALL,
    versions: frozenset[str] = SINCE_0_3,
    once: bool = False,
) -> Callable[[Body], Body]:
    """Registers a function as a check. Its docstring is the statement, unless `says` is given."""

    def add(run: Body) -> Body:
        if id in CHECKS or id.partition(".")[0] not in GROUPS:
            raise ValueError(f"{id} is already used, or belongs to no group")
        CHECKS[id] = Check(
            id=id,
            level=level,
            says=says or " ".join((run.__doc__ or "").split()),
            spec=spec,
            run=run,
            bindings=bindings,
            versions=versions,
            once=once,
        )
        return run

    return add


def need(condition: object, problem: str) -> None:
    """Raises `Broken` unless the condition holds."""
    if not condition:
        raise Broken(problem)


def given(condition: object, reason: str) -> None:
    """Raises `Unknowable` unless the condition holds."""
    if not condition:
        raise Unknowable(reason)
