"""Decodes events and answers from IAT envelopes, for the caller's side.

Members that another vendor's agent leaves out are filled in: real agents send a text and little
else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.core import events as ev
from dragoman.core.events import Ask, Note, Stamped
from dragoman.core.model import (
    AnyPart,
    Artifact,
    Data,
    Json,
    Message,
    Role,
    State,
    Status,
    Task,
    Text,
)

from .errors import error_in
from .events import ASK_OF, DONE, NOTE_OF, STATES, Payload
from .wire import Kind


def entry_in(kind: Kind, action: str, payload: Payload, call: str, count: int, at: int) -> Any:
    """Returns the entry in an envelope: `Stamped`, or the `Message` that is the whole answer.

    Members that another vendor's agent leaves out are filled in: the id of the call becomes the id
    of the task, and events are counted. Raises `msgspec.ValidationError`, or the error in the
    envelope.
    """
    if kind is Kind.RESPONSE and _is_reply(payload):
        return msgspec.convert(payload["message"], Message)
    if is_call_error(action, payload):
        raise error_in(payload["error"])
    task_id = payload["task_id"] if isinstance(payload.get("task_id"), str) else call
    context_id = _text_or(payload.get("context_id"), "")
    seq = payload["seq"] if isinstance(payload.get("seq"), int) else count
    when = payload["at"] if isinstance(payload.get("at"), int) else at
    return Stamped(task_id, context_id, seq, when, event_in(kind, action, payload, task_id))


def _is_reply(payload: Payload) -> bool:
    """Returns whether this is a direct reply: a whole message, and no task."""
    return isinstance(payload.get("message"), dict) and "task_id" not in payload


def is_call_error(action: str, payload: Payload) -> bool:
    """Returns whether this is an error about the call itself, and not the end of a task that
    failed."""
    return "error" in payload and "status" not in payload and action != DONE


def event_in(kind: Kind, action: str, payload: Payload, task_id: str) -> ev.AnyEvent:
    """Returns the event in an envelope."""
    if "task" in payload:
        return ev.Snapshot(task=msgspec.convert(payload["task"], Task))
    if kind is Kind.REQUEST and action in ASK_OF:
        return _asked_in(ASK_OF[action], payload, task_id)
    if action in NOTE_OF:
        state = STATES.get(_text_or(payload.get("status"), ""), State.WORKING)
        return ev.Noted(kind=NOTE_OF[action], body=_note_in(NOTE_OF[action], payload), state=state)
    if kind is Kind.CHUNK:
        return _chunk_in(payload)
    return _state_in(kind, payload, task_id)


def _chunk_in(payload: Payload) -> ev.ArtifactChunk:
    if "artifact" in payload:
        artifact = msgspec.convert(payload["artifact"], Artifact)
    else:
        words = payload.get("text", payload.get("content"))
        name = _text_or(payload.get("artifact_id"), "result")
        parts = parts_in(payload) or (Text(_text_or(words, "")),)
        artifact = Artifact(artifact_id=name, parts=parts)
    append, metadata = payload.get("append"), payload.get("metadata")
    return ev.ArtifactChunk(
        artifact=artifact,
        append=append if isinstance(append, bool) else True,
        last=payload.get("last") is True,
        metadata=metadata if isinstance(metadata, dict) else None,
    )


def _state_in(kind: Kind, payload: Payload, task_id: str) -> ev.StateChanged:
    state = STATES.get(_text_or(payload.get("status"), ""))
    if state is None:
        over = State.FAILED if payload.get("error") is not None else State.COMPLETED
        state = over if kind is Kind.RESPONSE else State.WORKING
    metadata = payload.get("metadata")
    return ev.StateChanged(
        state=state,
        message=_message_in(payload, task_id),
        metadata=metadata if isinstance(metadata, dict) else None,
    )


def _message_in(payload: Payload, task_id: str) -> Message | None:
    if "message" in payload and isinstance(payload["message"], dict):
        return msgspec.convert(payload["message"], Message)
    words = payload.get("text")
    parts: tuple[AnyPart, ...] = ()
    metadata: dict[str, Json] | None = None
    if "seq" not in payload:  # another vendor's agent, which sends only a final text
        if payload.get("error") is not None:
            error = error_in(payload["error"])
            words = words or error.message
            metadata = {"reason": error.reason} if isinstance(payload["error"], dict) else None
        else:
            words = words or payload.get("result_summary", payload.get("result"))
            parts = parts_in(payload)
    parts = parts or _result_in(words)
    if not parts:
        return None
    return Message(
        message_id=f"{task_id}.said",
        role=Role.AGENT,
        parts=parts,
        task_id=task_id,
        metadata=metadata,
    )


def _result_in(result: Json) -> tuple[AnyPart, ...]:
    """Returns a result that is a text or, at agents of other vendors, any value."""
    if result is None or result == "":
        return ()
    return (Text(result) if isinstance(result, str) else Data(result),)


def parts_in(payload: Payload) -> tuple[AnyPart, ...]:
    """Returns the `parts` beside a text. The requirement has no such member, so one that is spelled
    in another way means something else, and the text counts alone."""
    try:
        return msgspec.convert(payload.get("parts") or (), tuple[AnyPart, ...])
    except msgspec.ValidationError:
        return ()


def _asked_in(kind: Ask, payload: Payload, task_id: str) -> ev.Asked:
    words = payload.get({Ask.APPROVAL: "operation", Ask.TOOL: "tool_name"}.get(kind, "prompt"))
    message = _message_in(payload, task_id) or Message(
        message_id=f"{task_id}.asked",
        role=Role.AGENT,
        parts=(Text(_text_or(words, "")),),
        task_id=task_id,
    )
    return ev.Asked(
        question=_text_or(payload.get("question"), ""),
        kind=kind,
        message=message,
        body=payload.get("arguments" if kind is Ask.TOOL else "details"),
    )


def _note_in(kind: Note, payload: Payload) -> Json:
    if "body" in payload:
        return payload["body"]
    match kind:
        case Note.THOUGHT:
            return {"text": payload.get("thought_text", "")}
        case Note.USAGE:
            return payload.get("usage_stats")
        case Note.LOG:
            ours = {"action", "task_id", "context_id", "seq", "at", "status"}
            return {key: value for key, value in payload.items() if key not in ours}


def task_in(payload: Payload, call: str, at: int) -> Task | Message:
    """Returns the task in an answer or, of another vendor's agent, as much of it as is known."""
    if "task" in payload:
        return msgspec.convert(payload["task"], Task)
    if _is_reply(payload):
        return msgspec.convert(payload["message"], Message)
    task_id = _text_or(payload.get("task_id"), call)
    changed = _state_in(Kind.RESPONSE, payload, task_id)
    parts = parts_in(payload) or _result_in(payload.get("result_summary", payload.get("result")))
    done = changed.state is State.COMPLETED
    used = payload.get("usage_stats")
    return Task(
        id=task_id,
        context_id=_text_or(payload.get("context_id"), ""),
        status=Status(changed.state, at, None if done else changed.message),
        artifacts=(Artifact(artifact_id="result", parts=parts),) if done and parts else (),
        usage=used if isinstance(used, dict) and used else None,
    )


def _text_or(payload: Json, otherwise: str) -> str:
    return payload if isinstance(payload, str) and payload else otherwise
