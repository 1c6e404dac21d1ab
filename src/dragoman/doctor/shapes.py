"""The structure of the objects of A2A as tables, one set for each form in which A2A is written.

A member `name*` is required; a string refers to another table, a list means an array of it. Nothing
is converted: the tables check the JSON as it was received.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

Rule = Callable[[Any], str]
"""A function that returns what is wrong with a value, or an empty text."""
Shape = dict[str, Any]


def _typed(kind: type | tuple[type, ...], word: str) -> Rule:
    def rule(value: Any) -> str:
        right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        return "" if right else f"is not {word}"

    return rule


def _filled(value: Any) -> str:
    return "" if isinstance(value, str) and value else "is not a non-empty string"


TEXT, BOOL, OBJECT = _typed(str, "a string"), _typed(bool, "a boolean"), _typed(dict, "an object")
FILLED: Rule = _filled
TEXTS = [TEXT]
_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


def _moment(pattern: re.Pattern[str], word: str) -> Rule:
    def rule(value: Any) -> str:
        return "" if isinstance(value, str) and pattern.fullmatch(value) else f"is not {word}"

    return rule


def _one_of(*words: str) -> Rule:
    def rule(value: Any) -> str:
        return "" if value in words else f"is {value!r}, not one of {', '.join(words)}"

    return rule


STATES = (
    *("submitted", "working", "input-required", "completed", "canceled", "failed", "rejected"),
    *("auth-required", "unknown"),
)


def _shouted(state: str) -> str:
    return "TASK_STATE_" + state.upper().replace("-", "_")


NEW_STATES = tuple(_shouted(state) for state in STATES if state != "unknown")
PROTO_STATES = tuple(state.replace("CANCELED", "CANCELLED") for state in NEW_STATES)
ROLES = _one_of("ROLE_USER", "ROLE_AGENT")


def _exactly_one(*members: str) -> Rule:
    def rule(value: Any) -> str:
        if not isinstance(value, dict):
            return "is not an object"
        held = [member for member in members if member in value]
        return "" if len(held) == 1 else f"holds {held or 'none'} of {', '.join(members)}"

    return rule


def _old_part(value: Any) -> str:
    if not isinstance(value, dict):
        return "is not an object"
    rules = {"text": TEXT, "file": _file, "data": OBJECT}
    kind = value.get("kind")
    if kind not in rules:
        return f"has kind {kind!r}"
    return rules[kind](value.get(kind)) and f"of kind {kind} has no right member {kind}"


def _oldest_part(value: Any) -> str:
    if not isinstance(value, dict):
        return "is not an object"
    return _old_part({**value, "kind": value.get("type")})


def _file(value: Any) -> str:
    right = isinstance(value, dict) and ("bytes" in value) != ("uri" in value)
    return "" if right else "is not a file"


class Form(Struct, frozen=True, kw_only=True):
    """A form of A2A in JSON."""

    shapes: dict[str, Shape]
    states: tuple[str, ...]
    wrapped: bool = True
    """Whether the name of a member gives the type of an answer, and not `kind`."""

    def problems(self, name: str, value: Any, path: str = "") -> Iterator[str]:
        """Yields every problem of a value that should have this structure."""
        path = path or name
        if not isinstance(value, dict):
            yield f"{path} is not an object"
            return
        for key, rule in self.shapes[name].items():
            member = key.rstrip("*")
            if key == "":
                if wrong := rule(value):
                    yield f"{path} {wrong}"
            elif member in value and value[member] is not None:
                yield from self._member(rule, value[member], f"{path}.{member}")
            elif key.endswith("*"):
                yield f"{path}.{member} is missing"

    def _member(self, rule: Any, value: Any, path: str) -> Iterator[str]:
        if isinstance(rule, str):
            yield from self.problems(rule, value, path)
        elif isinstance(rule, list):
            if not isinstance(value, list):
                yield f"{path} is not an array"
                return
            for number, item in enumerate(value):
                yield from self._member(rule[0], item, f"{path}[{number}]")
        elif wrong := rule(value):
            yield f"{path} {wrong}"

    def unwrap(self, result: Any) -> tuple[str, Any]:
        """Returns the type of an answer or event, and its content."""
        if not isinstance(result, dict):
            return "nothing", result
        if self.wrapped:
            held = [name for name in WRAPPERS if name in result]
            return (WRAPPERS[held[0]], result[held[0]]) if len(held) == 1 else ("nothing", result)
        kind = result.get("kind")
        return (KINDS[kind], result) if kind in KINDS else ("nothing", result)

    def final(self, state: Any) -> bool:
        """Returns whether this state is final."""
        return plain_state(state) in FINAL

    def resting(self, state: Any) -> bool:
        """Returns whether the task waits for its caller or has finished."""
        return plain_state(state) in FINAL | {"input-required", "auth-required"}

    def asks(self, state: Any) -> bool:
        """Returns whether the task waits for an answer of its caller."""
        return plain_state(state) == "input-required"


FINAL = frozenset({"completed", "canceled", "failed", "rejected"})
WRAPPERS = {
    "task": "Task",
    "message": "Message",
    "statusUpdate": "StatusUpdate",
    "artifactUpdate": "ArtifactUpdate",
}
KINDS = {
    "task": "Task",
    "message": "Message",
    "status-update": "StatusUpdate",
    "artifact-update": "ArtifactUpdate",
}


def plain_state(state: Any) -> str:
    """Returns a state of any form as 0.3 spells it."""
    word = str(state).removeprefix("TASK_STATE_").lower().replace("_", "-")
    return "canceled" if word == "cancelled" else word


def _shapes(state: Rule, role: Rule, part: Rule, moment: Rule, parts: str = "parts") -> Any:
    """Returns the tables that all forms share."""
    return {
        "Task": {
            **{"id*": FILLED, "contextId": TEXT, "status*": "Status", "artifacts": ["Artifact"]},
            **{"history": ["Message"], "metadata": OBJECT},
        },
        "Status": {"state*": state, "message": "Message", "timestamp": moment},
        "Message": {
            **{"messageId*": FILLED, "role*": role, f"{parts}*": [part], "contextId": TEXT},
            **{"taskId": TEXT, "metadata": OBJECT, "extensions": TEXTS, "referenceTaskIds": TEXTS},
        },
        "Artifact": {
            **{"artifactId*": FILLED, "parts*": [part], "name": TEXT, "description": TEXT},
            **{"metadata": OBJECT, "extensions": TEXTS},
        },
        "StatusUpdate": {
            **{"taskId*": FILLED, "contextId*": FILLED, "status*": "Status", "metadata": OBJECT}
        },
        "ArtifactUpdate": {
            **{"taskId*": FILLED, "contextId*": FILLED, "artifact*": "Artifact"},
            **{"append": BOOL, "lastChunk": BOOL, "metadata": OBJECT},
        },
    }


NEW = Form(
    shapes=_shapes(
        _one_of(*NEW_STATES),
        ROLES,
        _exactly_one("text", "raw", "url", "data"),
        _moment(_UTC, "a time in UTC with Z"),
    ),
    states=NEW_STATES,
)
"""The form of 1.0, in every binding."""

PROTO = Form(
    shapes=_shapes(
        _one_of(*PROTO_STATES),
        ROLES,
        _exactly_one("text", "file", "data"),
        _moment(_ISO, "an ISO 8601 time"),
        "content",
    ),
    states=PROTO_STATES,
)
"""The form of 0.3 over REST and gRPC."""


def _kinded(shapes: dict[str, Shape]) -> dict[str, Shape]:
    for kind, name in KINDS.items():
        shapes[name] = {"kind*": _one_of(kind), **shapes[name]}
    shapes["Task"]["contextId*"] = FILLED
    del shapes["Task"]["contextId"]
    shapes["StatusUpdate"]["final*"] = BOOL
    return shapes


OLD = Form(
    shapes=_kinded(
        _shapes(
            _one_of(*STATES),
            _one_of("user", "agent"),
            _old_part,
            _moment(_ISO, "an ISO 8601 time"),
        )
    ),
    states=STATES,
    wrapped=False,
)
"""The form of 0.3 over JSON-RPC."""


class _Oldest(Form, frozen=True, kw_only=True):
    """The form of 0.1, which has no discriminator: the members reveal the type."""

    def unwrap(self, result: Any) -> tuple[str, Any]:
        if not isinstance(result, dict):
            return "nothing", result
        if "artifact" in result:
            return "ArtifactUpdate", result
        if "final" in result:
            return "StatusUpdate", result
        return ("Task", result) if "status" in result else ("nothing", result)


OLDEST = _Oldest(
    shapes={
        "Task": {
            **{"id*": FILLED, "sessionId": TEXT, "status*": "Status", "artifacts": ["Artifact"]},
            **{"history": ["Message"], "metadata": OBJECT},
        },
        "Status": {
            **{"state*": _one_of(*(s for s in STATES if s not in ("rejected", "auth-required")))},
            **{"message": "Message", "timestamp": _moment(_ISO, "an ISO 8601 time")},
        },
        "Message": {"role*": _one_of("user", "agent"), "parts*": [_oldest_part]},
        "Artifact": {"parts*": [_oldest_part], "name": TEXT, "description": TEXT},
        "StatusUpdate": {"id*": FILLED, "status*": "Status", "final": BOOL},
        "ArtifactUpdate": {"id*": FILLED, "artifact*": "Artifact"},
    },
    states=STATES,
    wrapped=False,
)
"""The form of 0.1."""
