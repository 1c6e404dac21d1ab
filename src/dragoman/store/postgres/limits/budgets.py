"""Budgets on PostgreSQL, which the processes of many machines share."""

from __future__ import annotations

from ...limits import budgets
from ...limits.budgets import BudgetAsk, BudgetGrant
from ..database_clock import DatabaseClock
from ..pool import Database, DatabasePool
from ..reader import count_unfinished

PATIENCE = 2.0
"""Seconds for which an exchange waits for a database that is away. A caller waits for it."""

_WORKERS = "SELECT count(*) FROM (SELECT 1 FROM dragoman.worker WHERE lease_until > $1 LIMIT 2) w"
_NEW_RATES = """
INSERT INTO dragoman.rate (kind, owner, units, since)
SELECT kind, owner, units, $4 FROM unnest($1::text[], $2::text[], $3::float8[])
  AS asked(kind, owner, units) ORDER BY kind, owner
ON CONFLICT DO NOTHING"""
_RATES = """
SELECT kind, owner, units, since FROM dragoman.rate
WHERE (kind, owner) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY kind, owner FOR UPDATE"""
_PUT_RATES = """
UPDATE dragoman.rate r SET units = asked.units, since = $4
FROM unnest($1::text[], $2::text[], $3::float8[]) AS asked(kind, owner, units)
WHERE r.kind = asked.kind AND r.owner = asked.owner"""
_DROP_RATES = """
DELETE FROM dragoman.rate WHERE (kind, owner) IN (
  SELECT kind, owner FROM dragoman.rate WHERE since < $1 FOR UPDATE SKIP LOCKED)"""
# Two processes that ask at the same time would each see a free place, and take it.
_ONE_ASK = "SELECT pg_advisory_xact_lock(hashtext('dragoman.quota'), hashtext($1))"
_OTHERS = """
SELECT coalesce(sum(held), 0) FROM dragoman.quota q JOIN dragoman.worker w USING (worker)
WHERE kind = $1 AND owner = $2 AND worker <> $3 AND lease_until > $4"""
_PUT_QUOTA = """
INSERT INTO dragoman.quota (kind, owner, worker, held) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, owner, worker) DO UPDATE SET held = excluded.held"""
_DROP_QUOTAS = """
DELETE FROM dragoman.quota WHERE kind = $1 AND owner = $2
AND (held = 0 OR worker NOT IN (SELECT worker FROM dragoman.worker))"""


class PostgresBudgets:
    """Implements `BudgetStore`."""

    def __init__(self, pool: DatabasePool, time: DatabaseClock) -> None:
        self._pool, self._time = pool, time
        self._cleaned_at = 0

    async def alone(self) -> bool:
        async def job(db: Database) -> bool:
            return int(await db.fetchval(_WORKERS, await self._time.ask(db))) <= 1

        return await self._pool.read(job, PATIENCE)

    async def exchange(self, worker: str, asks: list[BudgetAsk]) -> list[BudgetGrant]:
        rates = [ask for ask in asks if ask.per_minute]
        quotas = sorted((ask for ask in asks if not ask.per_minute), key=_place)

        async def job(db: Database) -> dict[tuple[str, str], BudgetGrant]:
            grants = await _rates(db, rates, self._time()) if rates else {}
            for ask in quotas:
                grants[_place(ask)] = await self._quota(db, worker, ask)
            return grants

        grants = await self._pool.write(job, PATIENCE)
        if abs(self._time() - self._cleaned_at) >= budgets.CLEAN:
            self._cleaned_at = self._time()
            before = self._cleaned_at - budgets.FORGET
            await self._pool.read(lambda db: db.execute(_DROP_RATES, before))
        return [grants[_place(ask)] for ask in asks]

    async def _quota(self, db: Database, worker: str, ask: BudgetAsk) -> BudgetGrant:
        place = _place(ask)
        await db.execute(_ONE_ASK, " ".join(place))
        now = await self._time.ask(db)
        others = int(await db.fetchval(_OTHERS, *place, worker, now))
        unfinished = await count_unfinished(db, ask.scope) if ask.scope is not None else 0
        grant = budgets.grant_of_quota(ask, others, unfinished)
        await db.execute(_PUT_QUOTA, *place, worker, ask.held + grant.units)
        await db.execute(_DROP_QUOTAS, *place)
        return grant


async def _rates(
    db: Database, asks: list[BudgetAsk], now: int
) -> dict[tuple[str, str], BudgetGrant]:
    places = [_place(ask) for ask in asks]
    kinds, owners = [kind for kind, _ in places], [owner for _, owner in places]
    found = await db.fetch(_RATES, kinds, owners)
    if len(found) < len(asks):
        await db.execute(_NEW_RATES, kinds, owners, [float(ask.size) for ask in asks], now)
        found = await db.fetch(_RATES, kinds, owners)
    known = {(kind, owner): (units, since) for kind, owner, units, since in found}
    grants: dict[tuple[str, str], BudgetGrant] = {}
    left: list[float] = []
    for ask in asks:
        units = budgets.fill(ask, *known.get(_place(ask), (float(ask.size), now)), now)
        grant = grants[_place(ask)] = budgets.grant_of_rate(ask, units)
        left.append(units - grant.units)
    await db.execute(_PUT_RATES, kinds, owners, left, now)
    return grants


def _place(ask: BudgetAsk) -> tuple[str, str]:
    return ask.kind, ask.owner
