"""One statement for everything that is ready together: new tasks and continued logs.

Theory. A statement of PostgreSQL is a transaction, so a batch costs one round trip and one commit.
Every append names its claim and the length of the log that it continues in the condition of its
UPDATE. If another process has changed the row meanwhile, PostgreSQL evaluates that condition again
on the new row, so a claim that was taken away changes nothing, whoever was first. What hangs on an
append (events, records, webhooks) is inserted only for the tasks that the UPDATE has changed, and
the statement returns their ids.

The statement consists of the parts that a batch needs, because most batches need few.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from dragoman.core.model import Hook

from .. import rules
from ..bulkheads import host_of
from ..codec import BRIEF, pack, pack_piece
from ..task_row import Row
from ..writes import Draft, Record, Write
from . import statements as sql

SHARDS = 16
"""The number of rows in which finished tasks of one kind are counted."""


class NewTask(Struct, frozen=True):
    """A task to be created, encoded."""

    row: Row
    draft: Draft
    log: bytes
    frozen: bytes | None

    @property
    def first_events(self) -> tuple[int, bytes]:
        """The seq of its first event, and the bytes that begin there."""
        return 1, self.log


class Continuation(Struct, frozen=True):
    """Writes of one task that follow each other, encoded. The last one decides about the row."""

    writes: Sequence[Write]
    pieces: Sequence[bytes]
    frozen: bytes | None
    wiped: Sequence[tuple[int, bytes]] = ()
    """Inputs without their content, which replace those with their content."""

    @property
    def first_events(self) -> tuple[int, bytes] | None:
        """The seq of the first event, and the bytes that begin there, unless there is no event."""
        pairs = zip(self.writes, self.pieces, strict=True)
        return next(((write.base + 1, piece) for write, piece in pairs if piece), None)


def encode_draft(draft: Draft) -> NewTask:
    """Checks and encodes a new task. Raises `StoreError` if it cannot be stored."""
    row = rules.open_task(draft)
    ended = draft.ended
    frozen = pack(ended) if ended is not None and len(draft.entries) > BRIEF else None
    return NewTask(row, draft, pack_piece(draft.entries), frozen)


Column = tuple[str, str]

_DRAFT: tuple[Column, ...] = (
    *((name, sql.TYPES[name]) for name in sql.COLUMNS),
    ("ended", "smallint"),
    ("hooks", "integer"),
    ("log", "bytea"),
    ("frozen", "bytea"),
)
_KEY: tuple[Column, ...] = (("key", "text"), ("digest", "bytea"))
_CHANGE: tuple[Column, ...] = (
    ("task_id", "text"),
    ("token", "text"),
    ("epoch", "bigint"),
    ("base", "bigint"),
    ("last_seq", "bigint"),
    ("state", "text"),
    ("status_at", "bigint"),
    ("heard", "bigint"),
    ("question", "text"),
    ("asking", "text"),
    ("expires_at", "bigint"),
    ("fresh", "boolean"),
    ("shown", "boolean"),
    ("ended", "smallint"),
    ("frozen", "bytea"),
)
_PIECE: tuple[Column, ...] = (
    ("task_id", "text"),
    ("seq", "bigint"),
    ("final", "boolean"),
    ("body", "bytea"),
)
_RECORD: tuple[Column, ...] = (
    ("task_id", "text"),
    ("key", "text"),
    ("value", "bytea"),
    ("seq", "bigint"),
)
_HOOK: tuple[Column, ...] = (
    ("task_id", "text"),
    ("hook_id", "text"),
    ("tenant", "text"),
    ("principal", "text"),
    ("agent", "text"),
    ("body", "bytea"),
    ("host", "text"),
)
_WIPE: tuple[Column, ...] = (("task_id", "text"), ("n", "bigint"), ("body", "bytea"))

_CREATE = """
INSERT INTO dragoman.task ({names}) SELECT {names} FROM draft {keyed}
RETURNING task_id, agent, tenant, principal, state, hidden, ended"""
_CREATE_KEYS = """
INSERT INTO dragoman.idempotency (agent, tenant, principal, key, task_id, digest)
SELECT agent, tenant, principal, key, task_id, digest FROM draft WHERE key IS NOT NULL
ON CONFLICT (agent, tenant, principal, key) DO NOTHING RETURNING task_id"""
# The last condition: a webhook that was set while this statement waited for the row is not visible
# to it, so it could not be told of the new events. The append is then tried again.
_APPEND = """
UPDATE dragoman.task t SET last_seq = w.last_seq, state = w.state, status_at = w.status_at,
  heard = w.heard, question = w.question, asking = w.asking, ended = w.ended, frozen = w.frozen,
  expires_at = CASE WHEN w.ended = 0 AND (w.fresh OR w.question <> '' OR t.question <> ''
    OR t.expires_at > 0) THEN w.expires_at ELSE 0 END,
  attempt = CASE WHEN w.fresh THEN 1 ELSE t.attempt END, hidden = t.hidden AND NOT w.shown,
  worker = CASE WHEN w.ended > 0 THEN '' ELSE t.worker END,
  token = CASE WHEN w.ended > 0 THEN '' ELSE t.token END
