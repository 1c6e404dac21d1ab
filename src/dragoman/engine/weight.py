"""What a task weighs, in characters and bytes: it is in memory while it runs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model import AnyPart, Artifact, Blob, Data, Message, Task, Text


def weight(parts: Iterable[AnyPart]) -> int:
    """Of an artifact, or of something said."""
    total = 0
    for part in parts:
        if type(part) is Text:
            total += len(part.text)
        elif type(part) is Blob:
            total += len(part.content)
        elif type(part) is Data:
            total += len(msgspec.json.encode(part.value))
    return total


def weight_of(task: Task) -> int:
    """Of all that a task holds so far."""
    held: list[Artifact | Message] = [*task.artifacts, *task.history]
    if task.status.message is not None:
        held.append(task.status.message)
    return sum(weight(one.parts) for one in held)
