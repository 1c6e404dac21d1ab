"""The questions of waiting tasks, and the meaning of the answers.

In A2A, a task that waits has one of two states and a message in words. Our agents add a data part
to the message, which holds the name of the question, its kind and its details
(`urn:dragoman:work:1`). Only this module reads that part: skills, the client, the command line, the
IAT host and the list of approvals all use it.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from .events import Ask, Asked, Snapshot, Stamped, StateChanged
from .extensions import QUESTION
from .lifecycle import WAITING
from .model import AnyPart, Data, Json, Message, State, Task, Text, first_data

_KINDS = {kind.value: kind for kind in Ask}
_YES = frozenset(("yes", "y", "ok", "okay", "true", "approve", "approved", "sure"))
_NO = frozenset(("no", "n", "false", "deny", "denied", "reject", "rejected"))
_YES_WORDS = _YES | {"是", "好", "好的", "同意", "批准", "可以", "确认", "行"}
_NO_WORDS = _NO | {"否", "不", "不行", "不同意", "拒绝", "不可以", "取消"}


class Question(Struct, frozen=True):
    """The question that a task waits to be answered."""

    kind: Ask
    prompt: str
    """The text of the question; it may be empty."""
    name: str = ""
    """The name of the question, for `Resolve`. A question without a name is answered by a message
    to the task."""
    details: Json = None
    """What the answer is about."""
    more: tuple[AnyPart, ...] = ()
    """Files and data that came with the text."""


def question_part(kind: Ask, name: str, details: Json) -> Data:
    """Returns the data part that describes a question; `question_in` reads it."""
    about = {"kind": kind.value, "question": name, "details": details}
    return Data(about, metadata={QUESTION: name})


def question_of(task: Task) -> Question | None:
    """Returns what a task asks, or None if it does not wait."""
    return question_in(task.status.message, task.state) if task.state in WAITING else None


def question_at(entry: Stamped) -> Question | None:
    """Returns what a task asks with this event, or None if the event asks nothing."""
    match entry.event:
        case Asked() as event:
            found = question_in(event.message, event.state)
            return replace(
                found,
                kind=event.kind,
                name=found.name or event.question,
                details=event.body if found.details is None else found.details,
            )
        case StateChanged(state=state, message=message) if state in WAITING:
            return question_in(message, state)
        case Snapshot(task=task):
            return question_of(task)
        case _:
            return None


def question_in(message: Message | None, state: State) -> Question:
    """Returns the question that a message holds; `state` is the state of the task that says it."""
    kind, name, details = Ask.INPUT, "", None
    more: list[AnyPart] = []
    described = False
    for part in message.parts if message is not None else ():
        about = None if described else _description(part)
        if about is not None:
            described = True
            said, named = about.get("kind"), about.get("question")
            kind = _KINDS.get(said, kind) if isinstance(said, str) else kind
            name = named if isinstance(named, str) else ""
            details = about.get("details")
        elif not isinstance(part, Text):
            more.append(part)
    if state is State.AUTH_REQUIRED:
        kind = Ask.CREDENTIALS
    return Question(kind, message.text if message is not None else "", name, details, tuple(more))


def _description(part: AnyPart) -> dict[str, Json] | None:
    """Returns the value of a part that describes a question, or None for any other part. Some
    dialects do not carry the metadata of parts, so a value with the kind and the name of a question
    counts as well."""
    value = part.value if isinstance(part, Data) else None
    if not isinstance(value, dict):
        return None
    if QUESTION in (part.metadata or ()):
        return value
    kind, name = value.get("kind"), value.get("question")
    return value if isinstance(name, str) and isinstance(kind, str) and kind in _KINDS else None


def answer_value(value: Json) -> Json:
    """Returns the value of an answer as it is sent. True and False decide on an approval."""
    return {"approved": value} if isinstance(value, bool) else value


def decision_in(message: Message, value: Json = None) -> bool | None:
    """Returns whether an answer approves, as data (`{"approved": true}`) or in words, or None if it
    is neither a yes nor a no."""
    data = value if value is not None else first_data(message.parts)
    if isinstance(data, dict):
        data = data.get("approved")
    return data if isinstance(data, bool) else yes_or_no(message.text)


def yes_or_no(text: str) -> bool | None:
    """Returns whether a text says yes or no, in English or Chinese, or None for anything else: an
    approval must be unambiguous."""
    word = text.strip().strip(".!。！").casefold()
    if word in _YES_WORDS:
        return True
    return False if word in _NO_WORDS else None


def waits_for(task: Task, question: str) -> bool:
    """Returns whether a task waits for the answer to this question. One that does not name its
    questions may wait for any."""
    found = question_of(task)
    if found is None:
        return False
    message = task.status.message
    name = found.name or (message.message_id if message is not None else "")
    return not name or name == question
