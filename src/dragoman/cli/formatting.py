"""Formats text from agents for a terminal, without control characters."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from dragoman.client.auth.origins import printable
from dragoman.client.files import files_in
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import (
    AnyPart,
    Artifact,
    Blob,
    Data,
    Link,
    Message,
    Role,
    State,
    Task,
    Text,
)
from dragoman.core.shown_text import remove_controls

COLOURS = {
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.REJECTED: "red",
    State.CANCELED: "yellow",
    State.INPUT_REQUIRED: "magenta",
    State.AUTH_REQUIRED: "magenta",
}
"""The colours of states; the others are cyan."""


def clean(text: str) -> str:
    """Returns the text without control characters that a terminal would execute."""
    return remove_controls(text)


def line(text: object, most: int = 200) -> str:
    """Returns the text as one line that is not too long."""
    found = printable(text, most + 1)
    return found if len(found) <= most else found[: most - 1] + "…"


def part_words(part: AnyPart) -> str:
    """Returns one part as lines for people. A file is shown by its name and type."""
    match part:
        case Text(text=text):
            return clean(text)
        case Data(value=value):
            return clean(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        case Blob(content=content):
            return f"[{file_words(part)}, {size(len(content))}]"
        case Link(url=url):
            return f"[{file_words(part)}, at {line(url)}]"


def file_words(part: Blob | Link) -> str:
    """Returns the name and type of a file."""
    name = line(part.filename, 120) or "file"
    return f"{name} ({line(part.media_type, 80)})" if part.media_type else name


def artifact_words(artifact: Artifact) -> str:
    """Returns an artifact as text. Its chunks of text are joined, and other parts stand on lines of
    their own."""
    rest = [part_words(part) for part in artifact.parts if not isinstance(part, Text)]
    return "\n".join(filter(None, (clean(artifact.text).rstrip("\n"), *rest)))


def result_words(found: Task | Message) -> str:
    """Returns a result as text: the direct reply, or the artifacts and the message in their
    place."""
    if isinstance(found, Message):
        return message_words(found)
    made = [artifact_words(each) for each in found.artifacts]
    said = message_words(found.answer) if found.answer is not None else ""
    return "\n".join(filter(None, (*made, said)))


def message_words(message: Message) -> str:
    """Returns a message as text."""
    return "\n".join(map(part_words, message.parts))


def messages_inside(task: Task) -> list[Message]:
    """Returns what the agent has said in a task since its caller spoke. The message of a question
    or of a failure is not among them, since it is shown as such."""
    said: list[Message] = []
    for message in task.history:
        if message.role is Role.USER:
            said.clear()
        else:
            said.append(message)
    last = task.status.message
    if last is not None and task.state not in WAITING | FINAL - {State.COMPLETED}:
        said.append(last)
    return [message for message in said if message.parts]


def has_files(found: Task | Message) -> bool:
    """Returns whether there is something to save."""
    return bool(files_in(found))


def size(count: int) -> str:
    """Returns a number of bytes for people."""
    for unit, of in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if count >= of:
            return f"{count / of:.1f} {unit}"
    return f"{count} bytes"


def moment(millis: int) -> str:
    """Returns a time in UTC for people."""
    if not millis:
        return ""
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
