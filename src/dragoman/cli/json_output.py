"""Results for programs: JSON as A2A 1.0 spells it, whatever was spoken on the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.core.events import Stamped
from dragoman.core.model import Hook, Message, Task
from dragoman.dialects.a2a.v1_0.calls import event_out
from dragoman.dialects.a2a.v1_0.convert import message_out, task_out
from dragoman.dialects.a2a.v1_0.hooks import hook_out


def event(entry: Stamped | Message) -> dict[str, Any]:
    """Returns an event as `statusUpdate`, `artifactUpdate`, `task` or `message`, with its number in
    the log."""
    told = _plain(event_out(entry, True))
    return {**told, "seq": entry.seq} if isinstance(entry, Stamped) and entry.seq else told


def result(found: Task | Message) -> dict[str, Any]:
    """Returns a result as `task`, or as the `message` of an agent that replies without one."""
    return {"task": task(found)} if isinstance(found, Task) else {"message": message(found)}


def task(found: Task) -> dict[str, Any]:
    """Returns a task as A2A 1.0 spells it."""
    return _plain(task_out(found))


def message(found: Message) -> dict[str, Any]:
    """Returns a message as A2A 1.0 spells it."""
    return _plain(message_out(found))


def hook(found: Hook) -> dict[str, Any]:
    """Returns a webhook without its secrets: output ends up in logs."""
    told = _plain(hook_out(found))
    told.pop("token", None)
    if isinstance(told.get("authentication"), dict):
        told["authentication"].pop("credentials", None)
    return told


def show(value: object) -> None:
    """Prints one line of JSON."""
    print(msgspec.json.encode(value).decode(), flush=True)


def _plain(wire: object) -> dict[str, Any]:
    found = msgspec.json.decode(msgspec.json.encode(wire))
    return found if isinstance(found, dict) else {}
