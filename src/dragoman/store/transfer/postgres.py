"""Exports and imports everything in a store on PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from .. import rules
from ..codec import unpack_piece
from ..outbox import LETTER, HookCursor
from ..postgres import outbox, retention
from ..postgres import statements as sql
from ..postgres.pool import Database, DatabasePool
from ..postgres.write_statement import COUNT, SHARDS
from ..sessions import UsedKey
from ..task_row import Idempotency
from ..writes import Record
from . import stored_task as form
from .rows import COLLECTIONS, DROPPED, HOOK, hook_row, mark_in, rows_of, version_in
from .stored_task import Collections, CopyMark, HasCollections, StoredTask, TaskVersion

# The names of the columns are our own; every value from outside is bound. The last one is whether
# the task is runnable at a copy (`rules.unclaim`).
_VERSIONS = f"""
SELECT task_id, {", ".join(form.VERSIONED)}, cancel::int, ended,
  runnable OR (worker <> '' AND ended = 0
  AND (cancel OR NOT (state IN ('input-required', 'auth-required') AND inputs = heard)))
FROM dragoman.task WHERE task_id > $1 ORDER BY task_id LIMIT $2"""  # noqa: S608
_RECORDED = """
SELECT task_id, count(*) FROM dragoman.record JOIN dragoman.task USING (task_id)
WHERE task_id > $1 AND task_id <= $2 AND ended = 0 GROUP BY task_id"""
_HOOKED = """
SELECT task_id FROM dragoman.task WHERE task_id > $1 AND task_id <= $2 AND hooks > 0"""
_TASKS = f"""
SELECT {", ".join(f"t.{name}" for name in sql.COLUMNS)}, t.ended, t.log, t.frozen
FROM dragoman.task t WHERE task_id = ANY($1::text[]) ORDER BY task_id"""  # noqa: S608
_PIECES = """
SELECT task_id, body FROM dragoman.piece WHERE task_id = ANY($1::text[]) ORDER BY task_id, seq"""
_KEYS = """
SELECT task_id, key, digest FROM dragoman.idempotency WHERE task_id = ANY($1::text[])
ORDER BY task_id, key"""
_INPUTS = """
SELECT task_id, body FROM dragoman.input WHERE task_id = ANY($1::text[]) ORDER BY task_id, n"""
_RECORDS = """
SELECT task_id, key, value, seq FROM dragoman.record WHERE task_id = ANY($1::text[])
ORDER BY task_id, n"""
_COUNTED = COUNT.format(
    shards=SHARDS,
    sign="",
    ended="SELECT agent, tenant, principal, state, hidden, ended FROM dragoman.task "
    "WHERE task_id = ANY($1::text[])",
)
# Numbers that were imported must not be given out again.
_NEXT_HOOK = """
SELECT setval(pg_get_serial_sequence('dragoman.hook', 'n'), max(n)) FROM dragoman.hook
HAVING max(n) > (SELECT coalesce(pg_sequence_last_value(
  pg_get_serial_sequence('dragoman.hook', 'n')::regclass), 0))"""
_COUNTS = """
SELECT (SELECT count(*) FROM dragoman.task),
  (SELECT coalesce(sum(last_seq), 0) FROM dragoman.task WHERE ended < 2),
  (SELECT count(*) FROM dragoman.piece) + (SELECT count(log) FROM dragoman.task),
  (SELECT count(*) FROM dragoman.input JOIN dragoman.task USING (task_id) WHERE ended < 2),
  (SELECT count(*) FROM dragoman.record JOIN dragoman.task USING (task_id) WHERE ended < 2),
  (SELECT count(*) FROM dragoman.idempotency),
  (SELECT count(*) FROM dragoman.hook), (SELECT count(*) FROM dragoman.letter)"""
_USED_KEYS = "SELECT key, until FROM dragoman.said ORDER BY until, key"
_READ_MARK = "SELECT source, begun_at, finished_at FROM dragoman.copy"
_WRITE_MARK = "INSERT INTO dragoman.copy (source, begun_at, finished_at) VALUES ($1, $2, $3)"
_ONE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"

_TASK = (*sql.COLUMNS, "ended", "hooks", "log", "frozen")
_TYPES = sql.TYPES | {
    **dict.fromkeys(("ended", "hooks", "n", "seq", "until", "revision", "removed_at"), "bigint"),
    **dict.fromkeys(("added_at", "revoked_at", "reported_at"), "bigint"),
    **dict.fromkeys(("sent", "due_at", "taken", "attempt", "status", "dead_at"), "bigint"),
    **dict.fromkeys(("log", "frozen", "body", "value", "digest"), "bytea"),
    **dict.fromkeys(("final", "revoked"), "boolean"),
}
"""The types of all columns that are not text."""

COUNTING = 3600.0
"""Seconds that counting may take."""

_letter_of = attrgetter(*LETTER)


class PostgresTransfer:
    """Implements `TransferStore`."""

    def __init__(self, store: HasCollections, pool: DatabasePool) -> None:
        self._store, self._pool = store, pool

    async def versions(self, after: str, limit: int) -> list[TaskVersion]:
        # A source whose ids may contain NUL is compared from one of them on. No id here contains
        # it, so the same ids come after the text before it.
        after = after.partition("\0")[0]
        return await self._pool.write(lambda db: _versions(db, after, limit))

    async def export_tasks(self, task_ids: list[str]) -> list[StoredTask]:
        return await self._pool.write(lambda db: _export(db, task_ids))

    async def import_tasks(self, tasks: list[StoredTask]) -> None:
        await self._pool.write(lambda db: _import(db, tasks))

    async def export_collections(self) -> Collections:
        used = await self._pool.read(lambda db: db.fetch(_USED_KEYS))
        return await form.collections_of(self._store, [UsedKey(key, until) for key, until in used])

    async def import_collections(self, found: Collections) -> None:
        await self._pool.write(lambda db: _import_collections(db, found))

    async def count(self) -> dict[str, int]:
        async def job(db: Database) -> Any:
            # Counting many millions of rows takes longer than any other statement may.
            await db.execute("SET LOCAL statement_timeout = 0")
            return await db.fetchrow(_COUNTS, patience=COUNTING)

        found = await self._pool.write(job)
        return dict(zip(form.COUNTED, map(int, found), strict=True))

    async def read_mark(self) -> CopyMark | None:
        found = await self._pool.read(lambda db: db.fetchrow(_READ_MARK))
        return None if found is None else mark_in(found)

    async def write_mark(self, mark: CopyMark) -> None:
        async def job(db: Database) -> None:
            await db.execute("DELETE FROM dragoman.copy")
            await db.execute(_WRITE_MARK, mark.source, mark.begun_at, mark.finished_at)

        await self._pool.write(job)


async def _versions(db: Database, after: str, limit: int) -> list[TaskVersion]:
    await db.execute(_ONE_SNAPSHOT)
    found = await db.fetch(_VERSIONS, after, limit)
    if not found:
        return []
    last = found[-1][0]
    recorded = dict(await db.fetch(_RECORDED, after, last))
    hooked = [name for (name,) in await db.fetch(_HOOKED, after, last)]
    hooks = {name: form.hooks_version(await outbox.cursors(db, name)) for name in hooked}
    return [version_in(tuple(row), recorded, hooks) for row in found]


async def _export(db: Database, task_ids: list[str]) -> list[StoredTask]:
    await db.execute(_ONE_SNAPSHOT)
    rows = await db.fetch(_TASKS, task_ids)
    pieces = _grouped(await db.fetch(_PIECES, task_ids))
    keys = _grouped(await db.fetch(_KEYS, task_ids))
    inputs = _grouped(await db.fetch(_INPUTS, task_ids))
    records = _grouped(await db.fetch(_RECORDS, task_ids))
    exported = []
    for found in rows:
        row = rules.unclaim(sql.row_in(found))
        ended, log, frozen = found[sql.WIDTH :]
        name = row.task_id
        exported.append(
            form.stored_task(
                row,
                pieces=[log] if log is not None else [body for (body,) in pieces[name]],
                task=frozen or b"",
                dropped=ended == DROPPED,
                keys=[Idempotency(*each) for each in keys[name]],
                inputs=[body for (body,) in inputs[name]],
                records=[
                    Record(key=key, value=value, seq=seq) for key, value, seq in records[name]
                ],
                hooks=await outbox.cursors(db, name),
            )
        )
    return exported


def _grouped(rows: Iterable[Sequence[Any]]) -> defaultdict[str, list[tuple[Any, ...]]]:
    found: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for task_id, *rest in rows:
        found[task_id].append(tuple(rest))
    return found


async def _import(db: Database, tasks: list[StoredTask]) -> None:
    names = [each.row.task_id for each in tasks]
    await retention.erase(db, names)
    rows, pieces, keys = [], [], []
    inputs: list[tuple[Any, ...]] = []
    records: list[tuple[Any, ...]] = []
    cursors: list[HookCursor] = []
    for each in tasks:
        row, name = each.row, each.row.task_id
        # The log of a task that ended with its first write lies in its row (ADR 0012).
        log = each.pieces[0] if row.final and len(each.pieces) == 1 else None
        ended = DROPPED if each.dropped else sql.has_ended(row.state)
        rows.append((*sql.values_of(row), ended, len(each.hooks), log, each.task or None))
        for place, piece in enumerate(each.pieces if log is None else (), start=1):
            final = row.final and place == len(each.pieces)
            pieces.append((name, unpack_piece(piece)[0].seq, final, piece))
        owner = (row.agent, row.tenant, row.principal)
        keys += [(*owner, key.key, name, key.digest) for key in each.keys]
        inputs += ((name, n, body) for n, body in enumerate(each.inputs, start=1))
        records += (
            (name, n, it.key, it.value, it.seq) for n, it in enumerate(each.records, start=1)
        )
        cursors += each.hooks
    letters = [(it.n, *_letter_of(letter)) for it in cursors for letter in it.letters]
    owner_columns = ("agent", "tenant", "principal")
    await _insert(db, "task", _TASK, rows)
    await _insert(db, "piece", ("task_id", "seq", "final", "body"), pieces)
    await _insert(db, "idempotency", (*owner_columns, "key", "task_id", "digest"), keys)
    await _insert(db, "input", ("task_id", "n", "body"), inputs)
    await _insert(db, "record", ("task_id", "n", "key", "value", "seq"), records)
    await _insert(db, "hook", HOOK, [hook_row(it) for it in cursors])
    await _insert(db, "letter", ("n", *LETTER), letters)
    await db.execute(_COUNTED, names)
    if cursors:
        await db.execute(_NEXT_HOOK)


async def _import_collections(db: Database, found: Collections) -> None:
    rows = rows_of(found)
    for table, columns in COLLECTIONS.items():
        await db.execute(f"DELETE FROM dragoman.{table}")  # noqa: S608  our own names
        types = {"key": "bytea"} if table in ("session", "said") else {}
        await _insert(db, table, columns, rows[table], types)


async def _insert(
    db: Database,
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    types: dict[str, str] | None = None,
) -> None:
    """Inserts rows with one statement, which gets a list for each column."""
    if not rows:
        return
    known = _TYPES | (types or {})
    lists = ", ".join(
        f"${place}::{known.get(name, 'text')}[]" for place, name in enumerate(columns, start=1)
    )
    names = ", ".join(columns)
    numbered = "OVERRIDING SYSTEM VALUE" if table == "hook" else ""
    await db.execute(
        f"INSERT INTO dragoman.{table} ({names}) {numbered} SELECT * FROM unnest({lists})",  # noqa: S608
        *(list(column) for column in zip(*rows, strict=True)),
    )
