"""Golden conversations: files that say what a session hears, what it makes of it, and what it says.

A file is `{"about", "dialect", "side", "steps"}`. A step is `{"hears": frame, "as": [signals]}` or
`{"says": signal, "as": [frames]}`; all steps of a file go through one session. In signals a Struct
is written `{"ClassName": {members that are not default}}`, an error `{"ErrorName": {"message", and
its public details}}`, bytes `{"base64": "..."}`; `"says": "that"` says what was heard last, as a
driver does with a fault. A frame's body is JSON; `"text"` is for bodies that
are not. Headers that every request of a dialect has are left out. Where the target says what is
asked (REST), a frame has it: "GET /tasks/t1".
"""

from __future__ import annotations

import base64
import json
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.core import card, errors, events, model, operations, session
from dragoman.core.errors import DragomanError
from dragoman.core.session import Frame, Session, Signal
from dragoman.dialects import DIALECTS

HERE = Path(__file__).parent
USUAL = {"content-type": "application/json"}
_STRUCTS: dict[str, type[Struct]] = {
    name: value
    for module in (model, events, operations, card, session)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Struct)
}
_ERRORS: dict[str, type[DragomanError]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, DragomanError)
}


def error_in(told: dict[str, Any]) -> dict[str, Any]:
    """The error in a body: what JSON-RPC and REST have at the top, IAT has in its payload, and its
    flat form as plain words."""
    within: dict[str, Any] = told.get("payload", told)
    found: dict[str, Any] | str = within.get("error", within)
    return {**within, "message": found} if isinstance(found, str) else found


def files() -> list[Path]:
    """Every golden file of every dialect."""
    return sorted(HERE.glob("*/golden/*.json"))


def plain(value: Any) -> Any:
    """A canonical value as golden files write it."""
    match value:
        case Struct():
            members = {}
            for field in msgspec.structs.fields(value):
                found = getattr(value, field.name)
                made = field.default_factory
                default = field.default if made is msgspec.NODEFAULT else made()
                if field.required or found != default:
                    members[field.name] = plain(found)
            if isinstance(value, Frame):
                members.pop("headers", None)
            return {type(value).__name__: members}
        case DragomanError():
            code = {"code": value.code} if isinstance(value, errors.PeerRefused) else {}
            return {type(value).__name__: {"message": value.message, **code, **value.public}}
        case Enum():
            return value.value
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case tuple() | list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case _:
            return value


def built(value: Any, hint: Any = None) -> Any:
    """The canonical value a golden file writes."""
    match value:
        case {"base64": str(text)}:
            return base64.b64decode(text)
        case dict() if len(value) == 1:
            ((name, members),) = value.items()
            if name in _ERRORS:
                return _ERRORS[name](**members)
            if name in _STRUCTS:
                hints = typing.get_type_hints(_STRUCTS[name])
                return _STRUCTS[name](**{k: built(v, hints[k]) for k, v in members.items()})
            return value
        case list() if hint is not None:
            return tuple(built(item) for item in value)
        case str():
            enums = [hint, *typing.get_args(hint)]
            kinds = [e for e in enums if isinstance(e, type) and issubclass(e, Enum)]
            return kinds[0](value) if kinds else value
        case _:
            return value


def frame_in(said: dict[str, Any], headers: dict[str, str]) -> Frame:
    """The frame a golden file lets a session hear."""
    body = said["text"].encode("utf-8", "surrogateescape") if "text" in said else None
    if body is None:
        body = json.dumps(said["body"]).encode() if "body" in said else b""
    return Frame(
        body,
        said.get("target", ""),
        headers=headers | said.get("headers", {}),
        status=said.get("status"),
        mark=said.get("mark", ""),
    )


def frame_out(frame: Frame) -> dict[str, Any]:
    """A frame as golden files write it."""
    said: dict[str, Any] = {"body": msgspec.json.decode(frame.body)} if frame.body else {}
    members = {"target": frame.target, "status": frame.status, "mark": frame.mark}
    members["name"] = frame.name
    headers = {key: value for key, value in frame.headers.items() if USUAL.get(key) != value}
    return (
        said | {k: v for k, v in members.items() if v} | ({"headers": headers} if headers else {})
    )


def played(golden: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """What each step gives, beside what it should give."""
    dialect = DIALECTS[golden["dialect"]]
    side: Session = dialect.callee() if golden["side"] == "callee" else dialect.caller()
    heard: list[Signal] = []
    for step in golden["steps"]:
        if "hears" in step:
            heard = list(side.receive(frame_in(step["hears"], USUAL)))
            yield [plain(signal) for signal in heard], step["as"]
        else:
            said = heard[-1] if step["says"] == "that" else built(step["says"])
            yield [frame_out(frame) for frame in side.send(said)], step["as"]
