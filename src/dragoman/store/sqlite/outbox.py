"""Webhooks in a SQLite file. Works on whatever connection it is given, inside its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import msgspec

from dragoman.core.errors import TaskNotFound
from dragoman.core.model import Hook

from .. import outbox as post
from ..bulkheads import Bulkheads, host_of
from ..clock import Clock
from ..codec import Unpacker, pack
from ..interface import Delivery
from ..outbox import Letter, Mail, Rule
from ..task_row import Scope

_SELECT = """
SELECT n, body, hook.tenant, hook.principal, hook.agent, sent, last_seq, due_at, taken,
  hook.attempt, status, error FROM hook JOIN task USING (task_id) """
_BY_N = _SELECT + "WHERE n = ?"
_BY_TASK = _SELECT + "WHERE task_id = ? ORDER BY n"
_BY_ID = _SELECT + "WHERE task_id = ? AND hook_id = ?"
_READY = """
SELECT n FROM hook WHERE agent = ? AND due_at > 0 AND due_at <= ?
  AND (tenant, principal) NOT IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))
  AND host NOT IN (SELECT value FROM json_each(?))
ORDER BY due_at, n LIMIT ?"""
_WAITING = _SELECT + "WHERE due_at > 0 AND hook.agent = coalesce(?, hook.agent) ORDER BY n"
_LETTERS = "SELECT seq, dead_at, attempt, status, error FROM letter WHERE n = ? ORDER BY seq"
_DEAD_LETTERS = """
SELECT n, seq, dead_at, letter.attempt, letter.status, letter.error FROM letter JOIN hook USING (n)
WHERE dead_at > 0 AND agent = coalesce(?, agent) ORDER BY dead_at, n, seq LIMIT ?"""
_TASK = """
SELECT last_seq, ended FROM task WHERE task_id = ? AND tenant = ? AND principal = ? AND agent = ?"""
_INSERT = """
INSERT INTO hook (task_id, hook_id, tenant, principal, agent, body, host, sent, due_at, taken,
  attempt, status, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, '')"""
_UPDATE = """
UPDATE hook SET body = ?, host = ?, sent = ?, due_at = ?, taken = ?, attempt = ?, status = ?,
  error = ? WHERE n = ?"""
_HOST = "UPDATE hook SET host = ? WHERE n = ? AND host = ''"  # set before there were hosts
_GROWN = "UPDATE hook SET due_at = ? WHERE task_id = ? AND due_at = 0"
_FIND = """
SELECT n FROM hook WHERE task_id = ? AND hook_id = ? AND tenant = ? AND principal = ?
AND agent = ?"""

_hook_in = Unpacker(Hook)
_json = msgspec.json.Encoder()


class SqliteOutbox:
    """The outbox behind one connection."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._db = connection
        self._clock = clock
        self.tasks: set[str] = set()
        """Of the tasks the writer remembers, those that have hooks."""
        self.hold = 0
        """Milliseconds for which what is taken stays so."""

    # Beside the writes of tasks.

    def look(self, task_id: str) -> None:
        """The writer remembers this task from now on."""
        if self._db.execute("SELECT 1 FROM hook WHERE task_id = ?", (task_id,)).fetchone():
            self.tasks.add(task_id)

    def begin(self, scope: Scope, hook: Hook, *, sent: int, last: int) -> None:
        """A new hook."""
        place = (hook.task_id, hook.hook_id, *_owner(scope))
        due_at = self._clock() if sent < last else 0
        self._db.execute(_INSERT, (*place, pack(hook), host_of(hook.url), sent, due_at))
        self.tasks.add(hook.task_id)

    def grow(self, task_id: str) -> None:
        """The log of a task grew."""
        self._db.execute(_GROWN, (self._clock(), task_id))

    # Hooks.

    def set_hook(self, scope: Scope, hook: Hook) -> None:
        """See `Store.set_hook`."""
        last, ended = self._task(scope, hook.task_id)
        found = self._db.execute(_BY_ID, (hook.task_id, hook.hook_id)).fetchone()
        if found is not None:
            mail = self._mail(found)
            self._save(mail, post.move(mail, hook, self._clock()))
            return
        self.begin(scope, hook, sent=last - 1 if ended else last, last=last)

    def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        """See `Store.hooks`."""
        self._task(scope, task_id)
        return [_hook_in(found[1]) for found in self._db.execute(_BY_TASK, (task_id,))]

    def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        """See `Store.delete_hook`."""
        place = (task_id, hook_id, *_owner(scope))
        for number in self._db.execute(_FIND, place).fetchall():
            self._db.execute("DELETE FROM letter WHERE n = ?", number)
            self._db.execute("DELETE FROM hook WHERE n = ?", number)

    def _task(self, scope: Scope, task_id: str) -> tuple[int, int]:
        found = self._db.execute(_TASK, (task_id, *_owner(scope))).fetchone()
        if found is None:
            raise TaskNotFound(task_id=task_id)
        return found[0], found[1]

    # Deliveries.

    def due(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None
    ) -> list[Delivery]:
        """See `Store.due`."""
        now = self._clock()
        self.hold = max(self.hold, hold_ms)
        deliveries: list[Delivery] = []
        looking = True
        while looking and len(deliveries) < limit:
            # A bulkhead that fills up during a look is passed over by the next one. A look that
            # changes nothing is the last one: the next would find the same.
            refused = changed = False
            for number in self._ready(agent, now, limit - len(deliveries), bulkheads):
                mail = self._mail(self._db.execute(_BY_N, number).fetchone())
                principal, host = post.bulkheads_of(mail)
                if bulkheads is not None and not bulkheads.admit(principal, host):
                    refused = True
                    if host and self._db.execute(_HOST, (host, mail.n)).rowcount:
                        changed = True
                    continue
                changed = True
                held, delivery = post.take(mail, now, hold_ms)
                self._save(mail, held)
                if delivery is not None:
                    deliveries.append(delivery)
            looking = refused and changed
        return deliveries

    def _ready(
        self, agent: str, now: int, limit: int, bulkheads: Bulkheads | None
    ) -> list[tuple[Any, ...]]:
        full = (bulkheads.full_principals, bulkheads.full_hosts) if bulkheads else ([], [])
        return self._db.execute(_READY, (agent, now, *map(_json_text, full), limit)).fetchall()

    def settle(self, id: int, rule: Rule) -> bool:
        """Something became of a delivery; whether that changed anything."""
        n, seq = post.split_id(id)
        found = self._db.execute(_BY_N, (n,)).fetchone()
        if found is None:
            return False
        before = self._mail(found)
        after = rule(before, seq, self._clock())
        if after is None or after is before:
            return False
        self._save(before, after)
        return True

    def outbox(self, *, dead: bool, limit: int, agent: str | None) -> list[Delivery]:
        """See `Store.outbox`."""
        if not dead:
            mails = map(self._mail, self._db.execute(_WAITING, (agent,)).fetchall())
            return list(islice(chain.from_iterable(map(post.waiting, mails)), limit))
        return list(self._dead(limit, agent))

    def _dead(self, limit: int, agent: str | None) -> Iterator[Delivery]:
        for n, *rest in self._db.execute(_DEAD_LETTERS, (agent, limit)).fetchall():
            found = self._db.execute(_BY_N, (n,)).fetchone()
            yield post.delivery_of(self._mail(found), _letter(rest))

    # Rows.

    def _mail(self, found: tuple[Any, ...]) -> Mail:
        n, body, tenant, principal, agent, *rest = found
        sent, last, due_at, taken, attempt, status, error = rest
        return Mail(
            n=n,
            hook=_hook_in(body),
            scope=Scope(tenant, principal, agent),
            sent=sent,
            last=last,
            due_at=due_at,
            taken=taken,
            attempt=attempt,
            status=status,
            error=error,
            letters=tuple(map(_letter, self._db.execute(_LETTERS, (n,)))),
        )

    def _save(self, before: Mail, after: Mail) -> None:
        said = (after.attempt, after.status, after.error)
        host = host_of(after.hook.url)
        place = (pack(after.hook), host, after.sent, after.due_at, after.taken)
        self._db.execute(_UPDATE, (*place, *said, after.n))
        if before.letters == after.letters:
            return
        for gone in set(before.letters) - set(after.letters):
            self._db.execute("DELETE FROM letter WHERE n = ? AND seq = ?", (after.n, gone.seq))
        for one in set(after.letters) - set(before.letters):
            self._db.execute(
                "INSERT INTO letter (n, seq, dead_at, attempt, status, error) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (after.n, one.seq, one.dead_at, one.attempt, one.status, one.error),
            )


def _owner(scope: Scope) -> tuple[str, str, str]:
    return scope.tenant, scope.principal, scope.agent


def _json_text(value: object) -> str:
    """JSON as SQLite reads it in every version: a blob may be taken for its own binary form."""
    return _json.encode(value).decode()


def _letter(found: tuple[Any, ...] | list[Any]) -> Letter:
    seq, dead_at, attempt, status, error = found
    return Letter(seq=seq, dead_at=dead_at, attempt=attempt, status=status, error=error)
