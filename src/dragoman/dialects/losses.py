"""Determines what a translation between two dialects cannot carry, from the dialects themselves.

Every `Dialect` declares with `carried` what remains of a signal after its wire, and contract tests
verify that. Here are the features of signals that matter to people. A dialect loses a feature if a
signal that has it is carried without it; a pair of dialects loses what either of them loses.
Therefore the tables of `dragoman gateway losses` and the note on a relayed task cannot differ from
the code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct

from dragoman.core import events as ev
from dragoman.core.dialect import Dialect
from dragoman.core.events import Opened, Stamped
from dragoman.core.model import (
    AnyPart,
    Artifact,
    Blob,
    Data,
    Hook,
    Link,
    Message,
    Role,
    State,
    Text,
)
from dragoman.core.operations import (
    AnyOperation,
    CancelTask,
    GetExtendedCard,
    GetTask,
    ListTasks,
    SendMessage,
    SetHook,
    Watch,
)
from dragoman.core.questions import Question, question_at, question_part
from dragoman.core.session import Call, Signal, Update

from . import DIALECTS

E = TypeVar("E", bound=ev.AnyEvent)
LATE = 1_700_000_000_123
"""A time with milliseconds."""


CONTENT, ADDRESS = "a file by its content", "a file by its address"
RESULT, LINKED_RESULT = "a file as a result", "a file as a result, by its address"


class FileForms(Struct, frozen=True):
    """The forms of files that a dialect has words for."""

    by_value: bool = True
    by_reference: bool = True


class Feature(Struct, frozen=True):
    """A feature that a signal may have, and that a dialect may not be able to express."""

    name: str
    sample: Signal
    """A signal that has the feature."""
    present: Callable[[Signal], bool]
    """Returns whether a signal has the feature."""


def lost_by(dialect: Dialect) -> tuple[str, ...]:
    """Returns the names of the features that this dialect does not carry."""
    return tuple(each.name for each in FEATURES if not each.present(dialect.carried(each.sample)))


@cache
def file_forms(name: str) -> tuple[FileForms, FileForms]:
    """The forms of files in what callers of the dialect of this name say, and in results."""
    lost = lost_by(DIALECTS[name])
    asked = FileForms(CONTENT not in lost, ADDRESS not in lost)
    return asked, FileForms(RESULT not in lost, LINKED_RESULT not in lost)


def lost_between(caller: Dialect, agent: Dialect) -> tuple[str, ...]:
    """Returns the names of the features that are lost if the caller speaks one dialect and the
    agent the other: both have to carry a feature."""
    lost = {*lost_by(caller), *lost_by(agent)}
    return tuple(each.name for each in FEATURES if each.name in lost)


def lost_from(dialect: Dialect, signal: Signal) -> tuple[str, ...]:
    """Returns the names of the features of this particular signal that the dialect does not
    carry."""
    told = dialect.carried(signal)
    if told == signal:
        return ()
    return tuple(each.name for each in FEATURES if each.present(signal) and not each.present(told))


def is_plain_text(said: SendMessage | Opened) -> bool:
    """Returns whether a caller sent text and nothing else. Every dialect carries that, so nobody
    has to ask what is lost of it beside its id."""
    message = said.message
    if said.metadata or said.accepts or said.context or message.metadata or message.extensions:
        return False
    if message.references or not message.parts:
        return False
    for part in message.parts:
        if type(part) is not Text or not part.text:
            return False
        if part.filename or part.media_type or part.metadata:
            return False
    return True


# What a caller sends.


def _send(parts: tuple[AnyPart, ...] = (Text("hello"),), **more: Any) -> Call:
    about = {
        name: more.pop(name) for name in ("metadata", "extensions", "references") & more.keys()
    }
    message = Message(message_id="m1", role=Role.USER, parts=parts, **about)
    return Call(id="1", op=SendMessage(message=message, **more), stream=True)


def _op(test: Callable[[SendMessage], object]) -> Callable[[Signal], bool]:
    def present(signal: Signal) -> bool:
        sends = isinstance(signal, Call) and isinstance(signal.op, SendMessage)
        return sends and bool(test(signal.op))  # type: ignore[union-attr, arg-type]

    return present


def _part(test: Callable[[AnyPart], object]) -> Callable[[Signal], bool]:
    return _op(lambda op: any(test(part) for part in op.message.parts))


REQUESTS: tuple[Feature, ...] = (
    Feature("text", _send(), _part(lambda part: isinstance(part, Text))),
    Feature(
        "the filename and media type of a text",
        _send((Text("a,b", filename="a.csv", media_type="text/csv"),)),
        _part(lambda part: isinstance(part, Text) and part.filename and part.media_type),
    ),
    Feature(
        CONTENT,
        _send((Blob(b"\x00", filename="a.bin", media_type="application/x"),)),
        _part(lambda part: isinstance(part, Blob)),
    ),
    Feature(
        ADDRESS,
        _send((Link("https://example.com/a"),)),
        _part(lambda part: isinstance(part, Link)),
    ),
    Feature(
        "data that is an object",
        _send((Data({"a": 1}),)),
        _part(lambda part: isinstance(part, Data) and isinstance(part.value, dict)),
    ),
    Feature(
        "data that is no object",
        _send((Data([1]),)),
        _part(lambda part: isinstance(part, Data) and not isinstance(part.value, dict)),
    ),
    Feature(
        "the metadata of a part",
        _send((Text("hello", metadata={"a": 1}),)),
        _part(lambda part: part.metadata),
    ),
    Feature(
        "the metadata of a message",
        _send(metadata={"a": 1}),
        _op(lambda op: op.message.metadata or op.metadata),
    ),
    Feature(
        "the extensions of a message",
        _send(extensions=("urn:x",)),
        _op(lambda op: op.message.extensions),
    ),
    Feature(
        "references to other tasks",
        _send(references=("t0",)),
        _op(lambda op: op.message.references),
    ),
    Feature("fragments of context", _send(context=({"a": 1},)), _op(lambda op: op.context)),
    Feature(
        "the accepted output modes", _send(accepts=("text/plain",)), _op(lambda op: op.accepts)
    ),
    Feature("a send that does not wait", _send(wait=False), _op(lambda op: not op.wait)),
    Feature("the id of a message", _send(), _op(lambda op: op.message.message_id)),
)
"""The features of requests."""


# What an agent answers.


def _event(event: ev.AnyEvent) -> Update:
    return Update(id="1", entry=Stamped("t1", "c1", 3, LATE, event))


def _of(kind: type[E], test: Callable[[E], object]) -> Callable[[Signal], bool]:
    def present(signal: Signal) -> bool:
        return (
            isinstance(signal, Update)
            and isinstance(signal.entry, Stamped)
            and isinstance(signal.entry.event, kind)
            and bool(test(signal.entry.event))
        )

    return present


def _stamp(test: Callable[[Stamped], object]) -> Callable[[Signal], bool]:
    return lambda signal: (
        isinstance(signal, Update)
        and isinstance(signal.entry, Stamped)
        and bool(test(signal.entry))
    )


def _chunk(*parts: AnyPart, append: bool = True, more: Any = None, **about: Any) -> Update:
    artifact = Artifact(artifact_id="a1", parts=parts or (Text("one"),), **about)
    return _event(ev.ArtifactChunk(artifact=artifact, append=append, metadata=more))


def _state(state: State, text: str = "", metadata: Any = None) -> Update:
    message = Message(message_id="m2", role=Role.AGENT, parts=(Text(text),)) if text else None
    return _event(ev.StateChanged(state=state, message=message, metadata=metadata))


def _asked(kind: ev.Ask) -> Update:
    parts = (Text("May I?"), question_part(kind, "q1", {"a": 1}))
    message = Message(message_id="m3", role=Role.AGENT, parts=parts)
    return _event(ev.Asked(question="q1", kind=kind, message=message, body={"a": 1}))


def _question(test: Callable[[Question], object]) -> Callable[[Signal], bool]:
    def present(signal: Signal) -> bool:
        told = isinstance(signal, Update) and isinstance(signal.entry, Stamped)
        found = question_at(signal.entry) if told else None  # type: ignore[union-attr, arg-type]
        return found is not None and bool(test(found))

    return present


def _made(test: Callable[[Artifact], object]) -> Callable[[Signal], bool]:
    return _of(ev.ArtifactChunk, lambda event: test(event.artifact))


ANSWERS: tuple[Feature, ...] = (
    Feature(
        "pieces of an artifact as they are made",
        _chunk(),
        _of(ev.ArtifactChunk, lambda event: event.append),
    ),
    Feature("the id of an artifact", _chunk(), _made(lambda made: made.artifact_id == "a1")),
    Feature(
        "the name and description of an artifact",
        _chunk(name="report", description="a report"),
        _made(lambda made: made.name and made.description),
    ),
    Feature("the metadata of an artifact", _chunk(metadata={"a": 1}), _made(lambda m: m.metadata)),
    Feature(
        "the extensions of an artifact",
        _chunk(extensions=("urn:x",)),
        _made(lambda m: m.extensions),
    ),
    Feature(
        "the metadata of one piece",
        _chunk(more={"a": 1}),
        _of(ev.ArtifactChunk, lambda event: event.metadata),
    ),
    Feature(
        RESULT,
        _chunk(Blob(b"\x00", filename="a.bin")),
        _made(lambda made: any(isinstance(part, Blob) for part in made.parts)),
    ),
    Feature(
        LINKED_RESULT,
        _chunk(Link("https://example.com/a")),
        _made(lambda made: any(isinstance(part, Link) for part in made.parts)),
    ),
    Feature(
        "the message of a state",
        _state(State.WORKING, "still at it"),
        _of(ev.StateChanged, lambda event: event.message is not None and event.message.text),
    ),
    Feature(
        "the metadata of a state",
        _state(State.WORKING, metadata={"a": 1}),
        _of(ev.StateChanged, lambda event: event.metadata),
    ),
    Feature("the time of a state", _state(State.WORKING), _stamp(lambda entry: entry.at == LATE)),
    Feature("the time of a piece", _chunk(), _stamp(lambda entry: entry.at == LATE)),
    Feature(
        "rejected, apart from failed",
        _state(State.REJECTED),
        _of(ev.StateChanged, lambda event: event.state is State.REJECTED),
    ),
    Feature("a question", _asked(ev.Ask.INPUT), _question(lambda found: found.prompt)),
    Feature(
        "the details of an approval",
        _asked(ev.Ask.APPROVAL),
        _question(lambda found: found.kind is ev.Ask.APPROVAL and found.details),
    ),
    Feature(
        "a call of the caller's tool",
        _asked(ev.Ask.TOOL),
        _question(lambda found: found.kind is ev.Ask.TOOL and found.details),
    ),
    Feature(
        "auth-required, apart from input-required",
        _event(ev.StateChanged(state=State.AUTH_REQUIRED)),
        _of(ev.StateChanged, lambda event: event.state is State.AUTH_REQUIRED),
    ),
    Feature(
        "thoughts, logs and usage",
        _event(ev.Noted(kind=ev.Note.THOUGHT, body={"text": "hm"})),
        _of(ev.Noted, lambda event: True),
    ),
    Feature(
        "a direct reply, apart from a finished task",
        Update(id="1", entry=Message(message_id="m4", role=Role.AGENT, parts=(Text("hi"),))),
        lambda signal: isinstance(signal, Update) and isinstance(signal.entry, Message),
    ),
)
"""The features of answers."""

FEATURES = (*REQUESTS, *ANSWERS)

OPERATIONS: dict[str, AnyOperation] = {
    "get a task": GetTask(task_id="t1"),
    "list tasks": ListTasks(),
    "cancel a task": CancelTask(task_id="t1"),
    "follow a task again": Watch(task_id="t1"),
    "set a webhook": SetHook(hook=Hook(hook_id="h1", task_id="t1", url="https://example.com/")),
    "get the extended card": GetExtendedCard(),
}
"""The operations of callers beside sending a message. A gateway answers all of them itself, so only
the caller's dialect counts here."""


def missing_operations(caller: Dialect) -> tuple[str, ...]:
    """Returns the operations that callers of this dialect cannot request."""
    return tuple(
        name
        for name, op in OPERATIONS.items()
        if not list(caller.caller().send(Call(id="1", op=op, stream=isinstance(op, Watch))))
    )
