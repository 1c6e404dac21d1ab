"""Reads finished tasks of a file store from their files, when they are requested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dragoman.core.events import Stamped
from dragoman.core.log import Logger
from dragoman.core.model import Task

from ..writes import Record
from .format import entries_in, file_name, last_line, read_lines

log = Logger("store")

A = TypeVar("A")
R = TypeVar("R")

MAX_DECODED_LOGS = 16
"""The number of logs that stay decoded, so that reading a log page by page is not quadratic."""
READER_THREADS = 2


class FileReader:
    """Reads the files of finished tasks, which no longer change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recent: dict[str, list[Stamped]] = {}
        self._threads: ThreadPoolExecutor

    def start(self) -> None:
        """Starts threads of its own: those of the loop may all be busy with other people's code."""
        self._threads = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="dragoman-file-read")

    async def tasks(self, task_ids: list[str]) -> list[Task | None]:
        """Returns the tasks as they ended, or None for one whose file is gone or damaged."""
        return await self._in_thread(self._tasks, task_ids)

    async def log(self, task_id: str) -> list[Stamped]:
        """Returns all events of a task, or none if its file is gone."""
        entries = self._recent.get(task_id)
        if entries is None:
            entries = self._recent[task_id] = await self._in_thread(self._log, task_id)
            if len(self._recent) > MAX_DECODED_LOGS:
                del self._recent[next(iter(self._recent))]
        return entries

    async def records(self, task_id: str) -> list[Record]:
        """The recorded calls of a task; none if its file is gone."""
        return await self._in_thread(self._records, task_id)

    def forget(self, task_id: str) -> None:
        """Forgets a log, because the file of its task is about to change."""
        self._recent.pop(task_id, None)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False)

    async def _in_thread(self, read: Callable[[A], R], of: A) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, read, of)

    def _tasks(self, task_ids: list[str]) -> list[Task | None]:
        found: list[Task | None] = []
        for task_id in task_ids:
            path = self._folder / file_name(task_id)
            try:
                last = last_line(path)
                if last is None:
                    log.error("A file is damaged", file=path, where="its last line")
            except FileNotFoundError:
                last = None
            found.append(last.task if last is not None else None)
        return found

    def _log(self, task_id: str) -> list[Stamped]:
        try:
            found = read_lines(self._folder / file_name(task_id))
        except FileNotFoundError:
            return []
        return [entry for line in found for entry in entries_in(line)]

    def _records(self, task_id: str) -> list[Record]:
        try:
            found = read_lines(self._folder / file_name(task_id))
        except FileNotFoundError:
            return []
        kept: dict[str, Record] = {}
        for line in found:
            for record in line.records:
                kept.setdefault(record.key, record)
        return list(kept.values())
