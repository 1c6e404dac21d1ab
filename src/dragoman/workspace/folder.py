"""Reads, writes, lists, moves and removes files beneath one folder."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import IO, Any, Literal

from msgspec import Struct

from .openat import FOLDER, PASSING, Root, Steps, steps_of, told_of, violation
from .usage import Usage, file_of

AnyPath = str | PurePath

Kind = Literal["file", "folder", "other"]

_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder"}
_FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "x": os.O_WRONLY, "a": os.O_WRONLY | os.O_APPEND}
_MODES = frozenset(
    f"{kind}{form}{plus}" for kind in "rwxa" for form in ("", "t", "b") for plus in ("", "+")
) | frozenset(f"{kind}+{form}" for kind in "rwxa" for form in "tb")


class Entry(Struct, frozen=True):
    """An entry of a folder."""

    name: str
    kind: Kind
    """The kind of entry. `other` is a link, a pipe or the like, which cannot be opened."""
    size: int
    """The size of a file in bytes."""


class Folder:
    """The blocking form of a workspace, for code in a thread.

    Paths are relative to the folder, with `/` between the names. A path that leads out of it (`..`,
    absolute paths, symbolic links, files with a second name elsewhere) raises `WorkspaceViolation`.
    A write beyond the limits raises `TooLarge`. All other errors are those of the built-in `open`,
    such as `FileNotFoundError`.
    """

    def __init__(self, root: Root, home: Steps, usage: Usage) -> None:
        self._root = root
        self._home = home
        self._usage = usage
        self._made = False

    def inside(self, path: AnyPath) -> Folder:
        """Returns the workspace of a folder within this one, for code that needs no more."""
        return Folder(self._root, (*self._home, *steps_of(path)), self._usage)

    # Files.

    def open(self, path: AnyPath, mode: str = "r", *, encoding: str | None = None) -> IO[Any]:
        """Opens a file like the built-in `open`; the default encoding of text is UTF-8."""
        if mode not in _MODES:
            raise ValueError(f"invalid mode: {mode!r}")
        descriptor = self._descriptor(path, mode)
        try:
            return file_of(descriptor, mode, self._usage, encoding)
        except BaseException:
            with suppress(OSError):  # the file object may have closed it already
                os.close(descriptor)
            raise

    def read_bytes(self, path: AnyPath) -> bytes:
        """Returns the content of a file."""
        with self.open(path, "rb") as file:
            found: bytes = file.read(self._usage.space.file_size + 1)
        self._usage.check_file(len(found))
        return found

    def read_text(self, path: AnyPath, *, encoding: str = "utf-8") -> str:
        """Returns the content of a file as text."""
        return self.read_bytes(path).decode(encoding)

    def write_bytes(self, path: AnyPath, data: bytes) -> None:
        """Replaces the content of a file atomically: a reader sees all of the old or all of the new
        content, even if the process dies."""
        self._usage.check_file(len(data))
        with self._parent(path) as (folder, name):
            old = self._entry(path, folder, name)
            if old is not None and not stat.S_ISREG(old.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            grown = len(data) - (old.st_size if old is not None else 0)
            self._usage.take(size=max(0, grown), files=0 if old is not None else 1)
            try:
                self._replace(folder, name, data, old)
            except BaseException:
                self._usage.give(size=max(0, grown), files=0 if old is not None else 1)
                raise
            self._usage.give(size=max(0, -grown))

    def write_text(self, path: AnyPath, text: str, *, encoding: str = "utf-8") -> None:
        """Replaces the content of a file with text, as `write_bytes` does."""
        self.write_bytes(path, text.encode(encoding))

    # Names.

    def list(self, path: AnyPath = ".") -> tuple[Entry, ...]:
        """Returns the entries of a folder, sorted by name."""
        with told_of(path):
            descriptor = self._root.open(self._steps(path), FOLDER)
            try:
                with os.scandir(descriptor) as found:
                    entries = [_entry(each) for each in found]
            finally:
                os.close(descriptor)
        return tuple(sorted((e for e in entries if e is not None), key=lambda entry: entry.name))

    def exists(self, path: AnyPath) -> bool:
        """Returns whether there is a file or a folder of that name."""
        if not steps_of(path):
            return True
        try:
            with self._parent(path) as (folder, name):
                return self._entry(path, folder, name) is not None
        except (FileNotFoundError, NotADirectoryError):
            return False

    def mkdir(self, path: AnyPath) -> None:
        """Makes a folder and its parents. A folder that exists is left as it is."""
        with told_of(path):
            steps = self._steps(path)
            for length in range(len(self._home) + 1, len(steps) + 1):
                self._make(steps[:length], counted=True)

    def remove(self, path: AnyPath) -> None:
        """Removes a file or an empty folder."""
        with self._parent(path) as (folder, name):
            found = self._entry(path, folder, name)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if stat.S_ISDIR(found.st_mode):
                os.rmdir(name, dir_fd=folder)
                self._usage.give(files=1)
            else:
                os.unlink(name, dir_fd=folder)
                self._usage.give(size=found.st_size, files=1)

    def rename(self, path: AnyPath, to: AnyPath) -> None:
        """Moves a file or a folder, and replaces a file that has the new name."""
        with (
            self._parent(path) as (folder, name),
            self._parent(to) as (new_folder, new_name),
        ):
            replaced = self._entry(to, new_folder, new_name)
            with told_of(path):
                found = self._entry(path, folder, name)
                if found is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)
            if replaced is not None and not os.path.samestat(found, replaced):
                size = replaced.st_size if stat.S_ISREG(replaced.st_mode) else 0
                self._usage.give(size=size, files=1)

    # How.

    def _steps(self, path: AnyPath) -> Steps:
        steps = steps_of(path)
        if not self._made:
            for length in range(1, len(self._home) + 1):
                self._make(self._home[:length], counted=length > len(self._usage.home))
            self._made = True
        return (*self._home, *steps)

    def _make(self, steps: Steps, *, counted: bool) -> None:
        try:
            os.close(self._root.open(steps, PASSING))
        except FileNotFoundError:
            if counted:
                self._usage.take(files=1)
            folder = self._root.open(steps[:-1], PASSING)
            try:
                os.mkdir(steps[-1], 0o700, dir_fd=folder)
            except FileExistsError:  # another process has made it in the meantime
                if counted:
                    self._usage.give(files=1)
                os.close(self._root.open(steps, PASSING))
            finally:
                os.close(folder)

    @contextmanager
    def _parent(self, path: AnyPath) -> Iterator[tuple[int, str]]:
        """Yields the open parent folder of a path, and the last name. Calls that take these two do
        not follow links."""
        if not steps_of(path):
            raise violation(path, "is the workspace itself")
        with told_of(path):
            *way, name = self._steps(path)
            folder = self._root.open(tuple(way), PASSING)
            try:
                yield folder, name
            finally:
                os.close(folder)

    def _entry(self, path: AnyPath, folder: int, name: str) -> os.stat_result | None:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return _looked_at(path, found)

    def _descriptor(self, path: AnyPath, mode: str) -> int:
        flags = os.O_RDWR | (_FLAGS[mode[0]] & os.O_APPEND) if "+" in mode else _FLAGS[mode[0]]
        if not steps_of(path):
            raise violation(path, "is the workspace itself")
        with told_of(path):
            descriptor = self._opened(self._steps(path), flags, mode[0])
            try:
                found = _looked_at(path, os.fstat(descriptor))
                if not stat.S_ISREG(found.st_mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if mode[0] == "w":  # a file is truncated only after it has been checked
                    os.ftruncate(descriptor, 0)
                    self._usage.give(size=found.st_size)
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

    def _opened(self, steps: Steps, flags: int, kind: str) -> int:
        if kind != "x":
            try:
                return self._root.open(steps, flags)
            except FileNotFoundError:
                if kind == "r":
                    raise
        self._usage.take(files=1)
        try:
            exclusive = os.O_EXCL if kind == "x" else 0
            return self._root.open(steps, flags | os.O_CREAT | exclusive, 0o666)
        except BaseException:
            self._usage.give(files=1)
            raise

    def _replace(self, folder: int, name: str, data: bytes, old: os.stat_result | None) -> None:
        draft = f".{secrets.token_hex(8)}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o666, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                if old is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) & 0o777)
            # Replaces the entry of this name, whatever it is by now; a link is not followed.
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise


def _looked_at(path: AnyPath, found: os.stat_result) -> os.stat_result:
    """Returns the entry if tools may touch it: a folder, or a file that has only this name. Raises
    `WorkspaceViolation` for any other entry."""
    if stat.S_ISDIR(found.st_mode):
        return found
    if stat.S_ISLNK(found.st_mode):
        raise violation(path, "is a link")
    if not stat.S_ISREG(found.st_mode):
        raise violation(path, "is no file")
    if found.st_nlink > 1:  # the other name may be anywhere
        raise violation(path, "has another name (a hard link)")
    return found


def _entry(each: os.DirEntry[str]) -> Entry | None:
    try:
        found = each.stat(follow_symlinks=False)
    except FileNotFoundError:  # it was removed in the meantime
        return None
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    return Entry(each.name, kind, found.st_size if kind == "file" else 0)


class Workspace:
    """The files that a task may touch: an async form of `Folder`. Nothing above its folder can be
    reached.

    `open` returns an ordinary file; read and write large files in a thread.
    """

    def __init__(self, folder: Folder) -> None:
        self.blocking = folder
        """The blocking form, for code in a thread."""

    def inside(self, path: AnyPath) -> Workspace:
        """Returns the workspace of a folder within this one, for code that needs no more."""
        return Workspace(self.blocking.inside(path))

    async def open(self, path: AnyPath, mode: str = "r", *, encoding: str | None = None) -> IO[Any]:
        """Opens a file like the built-in `open`; the default encoding of text is UTF-8."""
        return await asyncio.to_thread(self.blocking.open, path, mode, encoding=encoding)

    async def read_bytes(self, path: AnyPath) -> bytes:
        """Returns the content of a file."""
        return await asyncio.to_thread(self.blocking.read_bytes, path)

    async def read_text(self, path: AnyPath, *, encoding: str = "utf-8") -> str:
        """Returns the content of a file as text."""
        return await asyncio.to_thread(self.blocking.read_text, path, encoding=encoding)

    async def write_bytes(self, path: AnyPath, data: bytes) -> None:
        """Replaces the content of a file, completely or not at all."""
        await asyncio.to_thread(self.blocking.write_bytes, path, data)

    async def write_text(self, path: AnyPath, text: str, *, encoding: str = "utf-8") -> None:
        """Replaces the content of a file with text, as `write_bytes` does."""
        await asyncio.to_thread(self.blocking.write_text, path, text, encoding=encoding)

    async def list(self, path: AnyPath = ".") -> tuple[Entry, ...]:
        """Returns the entries of a folder, sorted by name."""
        return await asyncio.to_thread(self.blocking.list, path)

    async def exists(self, path: AnyPath) -> bool:
        """Returns whether there is a file or a folder of that name."""
        return await asyncio.to_thread(self.blocking.exists, path)

    async def mkdir(self, path: AnyPath) -> None:
        """Makes a folder and its parents. A folder that exists is left as it is."""
        await asyncio.to_thread(self.blocking.mkdir, path)

    async def remove(self, path: AnyPath) -> None:
        """Removes a file or an empty folder."""
        await asyncio.to_thread(self.blocking.remove, path)

    async def rename(self, path: AnyPath, to: AnyPath) -> None:
        """Moves a file or a folder, and replaces a file that has the new name."""
        await asyncio.to_thread(self.blocking.rename, path, to)
