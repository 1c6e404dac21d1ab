"""The one who writes the files of tasks, in its own thread.

Lines that came together for one task leave in one write and one fsync. A file that could not be
written is *broken*: what follows for it is refused until the store has read it back, because it
would continue something that never happened.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dragoman.core.errors import DragomanError, StoreUnavailable
from dragoman.core.log import Logger

from ..private_files import FILE, make_folder
from ..worker_thread import Job, Outcome
from .format import FileLine, line_out

log = Logger("store")

_NEW = ".new"
"""The ending of a file that will take the place of another one."""


class Book:
    """The file of one task, as long as someone may write to it."""

    __slots__ = ("broken", "path", "restored", "task_id")

    def __init__(self, task_id: str, path: Path) -> None:
        self.task_id = task_id
        self.path = path
        self.broken = False
        self.restored = False


class FileWriter:
    """Owns the folder of tasks."""

    def __init__(self, folder: Path, here: Callable[[], bool]) -> None:
        self._folder = folder
        self._here = here
        """Whether the store is still where it was opened."""
        self._waiting: dict[Book, list[tuple[int, bytes]]] = {}
        self._errors: dict[int, Exception] = {}
        self._now = 0
        self._made: dict[Book, list[int]] = {}

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Does the jobs in their order; lines for one file together."""
        for number, job in enumerate(jobs):
            self._now = number
            try:
                job.apply(self, job.argument)
            except Exception as error:
                # Whatever it is, it must not end the thread: all who wait would wait for ever.
                self._errors[number] = _failure(error)
        for book in list(self._waiting):
            self._flush(book)
        self._settle()
        if not self._here():
            # What was written now, nobody will find.
            gone = OSError(f"{self._folder} was deleted or replaced while it was in use")
            self._fail(list(range(len(jobs))), _failure(gone))
        outcomes: list[Outcome] = [(job, None, self._errors.get(n)) for n, job in enumerate(jobs)]
        self._errors.clear()
        return outcomes

    # Jobs.

    def write(self, argument: tuple[Book, FileLine]) -> None:
        """Adds a line to a file."""
        book, line = argument
        try:
            data = line_out(line)
        except DragomanError:
            self._flush(book)
            book.broken = True
            raise
        self._waiting.setdefault(book, []).append((self._now, data))

    def rewrite(self, argument: tuple[Book, Callable[[Path], list[FileLine]]]) -> None:
        """Replaces a file by an edited copy of it, all or nothing."""
        book, edited = argument
        self._flush(book)
        if book.broken:
            raise StoreUnavailable
        try:
            data = b"".join(line_out(line) for line in edited(book.path))
            _put(book.path, data)
            _sync(self._folder)
        except (OSError, DragomanError):
            book.broken = True
            raise

    def open(self, argument: tuple[Book, FileLine, Path, bytes]) -> None:
        """The first line of a file, and its hooks: both or none."""
        book, line, path, hooks = argument
        try:
            # Hooks without a task are nothing; a task without its hooks would be a loss.
            self.replace((path, hooks))
        except OSError:
            book.broken = True
            raise
        self.write((book, line))

    def replace(self, argument: tuple[Path, bytes]) -> None:
        """Puts a whole file in the place of another; an empty one removes it."""
        path, data = argument
        if not data:
            path.unlink(missing_ok=True)
            return
        _put(path, data)
        _sync(path.parent)

    def delete(self, book: Book) -> None:
        """Removes a file."""
        book.path.unlink(missing_ok=True)

    def refuse(self, error: Exception) -> None:
        """Reports a change that was refused, in its turn."""
        self._errors[self._now] = error

    def wait(self, _: None) -> None:
        """Does nothing: whoever waits for it knows that all before it is done."""

    # Files.

    def _flush(self, book: Book) -> None:
        waiting = self._waiting.pop(book, ())
        if not waiting:
            return
        numbers = [number for number, _ in waiting]
        if book.broken:
            self._fail(numbers, StoreUnavailable())
            return
        size = -1
        try:
            handle = os.open(book.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE)
            try:
                size = os.fstat(handle).st_size
                _write_all(handle, b"".join(data for _, data in waiting))
                os.fsync(handle)
            except OSError:
                # What was not acknowledged must not come back, be it half a line or a whole one
                # that may not have reached the disk.
                os.ftruncate(handle, size)
                raise
            finally:
                os.close(handle)
        except OSError as error:
            book.broken = True
            self._fail(numbers, _failure(error))
            return
        if size == 0:
            self._made[book] = numbers

    def _settle(self) -> None:
        """A new file is safe when its folder is."""
        if not self._made:
            return
        try:
            _sync(self._folder)
        except OSError as error:
            for book, numbers in self._made.items():
                book.broken = True
                book.path.unlink(missing_ok=True)
                self._fail(numbers, _failure(error))
        self._made.clear()

    def _fail(self, numbers: list[int], error: Exception) -> None:
        for number in numbers:
            self._errors.setdefault(number, error)

    def rest(self) -> None:
        """See `Side`."""

    def close(self) -> None:
        """Nothing is open between two batches."""


def clean_folder(folder: Path) -> None:
    """Makes a folder of the store, or removes the new files that a crash kept from taking the
    place of old ones."""
    make_folder(folder)
    for spare in folder.glob(f"*{_NEW}"):
        spare.unlink()


def _put(path: Path, data: bytes) -> None:
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
    """Names in a folder are safe only when the folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _failure(error: Exception) -> Exception:
    if isinstance(error, DragomanError):
        return error
    log.error("The file store failed", error=repr(error))
    failure = StoreUnavailable()
    failure.__cause__ = error
    return failure
