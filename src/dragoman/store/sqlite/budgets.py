"""Budgets in a SQLite file, which the processes of one machine share."""

from __future__ import annotations

import sqlite3

from dragoman.core.lifecycle import FINAL

from ..limits.budgets import (
    CLEAN,
    FORGET,
    BudgetAsk,
    BudgetGrant,
    fill,
    grant_of_quota,
    grant_of_rate,
)
from .collection import SqliteCollection

_WORKERS = "SELECT count(*) FROM (SELECT 1 FROM worker LIMIT 2)"
_RATE = "SELECT units, since FROM rate WHERE kind = ? AND owner = ?"
_PUT_RATE = "INSERT OR REPLACE INTO rate (kind, owner, units, since) VALUES (?, ?, ?, ?)"
_DROP_RATES = "DELETE FROM rate WHERE since < ?"
_OTHERS = """
SELECT coalesce(sum(held), 0) FROM quota JOIN worker USING (worker)
WHERE kind = ? AND owner = ? AND worker <> ?"""
_PUT_QUOTA = "INSERT OR REPLACE INTO quota (kind, owner, worker, held) VALUES (?, ?, ?, ?)"
_DROP_QUOTAS = """
DELETE FROM quota
WHERE kind = ? AND owner = ? AND (held = 0 OR worker NOT IN (SELECT worker FROM worker))"""
_STATES = "SELECT state, n FROM tally WHERE agent = ? AND tenant = ? AND principal = ?"


class SqliteBudgets(SqliteCollection):
    """Implements `BudgetStore`."""

    _cleaned_at = 0

    async def alone(self) -> bool:
        found = await self._read(lambda db: db.execute(_WORKERS).fetchone())
        return bool(found[0] <= 1)

    async def exchange(self, worker: str, asks: list[BudgetAsk]) -> list[BudgetGrant]:
        def job(db: sqlite3.Connection) -> list[BudgetGrant]:
            now = self._clock()
            grants = [_one(db, worker, ask, now) for ask in asks]
            if abs(now - self._cleaned_at) >= CLEAN:
                self._cleaned_at = now
                db.execute(_DROP_RATES, (now - FORGET,))
            return grants

        return await self._write(job)


def _one(db: sqlite3.Connection, worker: str, ask: BudgetAsk, now: int) -> BudgetGrant:
    place = (ask.kind, ask.owner)
    if ask.per_minute:
        units, since = db.execute(_RATE, place).fetchone() or (float(ask.size), now)
        left = fill(ask, units, since, now)
        grant = grant_of_rate(ask, left)
        db.execute(_PUT_RATE, (*place, left - grant.units, now))
        return grant
    (others,) = db.execute(_OTHERS, (*place, worker)).fetchone()
    unfinished = 0
    if ask.scope is not None:
        whose = (ask.scope.agent, ask.scope.tenant, ask.scope.principal)
        unfinished = sum(n for state, n in db.execute(_STATES, whose) if state not in FINAL)
    grant = grant_of_quota(ask, others, unfinished)
    db.execute(_PUT_QUOTA, (*place, worker, ask.held + grant.units))
    db.execute(_DROP_QUOTAS, place)
    return grant
