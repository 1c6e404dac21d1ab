"""The writer's cache of rows, and the changes of the current batch of jobs.

Every job of a batch reads rows through this cache and leaves its changes here. They reach the
database with one `executemany` per table when the batch is over. A task that is created, changed
and ended within one batch is therefore written only once, which makes a quick task cheap.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from ..codec import unpack_piece
from ..memory.records import Key
from ..task_row import Idempotency, Row
from ..transfer.stored_task import StoredTask
from ..writes import Record, Write
from . import statements as sql
from .outbox import SqliteOutbox

CACHE = 8192
"""The maximum number of rows that are remembered between two batches."""

INSERT_FROZEN = "INSERT INTO frozen (task_id, body) VALUES (?, ?)"
_INSERT_PIECE = "INSERT INTO piece (n, seq, place, previous, jump, body) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_RECORD = """
INSERT INTO record (task_id, n, key, value, seq)
SELECT ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4 FROM record WHERE task_id = ?1
ON CONFLICT (task_id, key) DO NOTHING"""
_TALLY = """
INSERT INTO tally (agent, tenant, principal, state, n) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (agent, tenant, principal, state) DO UPDATE SET n = n + excluded.n"""

Gone = tuple[str, int, str, str, str, str]
"""A task that was deleted: its id, whether it was hidden, agent, tenant, principal and state."""


class WriteBatch:
    """Works within the transaction of the writer, on its connection."""

    def __init__(self, connection: sqlite3.Connection, outbox: SqliteOutbox) -> None:
        self._db = connection
        self._outbox = outbox
        self._rows: dict[str, Row] = {}
        self.keys: dict[Key, tuple[str, bytes]] = {}
        """The idempotency keys that this batch has added."""
        self._new: dict[str, tuple[Idempotency | None, bytes | None]] = {}
        self._touched: dict[str, bool] = {}
        """The tasks whose rows have changed, and whether anything but their length has."""
        self._pieces: list[tuple[int, int, int, int, int, bytes]] = []
        self._newest_piece: int | None = None
        """The number of the newest piece of all tasks, if it is known."""
        self._paths: dict[str, list[tuple[int, int]]] = {}
        """The last piece of each task, and those to which its next pieces may jump, as far as they
        are known: the place and the number of each. There are few in the longest log."""
        self._frozen: list[tuple[str, bytes]] = []
        self._ended: list[str] = []
        self._records: list[tuple[str, str, bytes, int]] = []
        self._tally: Counter[tuple[str, str, str, str]] = Counter()

    # Reading.

    def row(self, task_id: str) -> Row | None:
        """Returns the row of a task, with the changes of this batch."""
        row = self._rows.get(task_id)
        if row is None:
            found = self._db.execute(sql.BY_ID, (task_id,)).fetchone()
            if found is not None:
                row = self._rows[task_id] = sql.row_in(found)
                self._outbox.look(task_id)
        return row

    def is_new(self, task_id: str) -> bool:
        """Returns whether this batch has created the task."""
        return task_id in self._new

    # Changes.

    def create(self, row: Row, key: Idempotency | None, log: bytes) -> None:
        """Adds a task that goes on."""
        self._paths[row.task_id] = []
        self._add_piece(row.task_id, 1, log)
        self._add(row, key, None)

    def create_ended(
        self, row: Row, key: Idempotency | None, log: bytes, frozen: bytes | None
    ) -> None:
        """Adds a task that ended with its first events. Its log lies in its row (ADR 0012)."""
        self._ended.append(row.task_id)
        if frozen is not None:
            self._frozen.append((row.task_id, frozen))
        self._add(row, key, log)

    def _add(self, row: Row, key: Idempotency | None, log: bytes | None) -> None:
        self._rows[row.task_id] = row
        self._new[row.task_id] = (key, log)
        if key is not None:
            place = (row.agent, row.tenant, row.principal, key.key)
            self.keys[place] = (row.task_id, key.digest)
        self._count(row, 1)

    def restore(self, each: StoredTask, key: Idempotency | None) -> None:
        """Adds a task as another store exported it, but for its messages and webhooks."""
        row = each.row
        brief = row.final and len(each.pieces) == 1
        for piece in () if brief else each.pieces:
            self._add_piece(row.task_id, unpack_piece(piece)[0].seq, piece)
        self._add(row, key, each.pieces[0] if brief else None)
        if each.task:
            self._frozen.append((row.task_id, each.task))
        if row.final:
            self._ended.append(row.task_id)
        self.add_records(row.task_id, each.records)

    def put(self, row: Row) -> None:
        """Changes the row of a task."""
        task_id = row.task_id
        before = self._rows.get(task_id)
        if before is None:
            self._outbox.look(task_id)
        elif row.state is not before.state or row.hidden is not before.hidden:
            self._count(before, -1)
            self._count(row, 1)
        self._rows[task_id] = row
        if task_id not in self._new:
            more = before is None or replace(before, last_seq=row.last_seq) != row
            self._touched[task_id] = more or self._touched.get(task_id, False)

    def append(self, row: Row, write: Write, piece: bytes, frozen: bytes) -> None:
        """Continues the log of a task. If that ends the task, `frozen` is the whole task."""
        task_id = row.task_id
        if piece:
            self._add_piece(task_id, write.base + 1, piece)
        self.put(row)
        if frozen:
            self._ended.append(task_id)
            self._frozen.append((task_id, frozen))
        self.add_records(task_id, write.records)

    def _add_piece(self, task_id: str, seq: int, body: bytes) -> None:
        newest, path = self._newest_piece, self._paths.get(task_id)
        if newest is None:
            (newest,) = self._db.execute(sql.NEWEST_PIECE).fetchone()
        if path is None:
            path = self._paths[task_id] = self._db.execute(sql.PATH, (task_id,)).fetchall()
        last, previous = path[-1] if path else (0, 0)
        place = last + 1
        while path and path[-1][0] > place & last:
            path.pop()
        jump = path[-1][1] if path else 0
        self._newest_piece = number = int(newest) + 1
        path.append((place, number))
        self._pieces.append((number, seq, place, previous, jump, body))

    def _last_piece(self, task_id: str) -> int | None:
        """Returns the number of the last piece of a task, or None if nothing was added to it."""
        path = self._paths.get(task_id)
        return path[-1][1] if path else None

    def add_records(self, task_id: str, records: Iterable[Record]) -> None:
        """Adds the recorded calls of a task."""
        for record in records:
            self._records.append((task_id, record.key, record.value, record.seq))

    def remove(self, gone: Iterable[Gone]) -> None:
        """Forgets tasks that were deleted, and counts them no more."""
        for task_id, hidden, agent, tenant, principal, state in gone:
            if not hidden:
                self._tally[agent, tenant, principal, state] -= 1
            self._rows.pop(task_id, None)
            self._paths.pop(task_id, None)
            self._outbox.tasks.discard(task_id)

    def _count(self, row: Row, by: int) -> None:
        if not row.hidden:
            self._tally[row.agent, row.tenant, row.principal, row.state._value_] += by

    # Writing and forgetting.

    def flush(self) -> None:
        """Writes what the jobs so far have changed, at the end of a batch or before a search."""
        many = self._db.executemany
        kept, last = self._rows, self._last_piece
        if self._new:
            many(
                sql.INSERT,
                [
                    sql.insert_values(kept[name], key, log, 0 if log else last(name) or 0)
                    for name, (key, log) in self._new.items()
                ],
            )
        if self._touched:
            changed = [name for name, more in self._touched.items() if more]
            longer = [
                (kept[name].last_seq, last(name), name)
                for name, more in self._touched.items()
                if not more
            ]
            if changed:
                many(sql.UPDATE, [sql.update_values(kept[name], last(name)) for name in changed])
            if longer:
                many(sql.LENGTHEN, longer)
        if self._pieces:
            many(_INSERT_PIECE, self._pieces)
        if self._frozen:
            many(INSERT_FROZEN, self._frozen)
        for name in self._ended:
            del kept[name]
            self._paths.pop(name, None)
            self._outbox.tasks.discard(name)
        if self._records:
            many(_INSERT_RECORD, self._records)
        if self._tally:
            many(_TALLY, [(*key, n) for key, n in self._tally.items() if n])
        self._clear()

    def _clear(self) -> None:
        self._new.clear()
        self.keys.clear()
        self._touched.clear()
        self._pieces.clear()
        self._frozen.clear()
        self._ended.clear()
        self._records.clear()
        self._tally.clear()

    def abandon(self) -> None:
        """Forgets everything, since the transaction is rolled back."""
        self.forget_rows()
        self._clear()

    def shrink(self) -> None:
        """Forgets the rows if there are too many of them."""
        if len(self._rows) > CACHE:
            self.forget_rows()

    def forget_rows(self) -> None:
        """Forgets the rows, since someone else may have changed them."""
        self._rows.clear()
        self._paths.clear()
        self._newest_piece = None
        self._outbox.tasks.clear()
