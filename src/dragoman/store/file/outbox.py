"""Webhooks of a file store: one small JSON file for each task that has any, replaced as a whole.

The log says what is due (see `store/outbox.py`). Only the outcome of deliveries is written here,
so nothing has to be written when an event happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..memory.outbox import MemoryOutbox
from ..memory.task_table import TaskTable
from ..outbox import HookCursor, head
from .damage import Quarantine
from .format import file_name
from .writer import clean_folder

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[HookCursor]).decode


class FileOutbox:
    """The folder with the webhooks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, task_id: str) -> Path:
        """Returns the file with the webhooks of a task."""
        return (self._folder / file_name(task_id)).with_suffix(".json")

    def recover(
        self, tasks: TaskTable, outbox: MemoryOutbox, now: int, damaged: Quarantine
    ) -> None:
        """Reads all files. A delivery that was under way when the process ended is due again."""
        clean_folder(self._folder)
        for path in self._folder.glob("*.json"):
            if path.stem in damaged.names:
                damaged.put(path, "its task is damaged")
                continue
            try:
                cursors = _decode(path.read_bytes())
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                damaged.put(path, error)
                continue
            kept = [cursor for cursor in cursors if cursor.hook.task_id in tasks]
            if not kept:
                path.unlink()  # its task was never acknowledged, or was dropped
            for cursor in kept:
                row = tasks.row_of(cursor.hook.task_id)
                # The row knows the agent; a cursor of an older version does not.
                cursor = replace(cursor, last=row.last_seq, scope=row.scope, taken=0)
                due_at = (cursor.due_at or now) if head(cursor) is not None else 0
                outbox.keep(replace(cursor, due_at=due_at))


def content(cursors: Iterable[HookCursor]) -> bytes:
    """Returns the content of the file for the webhooks of one task; it is empty if there are
    none."""
    # One line for each webhook is easier to read than one for all.
    lines = [_encode(cursor) for cursor in cursors]
    return b"[" + b",\n ".join(lines) + b"]\n" if lines else b""
