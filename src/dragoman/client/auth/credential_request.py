"""Credentials that a task asks for in its middle: what to ask the person, and how to answer.

Our own agents say in data what they need (`turn.need_auth`); others only go to auth-required with
words (A2A 1.0 §7.6), and then there is one thing to ask, as they put it. Nothing here is kept.
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
    """One thing to type in."""

    name: str
    label: str
    secret: bool = True
    """Whether it must not be seen while it is typed."""


class CredentialRequest(Struct, frozen=True, kw_only=True):
    """What a task wants from the person before it goes on."""

    task_id: str
    question: str = ""
    """Its name, if the agent gives it one: for `Resolve`."""
    prompt: str
    fields: tuple[Field, ...]
    schemes: Json = None
    """As the agent told them."""

    def answer(self, values: Mapping[str, str]) -> tuple[AnyPart, ...]:
        """The parts of the message that answers. One secret goes as text: that is what agents
        without our data part look for."""
        given = {field.name: values.get(field.name, "") for field in self.fields}
        if len(given) == 1:
            return (Text(next(iter(given.values()))),)
        return (Data(given),)


def wanted(told: Stamped | Task) -> CredentialRequest | None:
    """What to ask the person, if this is a task that waits for credentials."""
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
    """What the first scheme that we know takes; a list or table of names or of descriptions."""
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
