"""Claims queued tasks. Workers that claim at the same time skip rows that others have locked."""

from __future__ import annotations

from collections import Counter

from ... import rules
from ...limits.run_limits import (
    FIRST,
    LANES,
    FairTurns,
    Lane,
    RunLimits,
    Running,
    Turn,
    after,
    after_tenant,
)
from ...task_row import Row
from .. import statements as sql
from ..claims import ENLISTED
from ..pool import Database

# Two claims at the same time would each see a free place, and take it.
_ONE_CLAIM = "SELECT pg_advisory_xact_lock(hashtext('dragoman.running'))"

_QUEUED = """
SELECT count(*) FROM (SELECT 1 FROM dragoman.task WHERE runnable AND agent = $1 LIMIT $2) q"""

Heads = list[tuple[Lane, list[Turn]]]


async def claim(
    db: Database,
    worker: str,
    agent: str,
    limit: int,
    limits: RunLimits,
    now: int,
    turns: FairTurns,
) -> list[Row]:
    """Claims runnable tasks that are due."""
    if not await db.fetch(ENLISTED, worker):
        return []
    running: Running | None = None
    if limits:
        await db.execute(_ONE_CLAIM)
        running = Running.of(agent, await db.fetch(sql.RUNNING))
    pages = _Pages(db, agent, limit, now, turns.last(agent))
    while heads := await pages.following():
        chosen = turns.choose(agent, heads, limit, limits, running)
        if not chosen:
            continue
        lanes = Counter(lane for lane, _ in chosen)
        tenants, skills = zip(*lanes, strict=True)
        found = await db.fetch(
            sql.CLAIMABLE, agent, list(tenants), list(skills), list(lanes.values()), now
        )
        if not found:
            continue  # others have claimed all of them
        order = {task_id: place for place, (_, task_id) in enumerate(chosen)}
        rows = sorted(
            map(sql.row_in, found), key=lambda row: (order.get(row.task_id, limit), rules.turn(row))
        )
        taken = [rules.claim(row, worker) for row in rows]
        await sql.put(db, taken)
        return taken
    return []


async def count_queued(db: Database, agent: str, limit: int) -> int:
    """Returns how many tasks of an agent wait for a worker, and counts up to this number."""
    return int(await db.fetchval(_QUEUED, agent, limit))


class _Pages:
    """The lanes of an agent, page by page, beginning after the tenant that was served last."""

    def __init__(self, db: Database, agent: str, limit: int, now: int, last: str | None) -> None:
        self._db, self._agent, self._limit, self._now = db, agent, limit, now
        self._last = last
        self._wrapped = last is None
        self._start: Lane | None = FIRST if last is None else after_tenant(last)

    async def following(self) -> Heads:
        """Returns the next lanes with their first tasks, or nothing after the last one."""
        page: Heads = []
        while self._start is not None and len(page) < LANES:
            found = await self._read(self._start, LANES - len(page))
            full = len(found) == LANES - len(page)
            if self._wrapped and self._last is not None:
                found = [each for each in found if each[0][0] <= self._last]
            page += found
            if full and found:
                self._start = after(found[-1][0])
            elif self._wrapped:
                self._start = None
            else:
                self._wrapped, self._start = True, FIRST
        return page

    async def _read(self, start: Lane, most: int) -> Heads:
        rows = await self._db.fetch(sql.LANES, self._agent, *start, most, self._limit, self._now)
        lanes: dict[Lane, list[Turn]] = {}
        for tenant, skill, turn, task_id in rows:
            turns = lanes.setdefault((tenant, skill), [])
            if task_id is not None:
                turns.append((turn, task_id))
        return list(lanes.items())
