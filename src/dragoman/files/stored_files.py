"""The files of a server on disk, in one folder for each task.

A stored file begins with a header, so that its name and its content appear together or not at all.
The modification time is the time at which it may be deleted, so a clean-up opens no file. Names on
disk are digests that are computed here. Nothing that comes from outside is ever part of a path.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from dragoman.core.errors import TooLarge, TooMany
from dragoman.core.log import Logger
from dragoman.store.local.private_files import FILE, make_folder

log = Logger("files")
_ID = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})")
_MAGIC = b"dragoman-file 1\n"
_LENGTH = 4
_DRAFT = ".draft"
ABANDONED = 3600
"""Seconds after which an unfinished file is deleted."""


class FileHeader(Struct, frozen=True, omit_defaults=True):
    """The description of a stored file, beside its content."""

    name: str
    media_type: str = ""


class StoredFile(Struct, frozen=True):
    """A file that was found on disk."""

    path: Path
    header: FileHeader
    start: int
    """The offset at which its content begins."""
    size: int
    """The number of bytes of its content."""

    def content(self) -> bytes:
        """Returns the whole content."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read()


def folder_name(task_id: str) -> str:
    """Returns the name of the folder with the files of a task."""
    return hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class StoredFiles:
    """A folder of files. All methods block: call them in a thread."""

    def __init__(self, folder: Path, *, max_size: int, max_total: int) -> None:
        self.folder = folder
        self.max_size, self._max_total = max_size, max_total
        self._total: int | None = None
        self._lock = threading.Lock()

    def find(self, file_id: str) -> StoredFile | None:
        """Returns the file with this id, or None if there is none."""
        path = self._path(file_id)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                return _read(path, file)
        except FileNotFoundError:
            return None

    def draft(self, file_id: str, header: FileHeader | None, ending: str = "") -> FileDraft:
        """Starts to write a file. It can be found once the draft is committed. A file with an
        `ending`, such as `.png`, has no header and is never offered for download."""
        path = self.path(file_id, ending)
        make_folder(self.folder)
        make_folder(path.parent)
        return FileDraft(self, path, header)

    def path(self, file_id: str, ending: str = "") -> Path:
        """Returns the path of a file with an id of our own, whether it exists or not."""
        path = self._path(file_id)
        assert path is not None  # noqa: S101  our own ids only
        return path.with_name(f"{path.name}{ending}")

    def keep_until(self, file_id: str, expires: int, ending: str = "") -> bool:
        """Keeps a file at least until this time, in seconds since the epoch. Returns whether there
        is such a file."""
        path = self.path(file_id, ending)
        try:
            if path.stat().st_mtime < expires:
                os.utime(path, (expires, expires))
        except FileNotFoundError:
            return False
        return True

    def delete_task(self, task_id: str) -> None:
        """Deletes the files of a task."""
        shutil.rmtree(self.folder / folder_name(task_id), ignore_errors=True)
        self._total = None

    def sweep(self, now: float) -> int:
        """Deletes the files that have expired, and returns their number."""
        deleted = 0
        for path in self._all():
            with suppress(FileNotFoundError):
                limit = now - ABANDONED if path.name.endswith(_DRAFT) else now
                if path.stat().st_mtime < limit:
                    path.unlink()
                    deleted += 1
        if deleted:
            self._total = None
            for each in self.folder.iterdir():
                with suppress(OSError):  # it is not empty
                    each.rmdir()
        return deleted

    def reserve(self, size: int) -> None:
        """Counts bytes that are about to be written. Raises `TooMany` if there is no room."""
        with self._lock:
            if self._total is None:
                self._total = sum(_size(each) for each in self._all())
            if self._total + size > self._max_total:
                raise TooMany("There is no room for more files now; try again later")
            self._total += size

    def _path(self, file_id: str) -> Path | None:
        found = _ID.fullmatch(file_id)
        return None if found is None else self.folder / found[1] / found[2]

    def _all(self) -> Iterator[Path]:
        if not self.folder.is_dir():
            return
        for each in self.folder.iterdir():
            if each.is_dir() and not each.is_symlink():
                with suppress(FileNotFoundError):
                    yield from each.iterdir()


class FileDraft:
    """A file that is being written. It cannot be found until it is committed."""

    def __init__(self, files: StoredFiles, path: Path, header: FileHeader | None) -> None:
        self._files, self._final = files, path
        self._path = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_DRAFT}")
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE)
        self._file = open(handle, "wb")  # noqa: SIM115  it is closed by commit and discard
        if header is not None:
            about = msgspec.json.encode(header)
            self._file.write(_MAGIC + len(about).to_bytes(_LENGTH, "big") + about)
        self._size = 0

    def write(self, chunk: bytes | memoryview) -> None:
        """Appends content. Raises `TooLarge` if the file exceeds the maximum size, and `TooMany` if
        there is no room."""
        self._size += len(chunk)
        if self._size > self._files.max_size:
            raise TooLarge(f"The file is larger than {self._files.max_size} bytes")
        self._files.reserve(len(chunk))
        self._file.write(chunk)

    def commit(self, expires: int) -> None:
        """Makes the whole file available at once."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.utime(self._path, (expires, expires))
        self._path.replace(self._final)

    def discard(self) -> None:
        """Deletes the written content. A file that was committed stays."""
        self._file.close()
        self._path.unlink(missing_ok=True)


def _read(path: Path, file: IO[bytes]) -> StoredFile | None:
    start = len(_MAGIC) + _LENGTH
    head = file.read(start)
    length = int.from_bytes(head[len(_MAGIC) :], "big")
    try:
        if not head.startswith(_MAGIC):
            raise ValueError("it is none of ours")
        header = msgspec.json.decode(file.read(length), type=FileHeader)
    except ValueError as exc:
        log.warning("A stored file is damaged", file=path.name, why=exc)
        return None
    size = os.fstat(file.fileno()).st_size - start - length
    return StoredFile(path, header, start + length, size)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
