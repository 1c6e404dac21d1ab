"""Encodes the events of a task as an agent sends them over the link (dialects §3.4).

The text of an answer grows under one artifact id: the first frame replaces (`append=false`), the
following ones append, and the last one repeats the whole text with `final=true`. A text that does
not fit in one frame is not repeated; then the last frame appends nothing. Before the last frame,
the state `completed` is sent without a message: the phone shows every message of a status as a
permanent bubble, and keeps showing "running" until it receives that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dragoman.core import events as ev
from dragoman.core.events import Note, Stamped
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Artifact, Message, State, Task, Text
from dragoman.core.task_names import called

from . import wire
from .parts import MOST_TEXT, REASONING, TEXT, part_out, split
from .states import NAMES

ANSWER = "answer"
"""The artifact id of all text."""
SEQUENCE = "#"
"""The separator between the id of the request and the number of the event, in the ids of our
responses."""
Result = wire.StatusUpdate | wire.ArtifactUpdate


class LinkEventEncoder:
    """Encodes one task in answer to one request."""

    def __init__(self, task: str = "") -> None:
        """`task` is the server's name for the task; if it is empty, it is the first name that its
        caller gave it."""
        self._task = task
        self._texts: dict[str, list[str]] = {}
        """The texts of the artifacts, in the order in which they began."""
        self._latest = ""
        """The artifact that grew last."""
        self._begun = False
        """Whether any text was sent."""

    def event_out(self, entry: Stamped | Message) -> Iterable[Result]:
        """Returns the results for an entry of a stream."""
        if isinstance(entry, Message):
            return self._reply(self._task or called(entry.task_id), entry)
        task = self._task or called(entry.task_id)
        return _EVENTS_OUT[type(entry.event)](self, task, entry.event)

    def task_out(self, task: Task) -> Iterator[Result]:
        """Yields the results for a whole task, which replace everything that was sent before."""
        name = self._task or called(task.id)
        self._texts = {made.artifact_id: [made.text] for made in task.artifacts if made.text}
        self._latest = next(reversed(self._texts), "")
        answer = task.answer
        if task.state is State.COMPLETED and answer is not None:
            self._texts[""] = [answer.text]
        for made in task.artifacts:
            yield from self._files(name, made)
        if task.state is not State.COMPLETED and self._texts:
            yield from self._whole(name)
        if task.state is State.COMPLETED:
            yield from self._close(name)
        else:
            yield from self._status(name, task.state, task.status.message)

    def _opened(self, task: str, event: ev.Opened) -> Iterator[Result]:
        return self._status(task, State.SUBMITTED)

    def _snapshot(self, task: str, event: ev.Snapshot) -> Iterator[Result]:
        return self.task_out(event.task)

    def _state(self, task: str, event: ev.StateChanged) -> Iterator[Result]:
        if event.state is not State.COMPLETED:
            return self._status(task, event.state, event.message)
        return self._completed(task, event.message)

    def _reply(self, task: str, message: Message) -> Iterator[Result]:
        return self._completed(task, message)

    def _completed(self, task: str, message: Message | None) -> Iterator[Result]:
        if message is not None:
            yield from self._files(task, Artifact(artifact_id="message", parts=message.parts))
            if message.text:
                yield from self._grow(task, "", message.text)
        yield from self._close(task)

    def _asked(self, task: str, event: ev.Asked) -> Iterator[Result]:
        return self._status(task, event.state, event.message)

    def _noted(self, task: str, event: ev.Noted) -> Iterator[Result]:
        body = event.body
        text = body.get("text") if isinstance(body, dict) else body
        if event.kind is not Note.THOUGHT or not isinstance(text, str):
            return
        for piece in split(text):
            part = wire.Part(REASONING, reasoning_text=piece)
            yield _artifact(task, ANSWER, part, append=True)

    def _chunk(self, task: str, event: ev.ArtifactChunk) -> Iterator[Result]:
        artifact = event.artifact
        yield from self._files(task, artifact)
        if not event.append and artifact.artifact_id in self._texts:
            self._texts[artifact.artifact_id] = [artifact.text]
            self._latest = artifact.artifact_id
            yield from self._whole(task)
        elif artifact.text:
            yield from self._grow(task, artifact.artifact_id, artifact.text)

    def _grow(self, task: str, artifact_id: str, text: str) -> Iterator[Result]:
        """Adds to the text of one artifact."""
        known = self._texts.setdefault(artifact_id, [])
        known.append(text)
        before, self._latest = self._latest, artifact_id
        if len(known) > 1 and before != artifact_id:
            return self._whole(task)  # it grows in the middle of the text that was sent
        return self._told(task, text if len(known) > 1 or not self._begun else f"\n{text}")

    def _whole(self, task: str) -> Iterator[Result]:
        """Sends all text again."""
        self._begun = False
        return self._told(task, self._text())

    def _told(self, task: str, text: str) -> Iterator[Result]:
        for piece in split(text):
            yield _artifact(task, ANSWER, wire.Part(TEXT, text=piece), append=self._begun)
            self._begun = True

    def _text(self) -> str:
        return "\n".join(map("".join, self._texts.values()))

    def _files(self, task: str, artifact: Artifact) -> Iterator[Result]:
        for part in artifact.parts:
            if not isinstance(part, Text):
                yield _artifact(task, artifact.artifact_id, part_out(part), append=True, last=True)

    def _close(self, task: str) -> Iterator[Result]:
        """Completes the task."""
        text = self._text()
        if len(text) > MOST_TEXT and not self._begun:
            yield from self._told(task, text)
        yield wire.StatusUpdate(task, final=False, status=wire.Status(NAMES[State.COMPLETED]))
        repeats = len(text) <= MOST_TEXT
        part = wire.Part(TEXT, text=text if repeats else "")
        yield _artifact(task, ANSWER, part, append=not repeats, last=True, final=True)

    def _status(self, task: str, state: State, message: Message | None = None) -> Iterator[Result]:
        """Sends a state other than completed. A question and a failure end the answer: what follows
        belongs to the next request."""
        final = state in FINAL or state in WAITING
        texts = list(split(message.text)) if message is not None else []
        for piece in texts[:-1]:  # a message that does not fit in one frame
            working = wire.Status(NAMES[State.WORKING], _message((wire.Part(TEXT, text=piece),)))
            yield wire.StatusUpdate(task, final=False, status=working)
        parts = [wire.Part(TEXT, text=texts[-1])] if texts else []
        if message is not None:
            parts += [part_out(part) for part in message.parts if not isinstance(part, Text)]
        said = _message(tuple(parts)) if parts else None
        yield wire.StatusUpdate(task, final=final, status=wire.Status(NAMES[state], said))


_EVENTS_OUT: dict[type[ev.AnyEvent], Callable[..., Iterable[Result]]] = {
    ev.Opened: LinkEventEncoder._opened,
    ev.Snapshot: LinkEventEncoder._snapshot,
    ev.StateChanged: LinkEventEncoder._state,
    ev.Asked: LinkEventEncoder._asked,
    ev.ArtifactChunk: LinkEventEncoder._chunk,
    ev.Noted: LinkEventEncoder._noted,
}


def _message(parts: tuple[wire.Part, ...]) -> wire.Message:
    return wire.Message("agent", parts)


def _artifact(
    task: str,
    artifact_id: str,
    part: wire.Part,
    *,
    append: bool,
    last: bool = False,
    final: bool = False,
) -> wire.ArtifactUpdate:
    return wire.ArtifactUpdate(task, append, last, final, wire.Artifact(artifact_id, (part,)))


def exact(id: object) -> bool:
    """Returns whether the id of a response shows that our own code wrote it, which appends only new
    text."""
    return isinstance(id, str) and id.rpartition(SEQUENCE)[2].isdecimal() and SEQUENCE in id
