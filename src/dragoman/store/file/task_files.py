"""The files of tasks as the store writes them: through one thread, in order, and never half.

The store changes its memory first and hands the line over afterwards. A line that cannot be
written therefore has to be taken back: the store reads the file again (`restore`), and everything
that was handed over for that task in between is refused, because it would continue something that
never happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from dragoman.core.outage import Outage

from .. import rules
from ..local.worker_thread import WorkerThread
from ..writes import Done, resolve
from .damage import Damaged, Quarantine
from .format import FileLine, TaskFile, file_name, last_line, read_task, read_whole
from .writer import FileState, FileWriter, clean_folder

BATCH = 512
"""The maximum number of changes that share one write."""

P = ParamSpec("P")
R = TypeVar("R")


class TaskFiles:
    """The folder of tasks, and the changes that are on their way to it."""

    def __init__(self, folder: Path, restore: Callable[[str, Path], None]) -> None:
        self._folder = folder
        self._restore = restore
        """Called with a task and its file when a change could not be written."""
        self._states: dict[str, FileState] = {}
        self._pending = 0
        self._failures = 0
        self._thread: WorkerThread[FileWriter]

    def recover(self, damaged: Quarantine) -> list[TaskFile]:
        """Reads all tasks, before the thread is started. A file that cannot be read is put
        aside."""
        clean_folder(self._folder)
        found: list[TaskFile] = []
        for path in self._folder.glob("*.jsonl"):
            try:
                task = read_task(path)
            except Damaged as error:
                damaged.put(path, error)
                continue
            if task is None:
                path.unlink()  # its creation was never acknowledged
            else:
                found.append(task)
        return found

    def start(self, in_place: Callable[[], bool], outage: Outage) -> None:
        """Starts the thread. `in_place` says whether the folder is still the one it was."""
        writer = FileWriter(self._folder, in_place, outage)
        self._thread = WorkerThread("file", [writer], limit=BATCH, patient=True)

    async def close(self) -> None:
        """Writes what was handed over, then ends the thread."""
        await self._thread.close()
        self._states.clear()

    # Changes that are handed over.

    def write(self, line: FileLine, done: Done, wipe: tuple[int, ...] = ()) -> None:
        """Adds a line to the file of its task, and wipes the inputs with these numbers."""
        file, landed = self._expect(line, done)
        if wipe:
            # Credentials must not stay in a file, so the lines that hold them are rewritten.
            self._thread.submit(FileWriter.rewrite, (file, partial(_wipe, line, wipe)), landed)
        else:
            self._thread.submit(FileWriter.write, (file, line), landed)

    def open(self, line: FileLine, path: Path, hooks: bytes, done: Done) -> None:
        """Writes the first line of a file together with the file of its webhooks."""
        file, landed = self._expect(line, done)
        self._thread.submit(FileWriter.open, (file, line, path, hooks), landed)

    def refuse(self, error: Exception, done: Done) -> None:
        """Reports an error through the same queue, so that the answers for one task stay in
        their order."""
        self._thread.submit(FileWriter.refuse, error, done)

    def write_soon(self, line: FileLine) -> asyncio.Future[None]:
        """Adds a line; the future is done when it is on the disk."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.write(line, partial(resolve, future))
        return future

    def forget(self, task_id: str) -> None:
        """Forgets what is known about the file of a task that nobody writes to any more."""
        self._states.pop(task_id, None)

    def _expect(self, line: FileLine, done: Done) -> tuple[FileState, Done]:
        self._pending += 1
        file = self._state(line.row.task_id)
        return file, partial(self._after_write, file, done)

    def _state(self, task_id: str) -> FileState:
        file = self._states.get(task_id)
        if file is None:
            file = self._states[task_id] = FileState(task_id, self._folder / file_name(task_id))
        return file

    def _after_write(self, file: FileState, done: Done, error: Exception | None) -> None:
        self._pending -= 1
        if error is not None and file.broken and not file.restored:
            file.restored = True
            self._failures += 1
            self.forget(file.task_id)
            self._restore(file.task_id, file.path)
        done(error)

    # Changes that are waited for.

    async def drop_log(self, task_id: str) -> None:
        """Leaves only the last line of a finished task, without its events."""
        await self._thread.ask(FileWriter.rewrite, (self._state(task_id), _keep_last))

    async def put(self, task_id: str, lines: list[FileLine]) -> None:
        """Writes the whole file of a task, in place of the one that there is."""
        await self._thread.ask(FileWriter.rewrite, (self._state(task_id), lambda _: lines))
        self.forget(task_id)

    async def delete(self, task_id: str) -> None:
        """Deletes the file of a task."""
        await self._thread.ask(FileWriter.delete, self._state(task_id))
        self.forget(task_id)

    async def replace(self, path: Path, data: bytes) -> None:
        """Replaces any file of the store as a whole, or removes it if there is no data."""
        await self._thread.ask(FileWriter.replace, (path, data))

    async def observe(self, look: Callable[P, Awaitable[R]], *args: P.args, **kw: P.kwargs) -> R:
        """Reads from memory, and returns the result once everything that it shows is on the disk.
        If a write has failed, it reads again, because the change has been taken back."""
        while True:
            failures = self._failures
            seen = await look(*args, **kw)
            if self._pending:
                await self._thread.ask(FileWriter.wait, None)
            if failures == self._failures:
                return seen


def _wipe(line: FileLine, numbers: tuple[int, ...], path: Path) -> list[FileLine]:
    """Returns all lines of a file without the content of some inputs, and one more line."""
    found = read_whole(path)
    for old in found:
        if old.said is not None and old.said.n in numbers:
            old.said = rules.wipe(old.said)
    return [*found, line]


def _keep_last(path: Path) -> list[FileLine]:
    """Returns the line that ended a task, without its events."""
    last = last_line(path)
    if last is None:
        raise OSError(f"{path} is damaged: its last line")
    last.what, last.events, last.dropped = f"{last.row.state.value}; log dropped", [], True
    return [last]
