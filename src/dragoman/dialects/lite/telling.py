"""What is said in a room about a task: its events become messages of A2A-Lite, or plain text for
people who use no markers.

A room has no streams, so the pieces of artifacts are collected and told with the result. What an
agent says on the way, its progress and its questions are told as they come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.events import Ask, Stamped, StateChanged
from dragoman.core.extensions import PROGRESS
from dragoman.core.lifecycle import FINAL, WAITING, Fold
from dragoman.core.model import Artifact, Blob, Data, Json, Message, State, Task
from dragoman.core.questions import Question, question_at, question_of

from .parts import name_of, parts_out
from .states import NAMES
from .wire import ACK, RESULT, STATUS, LiteMessage

MOST_NAMES = 200
"""The characters of the longest list of artifacts in a marker."""
_WORDS = {
    State.COMPLETED: "Done.",
    State.FAILED: "That did not work.",
    State.CANCELED: "Canceled.",
    State.REJECTED: "I cannot take this on.",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_duration = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([smhd]?)[a-z]*", re.A | re.I)
_percent = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*(%?)", re.A)


class Telling(Struct, frozen=True, kw_only=True):
    """One message about a task, and the files that go with it."""

    state: State
    text: str = ""
    files: tuple[Blob, ...] = ()
    params: dict[str, str] = {}
    ack: bool = False
    """Whether it only confirms that a request has arrived."""
    question: bool = False
    refusal: bool = False
    """Whether a request was refused, so that there may be no task."""

    @property
    def plain(self) -> str:
        """The text for people, who see no marker: it is never empty for a task that has ended."""
        return self.text or ("" if self.files else _WORDS.get(self.state, ""))

    def marked(self, task: str) -> LiteMessage:
        """Returns the message with its marker. `task` is the requester's id of the task."""
        names = tuple(map(name_of, self.files))
        if self.ack:
            return LiteMessage(ACK, {"task": task}, self.text)
        params = {"task": task, "state": NAMES[self.state], **self.params}
        listed = ",".join(name.replace(",", "-") for name in names)
        if self.state not in FINAL or self.refusal:
            return LiteMessage(STATUS, params, self.text, names)
        if listed and len(listed) <= MOST_NAMES:
            params["artifacts"] = listed
        return LiteMessage(RESULT, params, self.text, names)


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
        text, files = message_out(entry.event.message)
        params = figures_out((entry.event.metadata or {}).get(PROGRESS))
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
    text, _ = message_out(task.status.message)
    return Telling(state=task.state, text=text)


def result_of(task: Task) -> Telling:
    """Returns what is told of a task that has ended."""
    texts: list[str] = []
    files: list[Blob] = []
    told = [artifact_out(artifact) for artifact in task.artifacts]
    if task.answer is not None or task.state is not State.COMPLETED:
        told.append(message_out(task.answer or task.status.message))
    for text, more in told:
        texts.append(text)
        files += more
    said = "\n\n".join(filter(None, texts))
    return Telling(state=task.state, text=said, files=tuple(files))


def question_told(question: Question, state: State) -> Telling:
    """Returns a question as it is told."""
    text, files = parts_out(question.more)
    lines = [question.prompt, text]
    if question.details is not None and question.kind is not Ask.CREDENTIALS:
        lines.append(parts_out((Data(question.details),))[0])
    if question.kind is Ask.APPROVAL:
        lines.append("(yes or no)")
    said = "\n".join(filter(None, lines)) or "What do you say?"
    return Telling(state=state, text=said, files=files, question=True)


def message_out(message: Message | None) -> tuple[str, tuple[Blob, ...]]:
    """Returns the text and the files of a message."""
    return parts_out(message.parts) if message is not None else ("", ())


def artifact_out(artifact: Artifact) -> tuple[str, tuple[Blob, ...]]:
    """Returns the text and the files of an artifact. A file without a name has that of the
    artifact."""
    text, files = parts_out(artifact.parts, glue="")
    name = artifact.name or artifact.artifact_id
    return text, tuple(each if each.filename else replace(each, filename=name) for each in files)


def figures_out(said: Json) -> dict[str, str]:
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


def figures_in(params: Mapping[str, str]) -> dict[str, Json]:
    """Returns how far a task is, from the parameters of a status: a fraction, and seconds."""
    found: dict[str, Json] = {}
    if progress := _percent.fullmatch(params.get("progress", "")):
        number = float(progress[1])
        fraction = number / 100 if progress[2] or number > 1 else number
        found["fraction"] = min(1.0, fraction)
    if eta := _duration.fullmatch(params.get("eta", "")):
        found["eta"] = float(eta[1]) * _UNITS[eta[2].lower() or "s"]
    return found
