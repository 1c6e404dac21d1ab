"""What is said in a room about a task: its events become the messages of A2A-Lite, or plain text
for people who use no markers.

A room has no streams, so the pieces of artifacts are collected and told with the result. What an
agent says on the way, its progress and its questions are told as they come.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.events import Ask, Stamped, StateChanged
from dragoman.core.extensions import PROGRESS
from dragoman.core.lifecycle import FINAL, WAITING, Fold
from dragoman.core.model import AnyPart, Blob, Data, Json, Link, Message, State, Task, Text
from dragoman.core.questions import Question, question_at, question_of
from dragoman.dialects.lite.states import NAMES
from dragoman.dialects.lite.wire import ACK, RESULT, STATUS, LiteMessage
from dragoman.files import safe_name

_WORDS = {
    State.COMPLETED: "Done.",
    State.FAILED: "That did not work.",
    State.CANCELED: "Canceled.",
    State.REJECTED: "I cannot take this on.",
}
"""What is said of a task that has ended without a word."""


class Telling(Struct, frozen=True, kw_only=True):
    """One message about a task, and the files that go with it."""

    state: State
    text: str
    files: tuple[Blob, ...] = ()
    params: dict[str, str] = {}
    ack: bool = False
    """Whether it only confirms that a request has arrived."""
    question: bool = False

    def marked(self, task: str) -> LiteMessage:
        """Returns the message with its marker. `task` is the requester's id of the task."""
        names = tuple(name_of(file) for file in self.files)
        if self.ack:
            return LiteMessage(ACK, {"task": task}, self.text)
        params = {"task": task, "state": NAMES[self.state], **self.params}
        if self.state in FINAL and names:
            params["artifacts"] = ",".join(names)
        return LiteMessage(RESULT if self.state in FINAL else STATUS, params, self.text, names)


class TaskTeller:
    """Turns the events of one task into what is told of it."""

    def __init__(self, task_id: str) -> None:
        self._fold = Fold(task_id, "")

    @property
    def state(self) -> State:
        """The state of the task after the last event."""
        return self._fold.state

    def add(self, entry: Stamped) -> Telling | None:
        """Takes the next event. Returns what to tell, or None if it says nothing new."""
        self._fold.add(entry)
        state = self._fold.state
        if state in FINAL:
            return result_of(self._fold.task())
        if state in WAITING:
            question = question_at(entry)
            return question_told(question, state) if question is not None else None
        if not isinstance(entry.event, StateChanged):
            return None
        text, files = prose(entry.event.message)
        params = _progress((entry.event.metadata or {}).get(PROGRESS))
        if not (text or files or params):
            return None
        return Telling(state=state, text=text, files=files, params=params)


def current(task: Task) -> Telling:
    """Returns what is told of a task as it stands, to somebody who asks for it again."""
    if task.state in FINAL:
        return result_of(task)
    question = question_of(task)
    if question is not None:
        return question_told(question, task.state)
    text, _ = prose(task.status.message)
    return Telling(state=task.state, text=text)


def result_of(task: Task) -> Telling:
    """Returns what is told of a task that has ended."""
    texts: list[str] = []
    files: list[Blob] = []
    for artifact in task.artifacts:
        text, more = prose(artifact.parts)
        texts.append(text)
        named = artifact.name or artifact.artifact_id
        files += (each if each.filename else replace(each, filename=named) for each in more)
    text, more = prose(task.status.message if task.answer is None else task.answer)
    if task.answer is not None or task.state is not State.COMPLETED:
        texts.append(text)
        files += more
    said = "\n\n".join(filter(None, texts))
    return Telling(state=task.state, text=said or _WORDS[task.state], files=tuple(files))


def question_told(question: Question, state: State) -> Telling:
    """Returns a question as it is told."""
    text, files = prose(question.more)
    lines = [question.prompt, text]
    if question.details is not None and question.kind is not Ask.CREDENTIALS:
        lines.append(_json(question.details))
    if question.kind is Ask.APPROVAL:
        lines.append("(yes or no)")
    said = "\n".join(filter(None, lines)) or "What do you say?"
    return Telling(state=state, text=said, files=files, question=True)


def prose(said: Message | Iterable[AnyPart] | None) -> tuple[str, tuple[Blob, ...]]:
    """Returns parts as text and files: data as a JSON block, and links as lines of their own."""
    parts = said.parts if isinstance(said, Message) else said or ()
    text, files = "", []
    for part in parts:
        match part:
            case Text(text=more):
                text += more
            case Data(value=value):
                text = _line(text) + _json(value)
            case Link(url=url, filename=filename):
                text = _line(text) + (f"{filename}: {url}" if filename else url)
            case Blob():
                files.append(part)
    return text, tuple(files)


def name_of(file: Blob) -> str:
    """Returns the name under which a file is posted."""
    return safe_name(file.filename)


def _line(text: str) -> str:
    return f"{text}\n" if text and not text.endswith("\n") else text


def _json(value: Json) -> str:
    pretty = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"```json\n{pretty}\n```"


def _progress(said: Json) -> dict[str, str]:
    """Returns the parameters that tell how far a task is."""
    if not isinstance(said, dict):
        return {}
    found: dict[str, str] = {}
    fraction, eta = said.get("fraction"), said.get("eta")
    if isinstance(fraction, int | float):
        found["progress"] = f"{round(fraction * 100)}%"
    if isinstance(eta, int | float):
        found["eta"] = f"{round(eta)}s" if eta < 120 else f"{round(eta / 60)}m"
    return found
