"""How many tasks may run at a time, and which of the queued ones are claimed next.

Theory. The tasks of one tenant and one skill that wait for a worker are a *lane*. Within a lane,
and among the lanes of a tenant, the earliest task is next (`rules.turn`). Tenants take turns: a
claim begins with the tenant after the one that was served last, and gives each of them one place,
then another one, until no place is left. A tenant with a long queue therefore delays only itself.

A claim looks at a bounded number of lanes and, in each of them, only at tasks that it may take, so
it costs the same however long the queue is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile

from msgspec import Struct

LANES = 128
"""The maximum number of lanes that one claim looks at. The next claim goes on with the others."""

Lane = tuple[str, str]
"""A tenant and a skill."""
Turn = tuple[int, str]
"""The place of a task in its lane: `rules.turn` and its id."""


class RunLimits(Struct, frozen=True, kw_only=True):
    """How many tasks may run at a time, in all processes of a store together; 0: no limit. Tasks
    that wait for their caller do not count."""

    per_tenant: int = 0
    """The tasks of one tenant, of all agents."""
    per_skill: int = 0
    """The tasks of one skill of one agent, unless it has a limit of its own."""
    skills: Mapping[str, int] = {}
    """The limits of skills that have their own."""

    def of_skill(self, skill: str) -> int:
        """Returns the limit of a skill."""
        return self.skills.get(skill, self.per_skill)

    def concerns(self, skill: str) -> bool:
        """Returns whether a task of this skill may have to wait for a place."""
        return bool(self.per_tenant or self.of_skill(skill))

    def __bool__(self) -> bool:
        """Returns whether there is any limit."""
        return bool(self.per_tenant or self.per_skill or any(self.skills.values()))


NO_LIMITS = RunLimits()


class Running:
    """The tasks that run now, by their tenant and by their skill."""

    def __init__(self, tenants: Mapping[str, int], skills: Mapping[str, int]) -> None:
        """`tenants` counts the tasks of all agents, `skills` those of the agent alone."""
        self._tenants, self._skills = Counter(tenants), Counter(skills)

    @classmethod
    def of(cls, agent: str, counts: Iterable[tuple[str, str, str, int]]) -> Running:
        """Adds up counts of tasks, each with its agent, tenant and skill."""
        tenants: Counter[str] = Counter()
        skills: Counter[str] = Counter()
        for name, tenant, skill, n in counts:
            tenants[tenant] += n
            if name == agent:
                skills[skill] += n
        return cls(tenants, skills)

    def admit(self, lane: Lane, limits: RunLimits) -> bool:
        """Takes a place for one more task, or returns False if there is none left."""
        tenant, skill = lane
        most = limits.of_skill(skill)
        if most and self._skills[skill] >= most:
            return False
        if limits.per_tenant and self._tenants[tenant] >= limits.per_tenant:
            return False
        self._tenants[tenant] += 1
        self._skills[skill] += 1
        return True


FIRST: Lane = ("", "")
"""The place before all lanes."""


def after(lane: Lane) -> Lane:
    """Returns the first place after a lane."""
    return lane[0], lane[1] + "\x01"


def after_tenant(tenant: str) -> Lane:
    """Returns the first place after all lanes of a tenant."""
    return tenant, "\U0010ffff" * 4


def per_lane(limit: int, lanes: int) -> int:
    """Returns how many tasks of each lane a claim of `limit` tasks looks at: a few more than its
    part, because other lanes may have fewer."""
    return min(limit, 2 * limit // max(1, lanes) + 1)


class FairTurns:
    """The tenant whose turn it is, for each agent. Every process has its own."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def last(self, agent: str) -> str | None:
        """Returns the tenant that was served last, or None to begin with the first one."""
        return self._last.get(agent)

    def choose(
        self,
        agent: str,
        heads: Sequence[tuple[Lane, Sequence[Turn]]],
        limit: int,
        limits: RunLimits,
        running: Running | None,
    ) -> list[tuple[Lane, str]]:
        """Returns up to `limit` tasks to claim, in order, of these first tasks of each lane. Lanes
        come in the order in which their tenants take turns."""
        tenants: dict[str, deque[tuple[Turn, Lane]]] = {}
        for lane, turns in heads:
            tenants.setdefault(lane[0], deque()).extend((turn, lane) for turn in turns)
        queues = deque(deque(sorted(each)) for each in tenants.values())
        chosen: list[tuple[Lane, str]] = []
        while queues and len(chosen) < limit:
            queue = queues.popleft()
            while queue:
                (_, task_id), lane = queue.popleft()
                if running is None or running.admit(lane, limits):
                    chosen.append((lane, task_id))
                    queues.append(queue)
                    break
        if chosen:
            self._last.pop(agent, None)
            if len(tenants) > 1 or len(heads) == LANES:
                self._last[agent] = chosen[-1][0][0]
        return chosen

    def pick(
        self,
        agent: str,
        lanes: Callable[[Lane], Iterator[Lane]],
        heads: Callable[[Lane, int], Sequence[Turn]],
        limit: int,
        limits: RunLimits,
        running: Running | None,
    ) -> list[str]:
        """Returns the tasks to claim. `lanes` yields the lanes from a place on, in order, and
        `heads` returns the first tasks of a lane that are due, up to a number."""
        rotated = self._rotated(agent, lanes)
        while page := list(islice(rotated, LANES)):
            most = per_lane(limit, len(page))
            found = [(lane, heads(lane, most)) for lane in page]
            if chosen := self.choose(agent, found, limit, limits, running):
                return [task_id for _, task_id in chosen]
        return []

    def _rotated(self, agent: str, lanes: Callable[[Lane], Iterator[Lane]]) -> Iterator[Lane]:
        last = self.last(agent)
        if last is None:
            yield from lanes(FIRST)
            return
        yield from lanes(after_tenant(last))
        yield from takewhile(lambda lane: lane[0] <= last, lanes(FIRST))
