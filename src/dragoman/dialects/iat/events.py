"""Encodes the events of a task as IAT envelopes; `decode` is the counterpart.

Every event of a stream has `task_id`, `context_id`, `seq` and `at` (milliseconds). A caller that
sets `"detail": "full"`, as ours does, gets messages, artifacts and tasks as a whole (as in
`dragoman.core.model`); others get their text, for which the requirement has fields. Where there is
more than text, the text names the files and shows the data, and `parts` stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from dragoman.core import events as ev
from dragoman.core import questions
from dragoman.core.events import Ask, Note, Stamped
from dragoman.core.extensions import PROGRESS
from dragoman.core.lifecycle import FINAL, WAITING, Fold
from dragoman.core.model import (
    AnyPart,
    Artifact,
    Blob,
    Data,
    Json,
    Link,
    Message,
    State,
    Status,
    Task,
    Text,
)

from .wire import Kind

FULL = {"detail": "full"}
THEIRS = "msg:"
"""The prefix of the name of a question that another vendor's agent asked; its msg_id follows."""
Payload = dict[str, Json]

ASKS = {
    Ask.APPROVAL: "require_approval",
    Ask.TOOL: "call_tool",
    Ask.INPUT: "require_input",
    Ask.CREDENTIALS: "require_auth",
}
"""The actions of questions. The first two are from the requirement, which has no others."""
ASK_OF = {action: kind for kind, action in ASKS.items()}
NOTES = {Note.THOUGHT: "think", Note.LOG: "log", Note.USAGE: "usage"}
NOTE_OF = {action: kind for kind, action in NOTES.items()}
STATUS, DONE = "task_status", "done"
STATES = {
    **{state.value: state for state in State},
    "pending": State.SUBMITTED,
    "running": State.WORKING,
    "aborted": State.CANCELED,
    "accepted": State.SUBMITTED,
    "queued": State.SUBMITTED,
}
"""Our states, and those of real hosts."""


class EventBody(NamedTuple):
    """One message: the kind of its envelope, its action and its payload."""

    kind: Kind
    action: str
    payload: Payload
    id: str = ""
    """The id of the envelope of a question, by which its answer is recognised."""


def question_id(task_id: str, question: str) -> str:
    """Returns the msg_id of a question. The parent_id of the answer then names the task."""
    return f"{quote(task_id, safe='')}/{question}"


def question_in(msg_id: str) -> tuple[str, str]:
    """Returns the task and the question of a msg_id, or empty texts if it is not one of ours."""
    task_id, slash, question = msg_id.partition("/")
    return (unquote(task_id), question) if slash else ("", "")


def parts_out(parts: Iterable[AnyPart]) -> Payload:
    """Returns `parts` as a member of a payload, if there is more than plain text."""
    found = tuple(parts)
    if all(isinstance(part, Text) for part in found):
        return {}
    return {"parts": msgspec.to_builtins(found)}


def summary_out(parts: Iterable[AnyPart]) -> str:
    """Returns the parts of an artifact as a text, for callers that read nothing else: each file and
    each value is a line of its own."""
    return lines_out(join_texts(parts))