FROM write w
WHERE t.task_id = w.task_id AND t.token = w.token AND w.token <> '' AND t.epoch = w.epoch
  AND t.last_seq = w.base AND (w.ended = 0 OR t.inputs <= w.heard)
  AND (t.hooks = 0 OR t.hooks = (
    SELECT count(*) FROM dragoman.hook h WHERE h.task_id = t.task_id))
RETURNING t.task_id, t.agent, t.tenant, t.principal, t.state, t.hidden, t.ended, t.hooks,
  t.watched"""
# Not `WHERE h.due_at = 0`: while the append waited for the row of the task, a delivery may have
# ended and left nothing due. The condition would still see the webhook as it was before that.
_GROW = """
UPDATE dragoman.hook h SET due_at = CASE h.due_at WHEN 0 THEN {now} ELSE h.due_at END
FROM changed c WHERE h.task_id = c.task_id AND c.hooks > 0"""
_PIECES = """
INSERT INTO dragoman.piece (task_id, seq, final, body)
SELECT task_id, seq, final, body FROM {given} WHERE task_id IN ({stored})"""
_RECORDS = """
INSERT INTO dragoman.record (task_id, n, key, value, seq)
SELECT r.task_id, r.place + coalesce(
    (SELECT max(n) FROM dragoman.record known WHERE known.task_id = r.task_id), 0),
  r.key, r.value, r.seq
FROM {given} WHERE r.task_id IN ({stored})
ON CONFLICT (task_id, key) DO NOTHING"""
_HOOKS = """
INSERT INTO dragoman.hook (task_id, hook_id, tenant, principal, agent, body, host, sent, due_at,
  taken, attempt, status, error)
SELECT task_id, hook_id, tenant, principal, agent, body, host, 0, {now}, 0, 0, 0, ''
FROM {given} WHERE task_id IN ({stored})"""
_WIPES = """
UPDATE dragoman.input i SET body = w.body FROM {given}
WHERE i.task_id = w.task_id AND i.n = w.n AND w.task_id IN ({stored})"""
COUNT = """
INSERT INTO dragoman.tally (agent, tenant, principal, state, shard, n)
SELECT agent, tenant, principal, state, pg_backend_pid() % {shards}, {sign} count(*)
FROM ({ended}) e
WHERE ended > 0 AND NOT hidden GROUP BY agent, tenant, principal, state
ORDER BY agent, tenant, principal, state
ON CONFLICT (agent, tenant, principal, state, shard) DO UPDATE SET n = tally.n + excluded.n"""
_OWNER = "SELECT agent, tenant, principal, state, hidden, ended FROM "


class WriteStatement:
    """Gathers new tasks and continuations, at most one of each task."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._drafts: list[list[Any]] = []
        self._keys: list[tuple[str | None, bytes | None]] = []
        self._changes: list[tuple[Any, ...]] = []
        self._pieces: list[tuple[str, int, bool, bytes]] = []
        self._records: list[tuple[str, str, bytes, int]] = []
        self._hooks: list[tuple[Any, ...]] = []
        self._wiped: list[tuple[str, int, bytes]] = []

    def create(self, new: NewTask) -> None:
        """Adds a task."""
        row, draft = new.row, new.draft
        ended = draft.ended is not None
        values = sql.values_of(row)
        # The log of a task that ended with its first events lies in its row (ADR 0012).
        values += (int(ended), int(draft.hook is not None), new.log if ended else None, new.frozen)
        self._drafts.append(values)
        key = draft.idempotency
        self._keys.append((None, None) if key is None else (key.key, key.digest))
        if not ended:
            self._pieces.append((row.task_id, 1, False, new.log))
        self._record(row.task_id, draft.records)
        if draft.hook is not None:
            self._hook(row, draft.hook)

    def append(self, more: Continuation) -> None:
        """Continues the log of a task."""
        first, last = more.writes[0], more.writes[-1]
        claim, over = last.claim, last.ended is not None
        asking = "" if over or last.asking is None else last.asking._value_
        self._changes.append(
            (
                claim.task_id,
                claim.token,
                claim.epoch,
                first.base,
                last.base + len(last.entries),
                last.state._value_,
                last.status_at,
                last.heard,
                "" if over else last.question,
                asking,
                last.expires_at,
                any(write.fresh for write in more.writes),
                any(write.shown for write in more.writes),
                int(over),
                more.frozen,
            )
        )
        for write, piece in zip(more.writes, more.pieces, strict=True):
            if piece:
                final = write.ended is not None
                self._pieces.append((claim.task_id, write.base + 1, final, piece))
            self._record(claim.task_id, write.records)
        self._wiped += ((claim.task_id, n, body) for n, body in more.wiped)

    def _record(self, task_id: str, records: Sequence[Record]) -> None:
        for record in records:
            self._records.append((task_id, record.key, record.value, record.seq))

    def _hook(self, row: Row, hook: Hook) -> None:
        owner = (row.tenant, row.principal, row.agent)
        place = (hook.task_id, hook.hook_id, *owner, pack(hook), host_of(hook.url))
        self._hooks.append(place)

    def statement(self) -> tuple[str, list[Any]]:
        """Returns the statement and its arguments. It returns the id of each task that was stored,
        and whether another process waits for its events."""
        keyed = any(key is not None for key, _ in self._keys)
        text = _text(
            bool(self._drafts),
            keyed,
            bool(self._changes),
            bool(self._pieces),
            bool(self._records),
            bool(self._hooks),
            bool(self._wiped),
        )
        arguments: list[Any] = [self._now] if self._changes or self._hooks else []
        if self._drafts:
            arguments += _columns(self._drafts)
            if keyed:
                arguments += _columns(self._keys)
        for rows in (self._changes, self._pieces, self._records, self._hooks, self._wiped):
            if rows:
                arguments += _columns(rows)
        return text, arguments


