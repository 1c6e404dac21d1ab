"""How much a task holds, in characters and bytes: cheap to count, close enough for limits."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.core.model import AnyPart, Artifact, Blob, Data, Message, Task, Text


def weight(parts: Iterable[AnyPart]) -> int:
    """What parts hold, in characters and bytes."""
    total = 0
    for part in parts:
        if type(part) is Text:
            total += len(part.text)
        elif type(part) is Blob:
            total += len(part.content)
        elif type(part) is Data:
            total += len(msgspec.json.encode(part.value))
    return total


def task_weight(task: Task) -> int:
    """What a task's artifacts and messages hold, in characters and bytes."""
    items: list[Artifact | Message] = [*task.artifacts, *task.history]
    if task.status.message is not None:
        items.append(task.status.message)
    return sum(weight(item.parts) for item in items)
