"""Counts how much of a workspace is used, as files are written."""

from __future__ import annotations

import io
import os
import threading
from typing import IO, Any

from dragoman.core.errors import TooLarge

from .openat import FOLDER, Root, Steps
from .settings import Space


class Usage:
    """The used space of one folder, counted as files are written.

    It is measured before the first write, and again when the folder seems to be full, because other
    programs may have removed or added files.
    """

    def __init__(self, space: Space, root: Root, home: Steps) -> None:
        self.space = space
        self.home = home
        self._root = root
        self._lock = threading.Lock()
        self._size = self._files = 0
        self._measured = False

    def take(self, *, size: int = 0, files: int = 0) -> None:
        """Reserves room. Raises `TooLarge` if there is none."""
        if not size and not files:
            return
        with self._lock:
            fresh = not self._measured
            if fresh:
                self._look()
            if self._problem(size, files) and not fresh:
                self._look()
            if problem := self._problem(size, files):
                raise TooLarge(problem)
            self._size += size
            self._files += files

    def give(self, *, size: int = 0, files: int = 0) -> None:
        """Gives room back."""
        with self._lock:
            self._size = max(0, self._size - size)
            self._files = max(0, self._files - files)

    def check_file(self, size: int) -> None:
        """Raises `TooLarge` if one file would hold more than it may."""
        if size > self.space.file_size:
            raise TooLarge(f"A file of the workspace holds at most {self.space.file_size} bytes")

    def _look(self) -> None:
        folder = self._root.open(self.home, FOLDER)
        try:
            self._size, self._files = measured(folder)
        finally:
            os.close(folder)
        self._measured = True

    def _problem(self, size: int, files: int) -> str:
        if files and self._files + files > self.space.files:
            return f"The workspace is full: {self.space.files} files and folders at most"
        if size and self._size + size > self.space.size:
            return f"The workspace is full: {self.space.size} bytes at most"
        return ""


def measured(folder: int) -> tuple[int, int]:
    """Returns the number of bytes and of entries beneath an open folder. Links are counted, not
    followed."""
    size = files = 0
    for _, folders, names, at in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        files += len(folders) + len(names)
        for name in names:
            try:
                size += os.stat(name, dir_fd=at, follow_symlinks=False).st_size
            except FileNotFoundError:  # it was removed in the meantime
                files -= 1
    return size, files


class CountedFile(io.FileIO):
    """A file that takes room of a workspace as it grows."""

    def __init__(self, descriptor: int, mode: str, usage: Usage) -> None:
        super().__init__(descriptor, mode)
        self._usage = usage
        self._appends = "a" in mode

    def write(self, data: Any) -> int:
        """Writes as a file does. Raises `TooLarge`, and writes nothing, if there is no room."""
        size = os.fstat(self.fileno()).st_size
        start = size if self._appends else self.tell()
        self._grow(size, start + memoryview(data).nbytes)
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        """Truncates as a file does."""
        before, after = os.fstat(self.fileno()).st_size, self.tell() if size is None else size
        self._grow(before, after)
        cut = super().truncate(size)
        self._usage.give(size=max(0, before - after))
        return cut

    def _grow(self, before: int, after: int) -> None:
        if after > before:
            self._usage.check_file(after)
            self._usage.take(size=after - before)


def file_of(descriptor: int, mode: str, usage: Usage, encoding: str | None) -> IO[Any]:
    """Returns a file as `open` does, for a descriptor."""
    kind = mode[0].replace("x", "w")
    plus = "+" in mode
    raw = CountedFile(descriptor, f"{kind}b{'+' if plus else ''}", usage)
    whole: Any
    if plus:
        whole = io.BufferedRandom(raw)
    else:
        whole = io.BufferedReader(raw) if kind == "r" else io.BufferedWriter(raw)
    return whole if "b" in mode else io.TextIOWrapper(whole, encoding=encoding or "utf-8")
