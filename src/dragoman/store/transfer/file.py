"""Exports and imports everything in the folder of a file store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from dragoman.core.events import Stamped
from dragoman.core.model import State

from ..codec import pack, pack_piece, unpack_input, unpack_piece, unpack_task
from ..file.format import (
    FileLine,
    describe,
    entries_in,
    entries_out,
    file_name,
    line_of,
    read_lines,
)
from ..file.outbox import FileOutbox, content
from ..file.task_files import TaskFiles
from ..memory.collections import MemoryCollections
from ..writes import Record
from .memory import MemoryTransfer
from .stored_task import CopyMark, StoredTask, stored_task

MARK = "copy.json"


class FileStoreTransfer(MemoryTransfer):
    """Implements `TransferStore`: finished tasks are read from their files."""

    def __init__(
        self,
        collections: MemoryCollections,
        folder: Path,
        files: TaskFiles,
        hooks: FileOutbox,
        restore: Callable[[str, Path], None],
    ) -> None:
        """`restore` takes a task from its file into memory."""
        super().__init__(collections)
        self._folder, self._files, self._hooks = folder, files, hooks
        self._restore = restore

    async def _export(self, task_id: str) -> StoredTask:
        if task_id in self._tasks.live:
            return await self._files.observe(super()._export, task_id)
        frozen = self._tasks.finished[task_id]
        lines = await asyncio.to_thread(read_lines, self._path(task_id))
        records: dict[str, Record] = {}
        for line in lines:
            for record in line.records:
                records.setdefault(record.key, record)
        task = lines[-1].task if lines else None
        return stored_task(
            frozen.row,
            pieces=[pack_piece(entries_in(line)) for line in lines if line.events],
            task=pack(task) if task is not None else b"",
            dropped=not frozen.whole,
            keys=self._keys(frozen),
            inputs=[pack(line.said) for line in lines if line.said is not None],
            records=records.values(),
            hooks=self._outbox.of(task_id),
        )

    async def import_tasks(self, tasks: list[StoredTask]) -> None:
        for each in tasks:
            task_id = each.row.task_id
            self._outbox.drop(task_id)
            # The webhooks come first, as when a task is created: those without a task are removed
            # at the next start.
            cursors = self.keep_hooks(each)
            await self._files.replace(self._hooks.path(task_id), content(cursors))
            await self._files.put(task_id, _lines(each))
            self._restore(task_id, self._path(task_id))

    def _path(self, task_id: str) -> Path:
        return self._folder / "tasks" / file_name(task_id)

    async def read_mark(self) -> CopyMark | None:
        try:
            data = await asyncio.to_thread((self._folder / MARK).read_bytes)
        except FileNotFoundError:
            return None
        return msgspec.json.decode(data, type=CopyMark)

    async def write_mark(self, mark: CopyMark) -> None:
        await self._files.replace(self._folder / MARK, msgspec.json.encode(mark) + b"\n")


def _lines(each: StoredTask) -> list[FileLine]:
    """Returns the lines of a task's file: one for each write of its log, and one for each message.
    What the rows between them were is not known; only the last one counts."""
    row = each.row
    opening, bare = each.split_keys()
    inputs = [unpack_input(body) for body in each.inputs]
    keys = [said.key for said in inputs if said.key is not None] + bare
    if each.dropped:
        last = line_of(row, row.status_at, f"{row.state.value}; log dropped")
        last.dropped, last.task = True, unpack_task(each.task)
        last.key, last.keys = opening, keys
        return [last]
    lines = [_line(each, unpack_piece(piece)) for piece in each.pieces]
    before_end = lines[-1:] if row.final else []
    lines = lines[: len(lines) - len(before_end)]
    for said in inputs:
        line = line_of(lines[-1].row if lines else row, row.status_at, "the caller sent a message")
        line.said = said
        lines.append(line)
    lines += before_end
    lines[0].key = opening
    last = lines[-1]
    last.row, last.records = row, list(each.records)
    if row.final:
        last.task, last.key, last.keys = unpack_task(each.frozen), opening, keys
    return lines


def _line(each: StoredTask, entries: list[Stamped]) -> FileLine:
    last = entries[-1]
    row = replace(each.row, last_seq=last.seq, state=State.WORKING)
    line = line_of(row, last.at, describe(entries))
    line.events = entries_out(entries)
    return line
