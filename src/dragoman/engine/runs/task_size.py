"""The size of a task in characters and bytes: cheap to compute, and accurate enough for limits."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.core.model import AnyPart, Artifact, Blob, Data, Message, Task, Text


def weight(parts: Iterable[AnyPart]) -> int:
    """Returns the size of parts, in characters and bytes."""
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
    """Returns the size of a task's artifacts and messages, in characters and bytes."""
    items: list[Artifact | Message] = [*task.artifacts, *task.history]
    if task.status.message is not None:
        items.append(task.status.message)
    return sum(weight(item.parts) for item in items)
