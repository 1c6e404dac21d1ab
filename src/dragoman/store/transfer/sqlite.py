"""Exports and imports everything in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter

from .. import rules
from ..clock import Clock
from ..codec import pack, unpack_input
from ..outbox import LETTER
from ..sessions import UsedKey
from ..sqlite import statements as sql
from ..sqlite.collection import ConnectionAccess
from ..sqlite.outbox import SqliteOutbox
from ..task_row import Idempotency
from ..writes import Record
from .rows import COLLECTIONS, DROPPED, HOOK, hook_row, mark_in, rows_of, version_in
from .stored_task import (
    COUNTED,
    VERSIONED,
    Collections,
    CopyMark,
    HasCollections,
    StoredTask,
    TaskVersion,
    bare_input,
    collections_of,
    hooks_version,
    stored_task,
)

# The names of the columns are our own; every value from outside is bound. The last one is whether
# the task is runnable at a copy (`rules.unclaim`).
_VERSIONS = f"""
SELECT task_id, {", ".join(VERSIONED)}, cancel, ended, runnable OR (worker <> '' AND ended = 0
  AND (cancel OR NOT (state IN ('input-required', 'auth-required') AND inputs = heard)))
FROM task WHERE task_id > ? ORDER BY task_id LIMIT ?"""  # noqa: S608
_RECORDED = """
SELECT task_id, count(*) FROM record JOIN task USING (task_id)
WHERE task_id > ? AND task_id <= ? AND ended = 0 GROUP BY task_id"""
_HOOKED = "SELECT DISTINCT task_id FROM hook WHERE task_id > ? AND task_id <= ?"
_MORE = "SELECT ended, key, digest FROM task WHERE task_id = ?"
_INPUTS = "SELECT body, key, digest FROM input WHERE task_id = ? ORDER BY n"
_RECORDS = "SELECT key, value, seq FROM record WHERE task_id = ? ORDER BY n"

_INSERT_INPUT = "INSERT INTO input (task_id, n, body, key, digest) VALUES (?, ?, ?, ?, ?)"
_INSERT_HOOK = f"INSERT INTO hook ({', '.join(HOOK)}) VALUES ({', '.join('?' * len(HOOK))})"  # noqa: S608
_LETTER = ("n", *LETTER)
_INSERT_LETTER = (
    f"INSERT INTO letter ({', '.join(_LETTER)}) VALUES ({', '.join('?' * len(_LETTER))})"  # noqa: S608
)
_COUNTS = """
SELECT (SELECT count(*) FROM task), (SELECT total(last_seq) FROM task WHERE ended < 2),
  (SELECT count(*) FROM piece) + (SELECT count(log) FROM task),
  (SELECT count(*) FROM input JOIN task USING (task_id) WHERE ended < 2),
  (SELECT count(*) FROM record JOIN task USING (task_id) WHERE ended < 2),
  (SELECT count(key) FROM task) + (SELECT count(key) FROM input),
  (SELECT count(*) FROM hook), (SELECT count(*) FROM letter)"""
_USED_KEYS = "SELECT key, until FROM said ORDER BY until, key"
_READ_MARK = "SELECT source, begun_at, finished_at FROM copy"
_WRITE_MARK = "INSERT INTO copy (source, begun_at, finished_at) VALUES (?, ?, ?)"

_letter_of = attrgetter(*LETTER)


class SqliteTransfer:
    """Implements `TransferStore`."""

    def __init__(
        self,
        store: HasCollections,
        write: ConnectionAccess,
        read: ConnectionAccess,
        write_tasks: Callable[[list[StoredTask]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`write_tasks` imports tasks past the cache of the writer."""
        self._store, self._write, self._read = store, write, read
        self._write_tasks = write_tasks
        self._clock = clock

    async def versions(self, after: str, limit: int) -> list[TaskVersion]:
        return await self._read(lambda db: _versions(db, self._outbox(db), after, limit))

    async def export_tasks(self, task_ids: list[str]) -> list[StoredTask]:
        def job(db: sqlite3.Connection) -> list[StoredTask]:
            outbox = self._outbox(db)
            found = (_exported(db, outbox, task_id) for task_id in task_ids)
            return [each for each in found if each is not None]

        return await self._read(job)

    async def import_tasks(self, tasks: list[StoredTask]) -> None:
        await self._write_tasks(tasks)

    def _outbox(self, db: sqlite3.Connection) -> SqliteOutbox:
        return SqliteOutbox(db, self._clock)

    async def export_collections(self) -> Collections:
        used = await self._read(lambda db: db.execute(_USED_KEYS).fetchall())
        return await collections_of(self._store, [UsedKey(*each) for each in used])

    async def import_collections(self, found: Collections) -> None:
        await self._write(lambda db: _import_collections(db, found))

    async def count(self) -> dict[str, int]:
        found = await self._read(lambda db: db.execute(_COUNTS).fetchone())
        return dict(zip(COUNTED, map(int, found), strict=True))

    async def read_mark(self) -> CopyMark | None:
        found = await self._read(lambda db: db.execute(_READ_MARK).fetchone())
        return None if found is None else mark_in(found)

    async def write_mark(self, mark: CopyMark) -> None:
        def job(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM copy")
            db.execute(_WRITE_MARK, (mark.source, mark.begun_at, mark.finished_at))

        await self._write(job)


def _versions(
    db: sqlite3.Connection, outbox: SqliteOutbox, after: str, limit: int
) -> list[TaskVersion]:
    found = db.execute(_VERSIONS, (after, limit)).fetchall()
    if not found:
        return []
    between = (after, found[-1][0])
    recorded: dict[str, int] = dict(db.execute(_RECORDED, between).fetchall())
    hooks = {
        task_id: hooks_version(outbox.cursors(task_id))
        for (task_id,) in db.execute(_HOOKED, between).fetchall()
    }
    return [version_in(row, recorded, hooks) for row in found]


def _exported(db: sqlite3.Connection, outbox: SqliteOutbox, task_id: str) -> StoredTask | None:
    found = db.execute(sql.BY_ID, (task_id,)).fetchone()
    if found is None:
        return None
    ended, key, digest = db.execute(_MORE, (task_id,)).fetchone()
    frozen = db.execute(sql.FROZEN, (task_id,)).fetchone()
    inputs = db.execute(_INPUTS, (task_id,)).fetchall()
    keys = [(key, digest), *((each[1], each[2]) for each in inputs)]
    records = db.execute(_RECORDS, (task_id,))
    return stored_task(
        rules.unclaim(sql.row_in(found)),
        pieces=list(sql.pieces_in(db, task_id)),
        task=frozen[0] if frozen is not None else b"",
        dropped=ended == DROPPED,
        keys=[Idempotency(name, digest) for name, digest in keys if name is not None],
        inputs=[body for body, _, _ in inputs],
        records=[Record(key=name, value=value, seq=seq) for name, value, seq in records],
        hooks=outbox.cursors(task_id),
    )


def insert_parts(db: sqlite3.Connection, each: StoredTask, bare: Iterable[Idempotency]) -> None:
    """Inserts the messages and webhooks of a task. `bare` are the keys of messages of which only
    the key is known."""
    task_id = each.row.task_id
    inputs = [*each.inputs, *(pack(bare_input(lost)) for lost in bare)]
    for n, body in enumerate(inputs, start=1):
        said = unpack_input(body).key
        mark = (None, None) if said is None else (said.key, said.digest)
        db.execute(_INSERT_INPUT, (task_id, n, body, *mark))
    for cursor in each.hooks:
        db.execute(_INSERT_HOOK, hook_row(cursor))
        db.executemany(_INSERT_LETTER, [(cursor.n, *_letter_of(it)) for it in cursor.letters])


def mark_dropped(db: sqlite3.Connection, tasks: Iterable[StoredTask]) -> None:
    """Notes whose logs were dropped."""
    db.executemany(sql.MARK_DROPPED, [(each.row.task_id,) for each in tasks if each.dropped])


def _import_collections(db: sqlite3.Connection, found: Collections) -> None:
    rows = rows_of(found)
    for table, columns in COLLECTIONS.items():
        db.execute(f"DELETE FROM {table}")  # noqa: S608  our own names
        places = ", ".join("?" * len(columns))
        db.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})",  # noqa: S608
            rows[table],
        )
