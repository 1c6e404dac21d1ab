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
    """`statusUpdate`, `artifactUpdate`, `task` or `message`, with the number it has in its log."""
    told = _plain(event_out(entry, True))
    return {**told, "seq": entry.seq} if isinstance(entry, Stamped) and entry.seq else told


def result(found: Task | Message) -> dict[str, Any]:
    """The `task`, or the `message` of an agent that replies without one."""
    return {"task": task(found)} if isinstance(found, Task) else {"message": message(found)}


def task(found: Task) -> dict[str, Any]:
    """A task."""
    return _plain(task_out(found))


def message(found: Message) -> dict[str, Any]:
    """A message."""
    return _plain(message_out(found))


def hook(found: Hook) -> dict[str, Any]:
    """A webhook, without what proves who calls it: output ends up in logs."""
    told = _plain(hook_out(found))
    told.pop("token", None)
    if isinstance(told.get("authentication"), dict):
        told["authentication"].pop("credentials", None)
    return told


def show(value: object) -> None:
    """One line of it on standard output."""
    print(msgspec.json.encode(value).decode(), flush=True)


def _plain(wire: object) -> dict[str, Any]:
    found = msgspec.json.decode(msgspec.json.encode(wire))
    return found if isinstance(found, dict) else {}
