"""The outbox in a SQLite file: how much of a task's log has been delivered to each of its webhooks.

The rules are in `store/outbox.py`. What is here runs on the connection that it is given, inside the
transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import attrgetter
from typing import Any

import msgspec

from dragoman.core.errors import TaskNotFound
from dragoman.core.model import Hook

from .. import outbox as rules
from ..bulkheads import Bulkheads, host_of
from ..clock import Clock
from ..codec import Unpacker, pack
from ..interface import Delivery
from ..outbox import LETTER, MOVING, HookCursor, Letter, Rule
from ..task_row import Scope

# The names of the columns are our own; every value from outside is bound.
_SELECT = f"""
SELECT n, body, hook.tenant, hook.principal, hook.agent, last_seq,
  {", ".join(f"hook.{name}" for name in MOVING)} FROM hook JOIN task USING (task_id) """  # noqa: S608
_BY_N = _SELECT + "WHERE n = ?"
_BY_TASK = _SELECT + "WHERE task_id = ? ORDER BY n"
_BY_ID = _SELECT + "WHERE task_id = ? AND hook_id = ?"
_READY = """
SELECT n FROM hook WHERE agent = ? AND due_at > 0 AND due_at <= ?
  AND (tenant, principal) NOT IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))
  AND (tenant, principal, host) NOT IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
    FROM json_each(?))
