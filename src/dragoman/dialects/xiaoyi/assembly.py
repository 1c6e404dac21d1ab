"""Assembles the answer of an agent from its frames, whichever way the agent streams.

Real agents differ (dialects §3.4): some send a new artifact id with every piece, some append the
whole text so far again and again, some repeat the whole text at the end, and some complete the task
before its last piece. Therefore text is collected per kind and not per artifact, and only `final`
or an error ends an answer. A task that was completed without `final` waits for its last piece; the
driver of the session ends that wait with `settle`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.core import events as ev
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Note
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import AnyPart, Artifact, Json, Message, Role, State, Text

from . import wire
from .device_commands import commands_in
from .events import ANSWER
from .parts import REASONING, part_in, parts_in
from .states import state_in


class CollectedText:
    """The text of one kind."""

    def __init__(self, value: str = "") -> None:
        self.value = value

    def add(self, text: str, *, append: bool, exact: bool) -> tuple[bool, str] | None:
        """Adds a piece. Returns whether the new text is appended, and the new text, or None if
        there is none. A piece that is appended and begins with the whole text so far replaces that
        text, unless it is exact or no longer than it: "ha" may well follow "ha"."""
        before = self.value
        repeats = bool(before) and text.startswith(before)
        if append and (exact or len(text) == len(before)):
            repeats = False
        if not text or (repeats and len(text) == len(before)):
            return None
        if repeats:
            self.value = text
            return True, text[len(before) :]
        self.value = before + text if append else text
        return append and bool(before), text


class AnswerAssembly:
    """Converts the results of one request to events."""

    def __init__(self, task: str, text: str = "") -> None:
        """`text` is the text of the answer so far, if an earlier process has received it."""
        self._task = task
        self._text, self._reasoning = CollectedText(text), CollectedText()
        self.commands: list[Json] = []
        """The commands for a phone that have not been answered yet."""
        self._files: set[str] = set()
        self._messages = 0
        self._ending: ev.StateChanged | None = None
        self.over = False
        """Whether nothing more belongs to this answer."""
        self.begun = False
        """Whether any event was returned."""

    @property
    def settling(self) -> bool:
        """Whether the task has been completed, and its last piece is still awaited."""
        return self._ending is not None and not self.over

    def add(self, result: wire.ResultIn, *, exact: bool = False) -> list[AnyEvent]:
        """Returns the events of a result. Raises `BadParams` for a file that cannot be read."""
        self.begun = True
        events: list[AnyEvent] = []
        final = bool(result.final or result.is_final)
        if result.artifact is not None:
            events += self._pieces(result.artifact, result.append is True, exact)
        if result.status is not None:
            events += self._status(result.status, final=final)
        elif final:
            events.append(self._ending or ev.StateChanged(state=State.COMPLETED))
            self.over = True
        return events

    def settle(self) -> list[AnyEvent]:
        """Ends the wait for the last piece of a task that is over."""
        if self._ending is None or self.over:
            return []
        self.over = True
        return [self._ending]

    def fail(self, error: DragomanError) -> list[AnyEvent]:
        """Returns the events of an error response in the middle of an answer, which fails the
        task."""
        self.over = True
        return [ev.StateChanged(state=State.FAILED, message=self._said((Text(error.message),)))]

    def _pieces(self, artifact: wire.ArtifactIn, append: bool, exact: bool) -> Iterator[AnyEvent]:
        for part in artifact.parts or ():
            thought = part.reasoning_text
            if thought is None and (part.kind or part.type) == REASONING:
                thought = part.text
            if thought is not None:
                new = self._reasoning.add(thought, append=append, exact=exact)
                if new is not None:
                    yield ev.Noted(kind=Note.THOUGHT, body={"text": new[1]})
            elif part.text is not None:
                new = self._text.add(part.text, append=append, exact=exact)
                if new is not None:
                    grows, text = new
                    made = Artifact(artifact_id=ANSWER, parts=(Text(text),))
                    yield ev.ArtifactChunk(artifact=made, append=grows)
            elif commands := commands_in(part):
                self.commands += commands
            elif (found := part_in(part)) is not None:
                name = artifact.artifact_id or "file"
                name = "file" if name == ANSWER else name
                made = Artifact(artifact_id=name, parts=(found,))
                yield ev.ArtifactChunk(artifact=made, append=name in self._files)
                self._files.add(name)

    def _status(self, status: wire.StatusIn, *, final: bool) -> Iterator[AnyEvent]:
        state = state_in(status.state)
        parts = parts_in(status.message.parts) if status.message is not None else ()
        message = self._said(parts) if parts else None
        told = ev.StateChanged(state=state, message=message)
        if state is State.INPUT_REQUIRED:
            # The next message answers it, as a separate request.
            self.over = True
            yield told
        elif final:
            self.over = True
            yield self._ended(told)
        elif state in FINAL:
            self._ending = told
        else:
            yield told

    def _ended(self, told: ev.StateChanged) -> ev.StateChanged:
        """Returns the events for the final state of a task. `final` with a state that is not final
        ends the task all the same."""
        if told.state in FINAL:
            return told
        if self._ending is not None:
            return self._ending
        over = State.FAILED if told.state is State.UNKNOWN else State.COMPLETED
        return ev.StateChanged(state=over, message=told.message)

    def _said(self, parts: tuple[AnyPart, ...]) -> Message:
        self._messages += 1
        return Message(
            message_id=f"{self._task}.{self._messages}",
            role=Role.AGENT,
            parts=parts,
            task_id=self._task,
        )
