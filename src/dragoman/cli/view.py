"""Shows the events of a task as they arrive: on a terminal, through a pipe, or as JSON lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Literal, Protocol

from dragoman.core.events import ArtifactChunk, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Artifact, Message, State, Task
from dragoman.core.model import Text as TextPart

from . import formatting, json_output

Shown = Literal["state", "events", "result"]
"""What a view shows before the end: always the state of the task, its events as they arrive, or
nothing."""


class TaskView(Protocol):
    """Shows the events between a message and its result."""

    shows: Shown

    def begin(self) -> None:
        """Shows that a message was sent."""

    def tell(self, entry: Stamped | Message) -> None:
        """Shows an event."""

    def end(self, result: Task | Message) -> None:
        """Shows the result: the task has ended or waits, or the agent replied."""

    def stop(self) -> None:
        """Restores the terminal, whatever happened."""

    def note(self, text: str) -> None:
        """Shows a remark for the person."""


class ThroughPipe:
    """Prints results alone on standard output. Remarks for people go to standard error."""

    def __init__(self, *, growing: bool) -> None:
        self.shows: Shown = "events" if growing else "result"
        self._growing = growing
        """Whether text is written as it arrives, and not only at the end."""
        self._artifact = ""
        self._said: set[tuple[str, str]] = set()
        """The ids and texts of the messages that were written."""
        self._open = False

    def begin(self) -> None:
        """Shows nothing yet."""
        self._artifact = ""

    def tell(self, entry: Stamped | Message) -> None:
        """Prints growing text and messages inside the task, if that is enabled."""
        if not self._growing or isinstance(entry, Message):
            return
        match entry.event:
            case ArtifactChunk(artifact=artifact):
                self._chunk(artifact)
            case Snapshot(task=task):
                for artifact in task.artifacts:
                    self._chunk(artifact)
                self._say(formatting.messages_inside(task))
            case StateChanged(state=state, message=message) if message is not None:
                if state not in FINAL | WAITING:
                    self._say([message])

    def _say(self, messages: Iterable[Message]) -> None:
        """Prints messages that were not printed before, each on lines of its own."""
        for message in messages:
            text = formatting.message_words(message)
            if (message.message_id, text) not in self._said:
                self._said.add((message.message_id, text))
                self._break()
                self._write(text)
                self._break()

    def _chunk(self, artifact: Artifact) -> None:
        if artifact.artifact_id != self._artifact:
            self._break()
        self._artifact = artifact.artifact_id
        for part in artifact.parts:
            if isinstance(part, TextPart):
                self._write(formatting.clean(part.text))
            else:
                self._break()
                self._write(formatting.part_words(part) + "\n")

    def end(self, result: Task | Message) -> None:
        """Prints the result, if it is not printed already, or why there is none."""
        self._break()
        if isinstance(result, Task) and (self._artifact or self._said):
            self._say(formatting.messages_inside(result))
        else:
            self._write(formatting.result_words(result))
        self._break()
        if isinstance(result, Task) and result.state in FINAL - {State.COMPLETED}:
            said = result.status.message
            why = f": {formatting.line(said.text, 1000)}" if said is not None and said.text else ""
            self.note(f"The task is {result.state.value}{why}")

    def stop(self) -> None:
        """Ends an unfinished line."""
        self._break()

    def note(self, text: str) -> None:
        """Prints a line on standard error."""
        print(formatting.clean(text), file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def _break(self) -> None:
        if self._open:
            self._write("\n")


class AsJson:
    """Prints a line of JSON for the result, or for every event."""

    def __init__(self, *, events: bool) -> None:
        self.shows: Shown = "events" if events else "result"
        self._events = events

    def begin(self) -> None:
        """Shows nothing yet."""

    def tell(self, entry: Stamped | Message) -> None:
        """Prints one event as one line."""
        if self._events and isinstance(entry, Stamped):
            json_output.show(json_output.event(entry))

    def end(self, result: Task | Message) -> None:
        """Prints the whole result at the end."""
        json_output.show(json_output.result(result))

    def stop(self) -> None:
        """Does nothing: every line is complete."""

    def note(self, text: str) -> None:
        """Prints a line on standard error."""
        print(formatting.clean(text), file=sys.stderr, flush=True)


def chosen(*, as_json: bool, growing: bool, closing: bool = True) -> TaskView:
    """Returns the view for the kind of output."""
    if as_json:
        return AsJson(events=growing)
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        from .terminal_view import OnTerminal, console

        out = console()
        if out.is_terminal and not out.is_dumb_terminal:
            return OnTerminal(out, closing=closing)
    return ThroughPipe(growing=growing)
