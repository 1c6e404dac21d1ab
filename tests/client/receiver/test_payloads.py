"""Bodies of every version of A2A, ours and those that other senders are known to post."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.client.receiver import entry_in, read
from dragoman.core.events import (
    AnyEvent,
    ArtifactChunk,
    Ask,
    Asked,
    Opened,
    Snapshot,
    Stamped,
    StateChanged,
)
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Artifact, Data, Hook, Link, Message, Role, State, Task, Text
from dragoman.dialects import a2a
from dragoman.dialects.a2a.push import push, wants_task

DIALECTS = ("a2a-0.2", *(each.name for each in a2a.DIALECTS if each.callee))
AT = 1_800_000_000_000


def said(text: str, role: Role = Role.AGENT) -> Message:
    return Message(
        message_id=f"m-{text}", role=role, parts=(Text(text),), context_id="c", task_id="t"
    )


EVENTS: tuple[AnyEvent, ...] = (
    Opened(message=said("hello", Role.USER)),
    StateChanged(state=State.WORKING),
    ArtifactChunk(artifact=Artifact(artifact_id="result", parts=(Text("one "),))),
    ArtifactChunk(artifact=Artifact(artifact_id="result", parts=(Text("two"),)), append=True),
    Asked(question="q", kind=Ask.INPUT, message=said("Which?")),
    StateChanged(state=State.WORKING, heard=said("this", Role.USER)),
    ArtifactChunk(
        artifact=Artifact(artifact_id="data", parts=(Data({"n": 1}), Link("https://a.example/f")))
    ),
    StateChanged(state=State.COMPLETED, message=said("done")),
)


def log() -> list[tuple[Stamped, Task]]:
    """A life: each event, and the task as it stood after it."""
    fold, life = Fold("t", "c"), []
    for seq, event in enumerate(EVENTS, 1):
        entry = Stamped("t", "c", seq, AT + seq, event)
        fold.add(entry)
        life.append((entry, fold.task()))
    return life


def test_a_webhook_of_0_3_is_told_the_task_whatever_wire_it_was_set_over() -> None:
    entry, task = log()[-1]
    hook = Hook(hook_id="t", task_id="t", url="", dialect="a2a-0.3")
    rest, grpc = (replace(hook, dialect=f"a2a-0.3-{wire}") for wire in ("rest", "grpc"))
    assert push(hook, entry, task) == push(rest, entry, task) == push(grpc, entry, task)
    assert wants_task(hook)
    assert wants_task(rest)
    assert wants_task(grpc)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_we_send_is_what_is_heard(dialect: str) -> None:
    hook = Hook(hook_id="t", task_id="t", url="", dialect=dialect)
    for entry, task in log():
        body, _ = push(hook, entry, task if wants_task(hook) else None)
        notice = read(body, f"t.{entry.seq}")
        assert notice.task_id == "t"
        assert isinstance(notice.entry, Stamped)
        assert notice.entry.seq == entry.seq
        if wants_task(hook):
            assert notice.task is not None
            assert notice.task.text == task.text
            assert notice.state is _as_told(task.state, dialect)
        elif isinstance(entry.event, ArtifactChunk):
            assert notice.entry.event == entry.event
        elif isinstance(entry.event, StateChanged):
            assert notice.state is entry.event.state


def _as_told(state: State, dialect: str) -> State:
    return State.INPUT_REQUIRED if state is State.AUTH_REQUIRED and dialect != "a2a-1.0" else state


def _text(kind: str) -> dict[str, Any]:
    return {kind: "text", "text": "hi"} if kind else {"text": "hi"}


FOREIGN: dict[str, tuple[Any, type, str]] = {
    "a2a-sdk 1.3 task": (
        {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}},
        Snapshot,
        "completed",
    ),
    "a2a-sdk 1.3 status": (
        {
            "statusUpdate": {
                "taskId": "t",
                "contextId": "c",
                "status": {"state": "TASK_STATE_AUTH_REQUIRED"},
            }
        },
        StateChanged,
        "auth-required",
    ),
    "a2a-sdk 1.3 chunk": (
        {
            "artifactUpdate": {
                "taskId": "t",
                "contextId": "c",
                "artifact": {"artifactId": "a", "parts": [_text("")]},
                "lastChunk": True,
            }
        },
        ArtifactChunk,
        "",
    ),
    "a2a-sdk 0.3 task": (
        {
            "kind": "task",
            "id": "t",
            "contextId": "c",
            "status": {"state": "input-required"},
            "artifacts": [{"artifactId": "a", "parts": [_text("kind")]}],
        },
        Snapshot,
        "input-required",
    ),
    "a2a-js 0.3 event": (
        {
            "kind": "status-update",
            "taskId": "t",
            "contextId": "c",
            "status": {"state": "working"},
            "final": False,
        },
        StateChanged,
        "working",
    ),
    "0.3 without its kind": (
        {"id": "t", "contextId": "c", "status": {"state": "failed"}},
        Snapshot,
        "failed",
    ),
    "0.1 task": (
        {
            "id": "t",
            "sessionId": "s",
            "status": {"state": "completed"},
            "artifacts": [{"index": 0, "parts": [_text("type")]}],
        },
        Snapshot,
        "completed",
    ),
    "0.1 without a session": ({"id": "t", "status": {"state": "working"}}, Snapshot, "working"),
    "a2a-go task": ({"id": "t", "status": {"state": "processing"}}, Snapshot, "working"),
    "0.1 chunk": (
        {"id": "t", "artifact": {"index": 0, "parts": [_text("type")]}},
        ArtifactChunk,
        "",
    ),
    "1.0 not wrapped": (
        {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_REJECTED"}},
        Snapshot,
        "rejected",
    ),
}


@pytest.mark.parametrize(("body", "kind", "state"), FOREIGN.values(), ids=FOREIGN.keys())
def test_what_others_send_is_heard(body: Any, kind: type, state: str) -> None:
    notice = read(json.dumps(body).encode())
    assert notice.task_id == "t"
    assert isinstance(notice.entry, Stamped)
    assert type(notice.entry.event) is kind
    assert (notice.state or "") == state


@pytest.mark.parametrize(
    "body",
    [
        {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [_text("")]}},
        {"kind": "message", "messageId": "m", "role": "agent", "parts": [_text("kind")]},
        {"messageId": "m", "role": "agent", "parts": [_text("kind")]},
        {"msg": {"messageId": "m", "role": "ROLE_AGENT", "content": [_text("")]}},
    ],
    ids=["1.0", "0.3", "0.3 without its kind", "0.3 REST"],
)
def test_a_message_is_heard_as_one(body: Any) -> None:
    found = entry_in(json.dumps(body).encode())
    assert isinstance(found, Message)
    assert (found.message_id, found.text) == ("m", "hi")


@pytest.mark.parametrize(("id", "seq"), [("t.7", 7), ("h.t.12", 12), ("t", 0), ("t.x", 0), ("", 0)])
def test_the_place_in_the_log_is_in_the_name(id: str, seq: int) -> None:
    body = json.dumps({"id": "t", "status": {"state": "working"}}).encode()
    entry = read(body, id).entry
    assert isinstance(entry, Stamped)
    assert entry.seq == seq
