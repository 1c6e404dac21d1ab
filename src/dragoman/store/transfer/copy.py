"""Copies a store to another one, while the source may go on changing.

Theory. A pass compares the versions of all tasks in both stores, page by page, and copies what
differs; whatever has gone from the source is dropped from the copy. So each pass makes the copy
what the source was, and a copy that was interrupted goes on with the next pass. A pass during which
nothing changed at the source leaves the two equal. This is why the last pass comes after the last
server has left the source, and why only then the copy is marked as complete.

A task that the target cannot hold, such as one with NUL in an id, which PostgreSQL refuses, is
skipped: it is named, and everything else is copied and compared without it.

No server starts on an incomplete copy: a task would run there and at the source.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.core.errors import ConfigError, StoreError, StoreUnavailable

from ..clock import Clock
from ..interface import Store
from .stored_task import CopyMark, StoredTask, TaskVersion

PAGE = 1000
"""The number of tasks whose versions are compared at a time."""
BATCH = 200
"""The maximum number of tasks that are copied in one transaction."""
LARGE = 16 * 1024 * 1024
"""The bytes that a transaction should not exceed. What tasks weigh is known only when they are
read, so the number of tasks of a transaction follows from those before it."""
PASSES = 10
"""How often a pass is repeated until it finds nothing to copy."""

Progress = Callable[[int], None]
"""Called with the number of tasks that are known to be the same at both ends."""
OnSkip = Callable[[str, StoreError], None]
"""Called with the id of a task that the target cannot hold, and with the reason."""


class StoreCopy:
    """A copy of one store to another. Both are open."""

    def __init__(
        self,
        source: Store,
        target: Store,
        origin: str,
        clock: Clock,
        on_skip: OnSkip = lambda task_id, error: None,
    ) -> None:
        """`origin` says where the source is, without secrets."""
        self._source, self._target = source, target
        self._origin, self._clock = origin, clock
        self._batch = max(1, BATCH // 20)
        """The number of tasks of the next transaction."""
        self._on_skip = on_skip
        self._skipped: dict[str, tuple[object, ...]] = {}
        """The versions of the tasks that the target cannot hold. Such a task is tried again when it
        has changed."""

    async def begin(self) -> bool:
        """Checks both stores and marks the target as a copy. Returns whether the copy was begun
        before, and is continued."""
        await refuse_incomplete_copy(self._source)
        mark = await self._target.transfer.read_mark()
        if mark is None:
            await self._check_empty()
            mark = CopyMark(source=self._origin, begun_at=self._clock())
            await self._target.transfer.write_mark(mark)
            return False
        if mark.source != self._origin:
            raise ConfigError(f"The target is a copy of {mark.source}, and not of {self._origin}.")
        if mark.finished_at:
            raise ConfigError(
                "The target is a complete copy already, and servers may have changed it since. "
                "Copy into an empty store."
            )
        return True

    async def _check_empty(self) -> None:
        held = await self._target.transfer.count()
        held |= (await self._target.transfer.export_collections()).count()
        found = [f"{n} {name}" for name, n in held.items() if n]
        if found or await self._target.list_workers():
            what = ", ".join(found) or "a server that uses it"
            raise ConfigError(
                f"The target is not empty and not a copy that was begun: it has {what}. "
                "Name an empty store."
            )

    async def servers(self) -> int:
        """Returns how many processes work on the source."""
        return len(await self._source.list_workers())

    async def count_tasks(self) -> int:
        """Returns how many tasks the source has."""
        return (await self._source.transfer.count())["tasks"]

    async def run_pass(self, progress: Progress = lambda done: None) -> int:
        """Copies what differs. Returns how many tasks and collections that were."""
        after, changed, done = "", 0, 0
        while True:
            page = await self._source.transfer.versions(after, PAGE)
            last = page[-1].task_id if len(page) == PAGE else None
            changed += await self._copy_page(after, last, page, progress, done)
            done += len(page)
            progress(done)
            if last is None:
                break
            after = last
        return changed + await self._copy_collections()

    async def _copy_page(
        self, after: str, last: str | None, page: list[TaskVersion], progress: Progress, done: int
    ) -> int:
        """Makes the tasks after one id, up to and including another, the same at both ends."""
        known = await self._known(after, last)
        differing = [
            name
            for name, version in page
            if known.pop(name, None) != version and self._skipped.get(name) != version
        ]
        versions = dict(page)
        gone = list(known)
        if gone:
            await self._target.erase(gone)
        same, copied = done + len(page) - len(differing), 0
        while copied < len(differing):
            names = differing[copied : copied + self._batch]
            tasks = await self._source.transfer.export_tasks(names)
            failures = await self._import(tasks)
            for task_id, error in failures:
                if task_id not in self._skipped:
                    self._on_skip(task_id, error)
                self._skipped[task_id] = versions[task_id]
            if self._skipped:
                for name in set(names) - {task_id for task_id, _ in failures}:
                    self._skipped.pop(name, None)  # it has changed, and could be copied now
            copied += len(names)
            progress(same + copied)
            heavy = sum(each.weight for each in tasks) > LARGE
            self._batch = max(1, self._batch // 2) if heavy else min(BATCH, self._batch * 2)
        return len(differing) + len(gone)

    async def _import(self, tasks: list[StoredTask]) -> list[tuple[str, StoreError]]:
        """Imports tasks together, or one at a time if that fails because of one of them. Returns
        those that cannot be imported."""
        try:
            await self._target.transfer.import_tasks(tasks)
            return []
        except StoreUnavailable:
            raise
        except StoreError as error:
            if len(tasks) == 1:
                return [(tasks[0].row.task_id, error)]
        return [failure for each in tasks for failure in await self._import([each])]

    async def _known(self, after: str, last: str | None) -> dict[str, tuple[object, ...]]:
        """Returns the versions that the target has of these tasks."""
        known: dict[str, tuple[object, ...]] = {}
        while True:
            page = await self._target.transfer.versions(after, PAGE)
            inside = [each for each in page if last is None or each.task_id <= last]
            known |= dict(inside)
            if len(page) < PAGE or len(inside) < len(page):
                return known
            after = page[-1].task_id

    async def _copy_collections(self) -> int:
        found = await self._source.transfer.export_collections()
        if found == await self._target.transfer.export_collections():
            return 0
        await self._target.transfer.import_collections(found)
        return 1

    async def finish(self, progress: Progress = lambda done: None) -> dict[str, tuple[int, int]]:
        """Makes the last pass, which needs a source that nobody changes, and marks the copy as
        complete if it is, apart from skipped tasks. Returns how many of each kind the source and
        the copy have, without the skipped tasks. Raises `ConfigError` if the source goes on
        changing."""
        for _ in range(PASSES):
            if not await self.run_pass(progress):
                break
        else:
            raise ConfigError(
                "The source goes on changing. Stop whatever writes to it, and run this again."
            )
        source, target = await _counts(self._source), await _counts(self._target)
        for task in await self._find_skipped():
            for name, n in task.count().items():
                source[name] -= n
        compared = {name: (n, target[name]) for name, n in source.items()}
        servers = await self.servers()
        if servers:
            raise ConfigError("A server has started on the source. Stop it, and run this again.")
        if all(ours == theirs for ours, theirs in compared.values()):
            mark = await self._target.transfer.read_mark()
            if mark is not None:
                await self._target.transfer.write_mark(replace(mark, finished_at=self._clock()))
        return compared

    async def count_skipped(self) -> int:
        """Returns how many tasks of the source the target cannot hold."""
        return len(await self._find_skipped())

    async def _find_skipped(self) -> list[StoredTask]:
        # Those that were removed from the source since then are left out.
        return await self._source.transfer.export_tasks(list(self._skipped))


async def _counts(store: Store) -> dict[str, int]:
    return await store.transfer.count() | (await store.transfer.export_collections()).count()


async def refuse_incomplete_copy(store: Store) -> None:
    """Raises `ConfigError` if the store is a copy of which a part is missing."""
    mark = await store.transfer.read_mark()
    if mark is not None and not mark.finished_at:
        raise ConfigError(
            f"This store is an incomplete copy of {mark.source}: let `dragoman data copy` finish."
        )