def join_texts(parts: Iterable[AnyPart]) -> Iterator[AnyPart]:
    """Yields the parts of an artifact, with plain texts that follow each other as one: the pieces
    of an artifact are one text."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Text) and not (part.filename or part.media_type or part.metadata):
            texts.append(part.text)
            continue
        if texts:
            yield Text("".join(texts))
            texts = []
        yield part
    if texts:
        yield Text("".join(texts))


def lines_out(parts: Iterable[AnyPart]) -> str:
    """Returns the parts of a message as a text, each on a line of its own."""
    return "\n".join(filter(None, map(_line_out, parts)))


def _line_out(part: AnyPart) -> str:
    match part:
        case Text(text=text):
            return text
        case Data(value=value):
            return msgspec.json.encode(value).decode()
        case Blob(content=content):
            about = f"{len(content)} bytes"
        case Link(url=url):
            about = url
    kind = f"{part.media_type}, {about}" if part.media_type else about
    return f"{part.filename or 'a file'} ({kind})"


def result_out(task: Task) -> Payload:
    """Returns the result of a task: its text and, if there is more than text, its parts."""
    answer = task.answer
    summaries = [summary_out(artifact.parts) for artifact in task.artifacts]
    if answer is not None:
        summaries.append(lines_out(answer.parts))
    return {"result_summary": "\n".join(filter(None, summaries)), **parts_out(task.parts)}


class IatEventEncoder:
    """Encodes the events of one task for one caller. It remembers what the `done` at the end has to
    contain."""

    def __init__(self, full: bool) -> None:
        self._full = full
        self._made: dict[str, list[AnyPart]] = {}
        """The parts of each artifact so far; only its texts for a caller that has the rest from the
        chunks."""
        self._usage: Payload = {}
        self._chunks = 0
        self._whole = False
        """Whether the encoder has seen the task from its beginning."""

    def event_out(self, entry: Stamped | Message) -> EventBody:
        """Returns the messages for one entry of a stream."""
        if isinstance(entry, Message):
            return EventBody(Kind.RESPONSE, DONE, self.reply_out(entry))
        base: Payload = {
            "task_id": entry.task_id,
            "context_id": entry.context_id,
            "seq": entry.seq,
            "at": entry.at,
        }
        return _EVENTS_OUT[type(entry.event)](self, base, entry.event, entry)

    def task(self, task: Task) -> Payload:
        """Returns the message for a task."""
        state = task.state
        payload: Payload = {
            "task_id": task.id,
            "context_id": task.context_id,
            "status": state.value,
        }
        message = task.status.message
        if self._full:
            payload |= {"task": msgspec.to_builtins(task), "result_summary": task.text}
        else:
            payload |= result_out(task)
        payload["result_summary"] = payload["result_summary"] or task.status.text
        if state in FINAL and state is not State.COMPLETED:
            payload["error"] = _failure(state, message, None)
        elif state in WAITING and message is not None:
            payload["asks"] = _open_question(task.id, state, message)
        return payload

    def reply_out(self, message: Message) -> Payload:
        """Returns the message for a direct reply, which has no task."""
        payload: Payload = {"status": "completed", "result_summary": lines_out(message.parts)}
        if self._full:
            return payload | {"message": msgspec.to_builtins(message)}
        return payload | parts_out(message.parts)

    def _message(self, message: Message) -> Payload:
        if self._full:
            return {"message": msgspec.to_builtins(message)}
        return {"text": message.text}

    def _opened_out(self, base: Payload, event: ev.Opened, entry: Stamped) -> EventBody:
        self._whole = True
        payload: Payload = {**base, "status": "submitted"}
        if self._full:
            fold = Fold(entry.task_id, entry.context_id)
            fold.add(entry)
            payload["task"] = msgspec.to_builtins(fold.task())
        return EventBody(Kind.NOTIFICATION, STATUS, payload)

    def _snapshot_out(self, base: Payload, event: ev.Snapshot, entry: Stamped) -> EventBody:
        task = event.task
        self._whole = True
        self._made = {}
        for artifact in task.artifacts:
            self._add(artifact, append=False)
        self._usage = dict(task.usage or {})
        payload = self.task(task) | base
        if task.state not in FINAL:
            return EventBody(Kind.NOTIFICATION, STATUS, payload)
        return EventBody(Kind.RESPONSE, DONE, payload | {"usage_stats": self._usage})

    def _state_out(self, base: Payload, event: ev.StateChanged, entry: Stamped) -> EventBody:
        payload: Payload = {**base, "status": event.state.value}
        if event.message is not None:
            payload |= self._message(event.message)
        if event.metadata is not None:
            if self._full:
                payload["metadata"] = event.metadata
            if PROGRESS in event.metadata:
                payload["progress"] = event.metadata[PROGRESS]
        if event.state not in FINAL:
            return EventBody(Kind.NOTIFICATION, STATUS, payload)
        status = Status(event.state, entry.at, event.message)
        result = result_out(self._ended(entry, status))
        if self._full:
            result.pop("parts", None)  # they were in the chunks
        payload |= result
        payload["result_summary"] = payload["result_summary"] or status.text
        payload["usage_stats"] = self._usage
        if event.state is not State.COMPLETED:
            payload["error"] = _failure(event.state, event.message, event.metadata)
        return EventBody(Kind.RESPONSE, DONE, payload)

    def _add(self, artifact: Artifact, *, append: bool) -> None:
        """Remembers a piece of an artifact for the `done` at the end."""
        if not append:
            self._made.pop(artifact.artifact_id, None)
        parts = self._made.setdefault(artifact.artifact_id, [])
        parts += (part for part in artifact.parts if not self._full or isinstance(part, Text))

    def _ended(self, entry: Stamped, status: Status) -> Task:
        """Returns the task as far as it was seen. If that was not from its beginning, the pieces of
        artifacts are not the whole result."""
        made = self._made.items() if self._whole else ()
        artifacts = tuple(
            Artifact(artifact_id=id, parts=tuple(join_texts(parts))) for id, parts in made
        )
        return Task(
            id=entry.task_id, context_id=entry.context_id, status=status, artifacts=artifacts
        )

    def _asked_out(self, base: Payload, event: ev.Asked, entry: Stamped) -> EventBody:
        id = question_id(entry.task_id, event.question)
        payload = {**base, **_question(event.kind, id, event.message.text, event.body)}
        if self._full:
            payload |= {"question": event.question, **self._message(event.message)}
        return EventBody(Kind.REQUEST, ASKS[event.kind], payload, id)

    def _chunk_out(self, base: Payload, event: ev.ArtifactChunk, entry: Stamped) -> EventBody:
        artifact = event.artifact
        self._add(artifact, append=event.append)
        payload: Payload = {
            **base,
            "index": self._chunks,
            "append": event.append,
            "last": event.last,
        }
        self._chunks += 1
        if event.metadata is not None:
            payload["metadata"] = event.metadata
        if self._full:
            payload["artifact"] = msgspec.to_builtins(artifact)
            return EventBody(Kind.CHUNK, "", payload)
        payload |= {"artifact_id": artifact.artifact_id, "text": artifact.text}
        return EventBody(Kind.CHUNK, "", payload | parts_out(artifact.parts))

    def _noted_out(self, base: Payload, event: ev.Noted, entry: Stamped) -> EventBody:
        body = event.body
        payload: Payload = {**_NOTE_OUT[event.kind](body), **base}
        if event.kind is Note.USAGE and isinstance(body, dict):
            self._usage |= body
        if event.state is not State.WORKING:
            payload["status"] = event.state.value
        if self._full:
            payload["body"] = body
        # R02: thoughts are sent in pieces, so each is a chunk.
        kind = Kind.CHUNK if event.kind is Note.THOUGHT else Kind.NOTIFICATION
        return EventBody(kind, NOTES[event.kind], payload)


_EVENTS_OUT: dict[type[ev.AnyEvent], Callable[..., EventBody]] = {
    ev.Opened: IatEventEncoder._opened_out,
    ev.Snapshot: IatEventEncoder._snapshot_out,
    ev.StateChanged: IatEventEncoder._state_out,
    ev.Asked: IatEventEncoder._asked_out,
    ev.ArtifactChunk: IatEventEncoder._chunk_out,
    ev.Noted: IatEventEncoder._noted_out,
}


def _log_out(body: Json) -> Payload:
    fields = body if isinstance(body, dict) else {"message": body}
    return {"level": "info", **fields}


def _thought_out(body: Json) -> Payload:
    return {"thought_text": body.get("text", "") if isinstance(body, dict) else body}


_NOTE_OUT: dict[Note, Callable[[Json], Payload]] = {
    Note.THOUGHT: _thought_out,
    Note.LOG: _log_out,
    Note.USAGE: lambda body: {"usage_stats": body},
}


def _question(kind: Ask, id: str, words: str, body: Json) -> Payload:
    match kind:
        case Ask.APPROVAL:
            risk = body.get("risk", "high") if isinstance(body, dict) else "high"
            return {"approval_id": id, "operation": words, "risk": risk, "details": body}
        case Ask.TOOL:
            return {"tool_name": words, "arguments": body}
        case _:
            return {"prompt": words, "details": body}


def _open_question(task_id: str, state: State, message: Message) -> Json:
    """Returns the open question of a waiting task, from its public status."""
    found = questions.question_in(message, state)
    if not found.name:  # it is answered by a message to the task
        return {"action": ASKS[Ask.INPUT], "prompt": found.prompt}
    id = question_id(task_id, found.name)
    asks = _question(found.kind, id, found.prompt, found.details)
    return {"action": ASKS[found.kind], "msg_id": id, **asks}


def _failure(state: State, message: Message | None, metadata: dict[str, Json] | None) -> Payload:
    known = (metadata or {}).get("reason") or ((message and message.metadata) or {}).get("reason")
    return {
        "code": known if isinstance(known, str) else state.value,
        "message": message.text if message and message.text else f"The task is {state.value}",
    }
