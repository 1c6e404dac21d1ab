"""Events and answers out of IAT envelopes: what a caller reads.

What a foreign agent leaves out is made up. Real agents send a text and little else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.core import events as ev
from dragoman.core.events import Ask, Note, Stamped
from dragoman.core.model import Artifact, Json, Message, Role, State, Status, Task, Text

from .errors import error_in
from .events import ASKED, DONE, NOTED, STATES, Payload
from .wire import Kind


def entry_in(kind: Kind, action: str, said: Payload, call: str, count: int, at: int) -> Any:
    """The entry an envelope tells: `Stamped`, or the `Message` that is all there is.

    What a foreign agent leaves out is made up: the task is called like the call, events counted.
    Raises `msgspec.ValidationError`, or the error that is told.
    """
    if kind is Kind.RESPONSE and _is_reply(said):
        return msgspec.convert(said["message"], Message)
    if error_told(action, said):
        raise error_in(said["error"])
    task_id = said["task_id"] if isinstance(said.get("task_id"), str) else call
    context_id = _text(said.get("context_id"), "")
    seq = said["seq"] if isinstance(said.get("seq"), int) else count
    when = said["at"] if isinstance(said.get("at"), int) else at
    return Stamped(task_id, context_id, seq, when, event_in(kind, action, said, task_id))


def _is_reply(said: Payload) -> bool:
    """Whether this is a direct reply: a whole message, and no task."""
    return isinstance(said.get("message"), dict) and "task_id" not in said


def error_told(action: str, said: Payload) -> bool:
    """Whether this is an error about the call itself, and not the end of a task that failed."""
    return "error" in said and "status" not in said and action != DONE


def event_in(kind: Kind, action: str, said: Payload, task_id: str) -> ev.AnyEvent:
    """The event an envelope tells."""
    if "task" in said:
        return ev.Snapshot(task=msgspec.convert(said["task"], Task))
    if kind is Kind.REQUEST and action in ASKED:
        return _asked_in(ASKED[action], said, task_id)
    if action in NOTED:
        state = STATES.get(_text(said.get("status"), ""), State.WORKING)
        return ev.Noted(kind=NOTED[action], body=_note_in(NOTED[action], said), state=state)
    if kind is Kind.CHUNK:
        return _chunk_in(said)
    return _state_in(kind, said, task_id)


def _chunk_in(said: Payload) -> ev.ArtifactChunk:
    if "artifact" in said:
        artifact = msgspec.convert(said["artifact"], Artifact)
    else:
        words = said.get("text", said.get("content"))
        name = _text(said.get("artifact_id"), "result")
        artifact = Artifact(artifact_id=name, parts=(Text(_text(words, "")),))
    append, metadata = said.get("append"), said.get("metadata")
    return ev.ArtifactChunk(
        artifact=artifact,
        append=append if isinstance(append, bool) else True,
        last=said.get("last") is True,
        metadata=metadata if isinstance(metadata, dict) else None,
    )


def _state_in(kind: Kind, said: Payload, task_id: str) -> ev.StateChanged:
    state = STATES.get(_text(said.get("status"), ""))
    if state is None:
        over = State.FAILED if said.get("error") is not None else State.COMPLETED
        state = over if kind is Kind.RESPONSE else State.WORKING
    metadata = said.get("metadata")
    return ev.StateChanged(
        state=state,
        message=_message_in(said, task_id),
        metadata=metadata if isinstance(metadata, dict) else None,
    )


def _message_in(said: Payload, task_id: str) -> Message | None:
    if "message" in said and isinstance(said["message"], dict):
        return msgspec.convert(said["message"], Message)
    words = said.get("text")
    if "seq" not in said:  # a foreign agent, whose last words are all there is
        error = said.get("error")
        told = error_in(error).message if error is not None else None
        words = words or told or said.get("result_summary", said.get("result"))
    if not isinstance(words, str) or not words:
        return None
    return Message(
        message_id=f"{task_id}.said", role=Role.AGENT, parts=(Text(words),), task_id=task_id
    )


def _asked_in(kind: Ask, said: Payload, task_id: str) -> ev.Asked:
    words = said.get({Ask.APPROVAL: "operation", Ask.TOOL: "tool_name"}.get(kind, "prompt"))
    message = _message_in(said, task_id) or Message(
        message_id=f"{task_id}.asked",
        role=Role.AGENT,
        parts=(Text(_text(words, "")),),
        task_id=task_id,
    )
    return ev.Asked(
        question=_text(said.get("question"), ""),
        kind=kind,
        message=message,
        body=said.get("arguments" if kind is Ask.TOOL else "details"),
    )


def _note_in(kind: Note, said: Payload) -> Json:
    if "body" in said:
        return said["body"]
    match kind:
        case Note.THOUGHT:
            return {"text": said.get("thought_text", "")}
        case Note.USAGE:
            return said.get("usage_stats")
        case Note.LOG:
            ours = {"action", "task_id", "context_id", "seq", "at", "status"}
            return {key: value for key, value in said.items() if key not in ours}


def task_in(said: Payload, call: str, at: int) -> Task | Message:
    """The task an answer tells; of a foreign agent, what can be known of it."""
    if "task" in said:
        return msgspec.convert(said["task"], Task)
    if _is_reply(said):
        return msgspec.convert(said["message"], Message)
    task_id = _text(said.get("task_id"), call)
    changed = _state_in(Kind.RESPONSE, said, task_id)
    words = _text(said.get("result_summary", said.get("result")), "")
    made = Artifact(artifact_id="result", parts=(Text(words),))
    done = changed.state is State.COMPLETED
    used = said.get("usage_stats")
    return Task(
        id=task_id,
        context_id=_text(said.get("context_id"), ""),
        status=Status(changed.state, at, None if done else changed.message),
        artifacts=(made,) if done and words else (),
        usage=used if isinstance(used, dict) and used else None,
    )


def _text(said: Json, otherwise: str) -> str:
    return said if isinstance(said, str) and said else otherwise