def _columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


@cache
def _text(
    drafts: bool, keyed: bool, changes: bool, pieces: bool, records: bool, hooks: bool, wiped: bool
) -> str:
    """Returns the statement for a batch that has these parts."""
    now = "$1::bigint"
    place = 1 if changes or hooks else 0

    def given(columns: Sequence[Column], name: str, *, numbered: bool = False) -> str:
        nonlocal place
        arrays = []
        for _, kind in columns:
            place += 1
            arrays.append(f"${place}::{kind}[]")
        names = ", ".join(column for column, _ in columns)
        order = (" WITH ORDINALITY", ", place") if numbered else ("", "")
        return f"unnest({', '.join(arrays)}){order[0]} AS {name}({names}{order[1]})"

    parts: list[str] = []
    stored: list[str] = []
    if drafts:
        columns = _DRAFT + _KEY if keyed else _DRAFT
        parts.append(f"draft AS (SELECT * FROM {given(columns, 'd')})")  # noqa: S608
        condition = ""
        if keyed:
            parts.append(f"keyed AS ({_CREATE_KEYS})")
            condition = "WHERE key IS NULL OR task_id IN (SELECT task_id FROM keyed)"
        names = ", ".join(name for name, _ in _DRAFT)
        parts.append(f"created AS ({_CREATE.format(names=names, keyed=condition)})")
        stored.append("created")
    if changes:
        parts.append(f"write AS (SELECT * FROM {given(_CHANGE, 'w')})")  # noqa: S608
        parts.append(f"changed AS ({_APPEND})")
        parts.append(f"grown AS ({_GROW.format(now=now)})")
        stored.append("changed")
    ids = " UNION ALL ".join(f"SELECT task_id FROM {name}" for name in stored)  # noqa: S608
    if pieces:
        insert = _PIECES.format(given=given(_PIECE, "p"), stored=ids)
        parts.append(f"piece AS ({insert})")
    if records:
        insert = _RECORDS.format(given=given(_RECORD, "r", numbered=True), stored=ids)
        parts.append(f"record AS ({insert})")
    if hooks:
        insert = _HOOKS.format(given=given(_HOOK, "h"), stored=ids, now=now)
        parts.append(f"hook AS ({insert})")
    if wiped:
        parts.append(f"wiped AS ({_WIPES.format(given=given(_WIPE, 'w'), stored=ids)})")
    ended = " UNION ALL ".join(_OWNER + name for name in stored)
    parts.append(f"counted AS ({COUNT.format(shards=SHARDS, sign='', ended=ended)})")
    watched = {"created": "false", "changed": "watched"}
    result = " UNION ALL ".join(f"SELECT task_id, {watched[name]} FROM {name}" for name in stored)  # noqa: S608
    return f"WITH {', '.join(parts)} {result}"
