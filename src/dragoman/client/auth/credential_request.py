"""Credentials that a running task asks for: what to ask the person, and how to answer.

Our own agents describe what they need in a data part (`turn.need_auth`). Others only move the task
to auth-required with a text (A2A 1.0 §7.6); the person is then asked for one secret with that text.
Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dragoman.core.events import Ask, Snapshot, Stamped
from dragoman.core.model import AnyPart, Data, Json, Task, Text
from dragoman.core.questions import question_at, question_of

from .origins import printable

MOST_FIELDS = 10


class Field(Struct, frozen=True):
    """A value that the person types in."""

    name: str
    label: str
    secret: bool = True
    """Whether the value must not be shown while it is typed."""


class CredentialRequest(Struct, frozen=True, kw_only=True):
    """The credentials that a task asks the person for."""

    task_id: str
    question: str = ""
    """The name of the question for `Resolve`, if the agent gives it one."""
    prompt: str
    fields: tuple[Field, ...]
    schemes: Json = None
    """The schemes as the agent described them."""

    def answer(self, values: Mapping[str, str]) -> tuple[AnyPart, ...]:
        """Returns the parts of the answering message. A single secret is sent as text, where agents
        that do not know our data part look for it."""
        given = {field.name: values.get(field.name, "") for field in self.fields}
        if len(given) == 1:
            return (Text(next(iter(given.values()))),)
        return (Data(given),)


def wanted(told: Stamped | Task) -> CredentialRequest | None:
    """Returns what to ask the person, or None if the task does not wait for credentials."""
    task_id = told.id if isinstance(told, Task) else _task_id(told)
    found = question_of(told) if isinstance(told, Task) else question_at(told)
    if found is None or found.kind is not Ask.CREDENTIALS:
        return None
    schemes = found.details.get("schemes") if isinstance(found.details, dict) else None
    return CredentialRequest(
        task_id=task_id,
        question=found.name,
        prompt=printable(found.prompt, 1000) or "The agent needs credentials to go on.",
        fields=_fields(schemes),
        schemes=schemes,
    )


def _task_id(entry: Stamped) -> str:
    return entry.event.task.id if isinstance(entry.event, Snapshot) else entry.task_id


_BASIC = (Field("user", "User name", False), Field("password", "Password"))
_BY_WORD: dict[str, tuple[Field, ...]] = {
    "basic": _BASIC,
    "bearer": (Field("token", "Token"),),
    "apikey": (Field("key", "API key"),),
    "oauth2": (Field("token", "Access token"),),
    "openidconnect": (Field("token", "Access token"),),
}
_ANY = (Field("credentials", "Credentials"),)


def _fields(schemes: Json) -> tuple[Field, ...]:
    """Returns the fields of the first scheme that we know, out of a list or table of names or
    descriptions."""
    named: list[tuple[str, Json]] = []
    if isinstance(schemes, str):
        named = [(schemes, schemes)]
    elif isinstance(schemes, list):
        named = [(str(each), each) for each in schemes]
    elif isinstance(schemes, dict):
        named = [("", schemes)] if "type" in schemes else list(schemes.items())
    for name, about in named[:MOST_FIELDS]:
        found = _BY_WORD.get(_word(name, about))
        if found is not None:
            return found
    if len(named) == 1 and isinstance(named[0][1], str):
        return (Field("credentials", printable(named[0][0], 60)),)
    return _ANY


def _word(name: str, about: Json) -> str:
    if isinstance(about, dict):
        kind = str(about.get("type", ""))
        said = str(about.get("scheme", "")) if kind.lower() == "http" else kind
    else:
        said = about if isinstance(about, str) else name
    return "".join(c for c in said.lower() if c.isalnum())