ORDER BY due_at, n LIMIT ?"""
_WAITING = _SELECT + "WHERE due_at > 0 AND hook.agent = coalesce(?, hook.agent) ORDER BY n"
_LETTERS = f"SELECT {', '.join(LETTER)} FROM letter WHERE n = ? ORDER BY seq"  # noqa: S608
_DEAD_LETTERS = f"""
SELECT n, {", ".join(f"letter.{name}" for name in LETTER)} FROM letter JOIN hook USING (n)
WHERE dead_at > 0 AND agent = coalesce(?, agent) ORDER BY dead_at, n, seq LIMIT ?"""  # noqa: S608
_INSERT_LETTER = f"""
INSERT INTO letter (n, {", ".join(LETTER)}) VALUES (?, {", ".join("?" * len(LETTER))})"""  # noqa: S608
_DELETE_LETTER = "DELETE FROM letter WHERE n = ? AND seq = ?"
_TASK = """
SELECT last_seq, ended FROM task WHERE task_id = ? AND tenant = ? AND principal = ? AND agent = ?"""
_INSERT = """
INSERT INTO hook (task_id, hook_id, tenant, principal, agent, body, host, sent, due_at, taken,
  attempt, status, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, '')"""
_UPDATE = f"""
UPDATE hook SET body = ?, host = ?, {", ".join(f"{name} = ?" for name in MOVING)}
WHERE n = ?"""  # noqa: S608
_SET_HOST = "UPDATE hook SET host = ? WHERE n = ? AND host = ''"
_GROW = "UPDATE hook SET due_at = ? WHERE task_id = ? AND due_at = 0"
_FIND = """
SELECT n FROM hook WHERE task_id = ? AND hook_id = ? AND tenant = ? AND principal = ?
AND agent = ?"""

_hook_in = Unpacker(Hook)
_json = msgspec.json.Encoder()
_moving_of = attrgetter(*MOVING)
_letter_of = attrgetter(*LETTER)


class SqliteOutbox:
    """The webhooks of a file, through one connection. Methods that are named like one of `Store`
    keep its promise."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._db = connection
        self._clock = clock
        self.tasks: set[str] = set()
        """Those of the tasks in the writer's cache that have webhooks."""
        self.hold = 0
        """The longest time in milliseconds for which a delivery was taken."""

    # Beside the writes of tasks.

    def look(self, task_id: str) -> None:
        """Notes whether a task that enters the writer's cache has webhooks, so that an append to a
        task without any needs no query."""
        if self._db.execute("SELECT 1 FROM hook WHERE task_id = ?", (task_id,)).fetchone():
            self.tasks.add(task_id)

    def begin(self, scope: Scope, hook: Hook, *, sent: int, last: int) -> None:
        """Adds a webhook. Every event after `sent` is due to it."""
        place = (hook.task_id, hook.hook_id, *_owner(scope))
        due_at = self._clock() if sent < last else 0
        self._db.execute(_INSERT, (*place, pack(hook), host_of(hook.url), sent, due_at))
        self.tasks.add(hook.task_id)

    def grow(self, task_id: str) -> None:
        """Makes the webhooks of a task due, because its log has grown."""
        self._db.execute(_GROW, (self._clock(), task_id))

    # Webhooks.

    def set_hook(self, scope: Scope, hook: Hook) -> None:
        last, ended = self._task(scope, hook.task_id)
        found = self._db.execute(_BY_ID, (hook.task_id, hook.hook_id)).fetchone()
        if found is not None:
            cursor = self._cursor_in(found)
            self._save(cursor, rules.move(cursor, hook, self._clock()))
            return
        self.begin(scope, hook, sent=last - 1 if ended else last, last=last)

    def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        self._task(scope, task_id)
        return [_hook_in(found[1]) for found in self._db.execute(_BY_TASK, (task_id,))]

    def cursors(self, task_id: str) -> list[HookCursor]:
        """Returns the webhooks of a task in any scope, oldest first, with what is due to them."""
        return [self._cursor_in(found) for found in self._db.execute(_BY_TASK, (task_id,))]

    def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        place = (task_id, hook_id, *_owner(scope))
        for number in self._db.execute(_FIND, place).fetchall():
            self._db.execute("DELETE FROM letter WHERE n = ?", number)
            self._db.execute("DELETE FROM hook WHERE n = ?", number)

    def _task(self, scope: Scope, task_id: str) -> tuple[int, int]:
        """Returns the length of a task's log, and whether the task has ended."""
        found = self._db.execute(_TASK, (task_id, *_owner(scope))).fetchone()
        if found is None:
            raise TaskNotFound(task_id=task_id)
        return found[0], found[1]

    # Deliveries.

    def claim_deliveries(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None
    ) -> list[Delivery]:
        now = self._clock()
        self.hold = max(self.hold, hold_ms)
        deliveries: list[Delivery] = []
        looking = True
        while looking and len(deliveries) < limit:
            # The query leaves out full bulkheads, but one may fill up while we process its
            # results. We then query again, for later deliveries to other hosts. A query that
            # changes nothing is the last one, because the next would return the same.
            refused = changed = False
            for number in self._ready(agent, now, limit - len(deliveries), bulkheads):
                cursor = self._cursor_in(self._db.execute(_BY_N, number).fetchone())
                principal, host = rules.bulkheads_of(cursor)
                if bulkheads is not None and not bulkheads.admit(principal, host):
                    refused = True
                    # A webhook that an older version set has no host, so the query cannot leave it
                    # out yet.
                    if host and self._db.execute(_SET_HOST, (host, cursor.n)).rowcount:
                        changed = True
                    continue
                changed = True
                held, delivery = rules.take(cursor, now, hold_ms)
                self._save(cursor, held)
                if delivery is not None:
                    deliveries.append(delivery)
            looking = refused and changed
        return deliveries

    def _ready(
        self, agent: str, now: int, limit: int, bulkheads: Bulkheads | None
    ) -> list[tuple[Any, ...]]:
        full = (bulkheads.full_principals, bulkheads.full_destinations) if bulkheads else ([], [])
        return self._db.execute(_READY, (agent, now, *map(_json_text, full), limit)).fetchall()

    def settle(self, id: int, rule: Rule) -> bool:
        """Applies a rule to the webhook of a delivery. Returns whether that changed anything."""
        n, seq = rules.split_id(id)
        found = self._db.execute(_BY_N, (n,)).fetchone()
        if found is None:
            return False
        before = self._cursor_in(found)
        after = rule(before, seq, self._clock())
        if after is None or after is before:
            return False
        self._save(before, after)
        return True

    def outbox(self, *, dead: bool, limit: int, agent: str | None) -> list[Delivery]:
        if not dead:
            cursors = map(self._cursor_in, self._db.execute(_WAITING, (agent,)).fetchall())
            return list(islice(chain.from_iterable(map(rules.waiting, cursors)), limit))
        return list(self._dead(limit, agent))

    def _dead(self, limit: int, agent: str | None) -> Iterator[Delivery]:
        for n, *letter in self._db.execute(_DEAD_LETTERS, (agent, limit)).fetchall():
            found = self._db.execute(_BY_N, (n,)).fetchone()
            yield rules.delivery_of(self._cursor_in(found), _letter_in(letter))

    # Rows.

    def _cursor_in(self, found: tuple[Any, ...]) -> HookCursor:
        n, body, tenant, principal, agent, last, *moving = found
        return HookCursor(
            n=n,
            hook=_hook_in(body),
            scope=Scope(tenant, principal, agent),
            last=last,
            letters=tuple(map(_letter_in, self._db.execute(_LETTERS, (n,)))),
            **dict(zip(MOVING, moving, strict=True)),
        )

    def _save(self, before: HookCursor, after: HookCursor) -> None:
        place = (pack(after.hook), host_of(after.hook.url))
        self._db.execute(_UPDATE, (*place, *_moving_of(after), after.n))
        if before.letters == after.letters:
            return
        for gone in set(before.letters) - set(after.letters):
            self._db.execute(_DELETE_LETTER, (after.n, gone.seq))
        for new in set(after.letters) - set(before.letters):
            self._db.execute(_INSERT_LETTER, (after.n, *_letter_of(new)))


def _owner(scope: Scope) -> tuple[str, str, str]:
    return scope.tenant, scope.principal, scope.agent


def _json_text(value: object) -> str:
    # It must be text: newer versions of SQLite take a blob for their own binary form of JSON.
    return _json.encode(value).decode()


def _letter_in(found: Iterable[Any]) -> Letter:
    return Letter(**dict(zip(LETTER, found, strict=True)))
