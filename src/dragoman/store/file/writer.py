"""Writes the files of a file store, in one thread.

The lines of a batch that belong to one task leave in one write and one fsync. A file that could not
be written is *broken*: later lines for it are refused until the store has read the file again,
because they would continue something that never happened.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dragoman.core.errors import DragomanError, StoreUnavailable
from dragoman.core.outage import Outage

from ..local.private_files import FILE, make_folder
from ..local.worker_thread import UNWRITABLE, Job, Outcome, report_unavailable
from .format import FileLine, line_out

_NEW = ".new"
"""The ending of a file that will take the place of another one."""


class FileState:
    """What the writer and the store know about the file of a task that may still change."""

    __slots__ = ("broken", "path", "restored", "task_id")

    def __init__(self, task_id: str, path: Path) -> None:
        self.task_id = task_id
        self.path = path
        self.broken = False
        """Whether a write failed. Set by the writer."""
        self.restored = False
        """Whether the store has read the file again since. Set by the store."""


class FileWriter:
    """Owns the folder of tasks. Every public method between `run` and `maintain` is a job."""

    def __init__(self, folder: Path, in_place: Callable[[], bool], outage: Outage) -> None:
        self._folder = folder
        self._outage = outage
        self._in_place = in_place
        """Whether the store is still where it was opened."""
        self._waiting: dict[FileState, list[tuple[int, bytes]]] = {}
        """The lines of this batch for each file, with the numbers of their jobs."""
        self._errors: dict[int, Exception] = {}
        """The errors of this batch, by the numbers of the jobs."""
        self._now = 0
        """The number of the job that is being done."""
        self._made: dict[FileState, list[int]] = {}
        """The files that this batch has made, with the numbers of the jobs that did."""

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Does the jobs in their order, and writes the lines for each file together."""
        for number, job in enumerate(jobs):
            self._now = number
            try:
                job.apply(self, job.argument)
            except Exception as error:
                # No error may end the thread: every caller that waits for it would wait forever.
                self._errors[number] = self._failure(error)
        for file in list(self._waiting):
            self._flush(file)
        self._settle()
        if not self._in_place():
            # The writes succeeded, but in a folder that nobody will ever open again.
            gone = OSError(f"{self._folder} was deleted or replaced while it was in use")
            self._fail(list(range(len(jobs))), self._failure(gone))
        if not self._errors:
            self._outage.end(UNWRITABLE)
        outcomes: list[Outcome] = [(job, None, self._errors.get(n)) for n, job in enumerate(jobs)]
        self._errors.clear()
        return outcomes

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, DragomanError):
            return error
        return report_unavailable(self._outage, UNWRITABLE, error)

    # Jobs.

    def write(self, argument: tuple[FileState, FileLine]) -> None:
        """Adds a line to a file."""
        file, line = argument
        try:
            data = line_out(line)
        except DragomanError:
            self._flush(file)
            file.broken = True
            raise
        self._waiting.setdefault(file, []).append((self._now, data))

    def rewrite(self, argument: tuple[FileState, Callable[[Path], list[FileLine]]]) -> None:
        """Replaces a file by an edited copy of it, whole or not at all."""
        file, edit = argument
        self._flush(file)
        if file.broken:
            raise StoreUnavailable
        try:
            data = b"".join(line_out(line) for line in edit(file.path))
            replace_file(file.path, data)
            _sync(self._folder)
        except (OSError, DragomanError):
            file.broken = True
            raise

    def open(self, argument: tuple[FileState, FileLine, Path, bytes]) -> None:
        """Writes the first line of a file and the webhooks of its task."""
        file, line, path, hooks = argument
        try:
            # The webhooks come first. If we crash in between, webhooks without a task are removed
            # at the next start; a task without its webhooks would never notify anyone.
            self.replace((path, hooks))
        except OSError:
            file.broken = True
            raise
        self.write((file, line))

    def replace(self, argument: tuple[Path, bytes]) -> None:
        """Replaces any file as a whole; without data it is removed."""
        path, data = argument
        if not data:
            path.unlink(missing_ok=True)
            return
        replace_file(path, data)
        _sync(path.parent)

    def delete(self, file: FileState) -> None:
        """Removes the file of a task."""
        file.path.unlink(missing_ok=True)

    def refuse(self, error: Exception) -> None:
        """Reports the error of a change that the store has refused, in its turn."""
        self._errors[self._now] = error

    def wait(self, _: None) -> None:
        """Does nothing. Jobs run in order, so when this one is done, all earlier ones are."""

    # Files.

    def _flush(self, file: FileState) -> None:
        waiting = self._waiting.pop(file, ())
        if not waiting:
            return
        numbers = [number for number, _ in waiting]
        if file.broken:
            self._fail(numbers, StoreUnavailable())
            return
        size = -1
        try:
            handle = os.open(file.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE)
            try:
                size = os.fstat(handle).st_size
                _write_all(handle, b"".join(data for _, data in waiting))
                os.fsync(handle)
            except OSError:
                # A line that was not acknowledged must not appear later. The file may hold a part
                # of it, or all of it without having reached the disk.
                os.ftruncate(handle, size)
                raise
            finally:
                os.close(handle)
        except OSError as error:
            file.broken = True
            self._fail(numbers, self._failure(error))
            return
        if size == 0:
            self._made[file] = numbers

    def _settle(self) -> None:
        """Syncs the folder if this batch has made files: the name of a new file survives a power
        cut only when its folder has been synced."""
        if not self._made:
            return
        try:
            _sync(self._folder)
        except OSError as error:
            for file, numbers in self._made.items():
                file.broken = True
                file.path.unlink(missing_ok=True)
                self._fail(numbers, self._failure(error))
        self._made.clear()

    def _fail(self, numbers: list[int], error: Exception) -> None:
        for number in numbers:
            self._errors.setdefault(number, error)

    def maintain(self) -> None:
        """Does nothing, because files need no maintenance."""

    def close(self) -> None:
        """Does nothing, because no file stays open between two batches."""


def clean_folder(folder: Path) -> None:
    """Makes a folder of the store, or removes the new files that a crash kept from taking the
    place of old ones."""
    make_folder(folder)
    for spare in folder.glob(f"*{_NEW}"):
        spare.unlink()


def replace_file(path: Path, data: bytes) -> None:
    """Replaces the content of a file. A crash leaves the old content or the new one."""
    spare = path.with_suffix(_NEW)
    handle = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE)
    try:
        _write_all(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    spare.replace(path)


def _sync(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
