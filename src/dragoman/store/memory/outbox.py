"""The outbox in memory: how much of a task's log has been delivered to each of its webhooks.

The rules are in `store/outbox.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from msgspec.structs import replace

from dragoman.core.model import Hook

from .. import outbox as rules
from ..bulkheads import Bulkheads
from ..interface import Delivery
from ..outbox import HookCursor, Rule
from ..task_row import Scope


class MemoryOutbox:
    """The webhooks of all tasks, and which of them are due."""

    def __init__(self) -> None:
        self._cursors: dict[int, HookCursor] = {}
        self.tasks: dict[str, dict[str, int]] = {}
        """The numbers of the webhooks of each task that has any, by their ids."""
        self._due: set[int] = set()
        self._n = 0
        self._hold = 0

    def set(self, scope: Scope, hook: Hook, *, sent: int, last: int, now: int) -> None:
        """Stores a webhook in the place of the one with its id."""
        known = self.tasks.get(hook.task_id, {}).get(hook.hook_id)
        if known is not None:
            self.keep(rules.move(self._cursors[known], hook, now))
            return
        self.keep(rules.begin(self.number(), hook, scope, sent=sent, last=last, now=now))

    def number(self) -> int:
        """Returns the number of a new webhook."""
        self._n += 1
        return self._n

    def keep(self, cursor: HookCursor) -> None:
        """Stores a cursor in the place of the one with its number."""
        self._n = max(self._n, cursor.n)
        self._cursors[cursor.n] = cursor
        self.tasks.setdefault(cursor.hook.task_id, {})[cursor.hook.hook_id] = cursor.n
        if cursor.due_at:
            self._due.add(cursor.n)
        else:
            self._due.discard(cursor.n)

    def of(self, task_id: str) -> list[HookCursor]:
        """Returns the cursors of a task's webhooks, oldest first."""
        return [self._cursors[n] for n in sorted(self.tasks.get(task_id, {}).values())]

    def grow(self, task_id: str, last: int, now: int) -> None:
        """Notes that the log of a task has grown."""
        for cursor in self.of(task_id):
            self.keep(rules.grow(cursor, last, now))

    def drop(self, task_id: str, hook_ids: Iterable[str] | None = None) -> bool:
        """Forgets some webhooks of a task, or all of them. Returns whether there were any."""
        hooks = self.tasks.get(task_id, {})
        gone = [
            hook_id
            for hook_id in (list(hooks) if hook_ids is None else hook_ids)
            if hook_id in hooks
        ]
        for hook_id in gone:
            n = hooks.pop(hook_id)
            del self._cursors[n]
            self._due.discard(n)
        if not hooks:
            self.tasks.pop(task_id, None)
        return bool(gone)

    def claim_deliveries(
        self, agent: str, limit: int, now: int, hold_ms: int, bulkheads: Bulkheads | None
    ) -> list[Delivery]:
        """Takes deliveries that are due, as `Store.claim_deliveries` promises."""
        self._hold = max(self._hold, hold_ms)
        ready = [
            cursor
            for n in self._due
            if (cursor := self._cursors[n]).due_at <= now and cursor.scope.agent == agent
        ]
        ready.sort(key=lambda cursor: (cursor.due_at, cursor.n))
        found: list[Delivery] = []
        for cursor in ready:
            if len(found) >= limit:
                break
            if bulkheads is not None and not bulkheads.admit(*rules.bulkheads_of(cursor)):
                continue
            held, delivery = rules.take(cursor, now, hold_ms)
            self.keep(held)
            if delivery is not None:
                found.append(delivery)
        return found

    def agents_due(self, now: int) -> frozenset[str]:
        """Returns the agents with deliveries that are due."""
        cursors = (self._cursors[n] for n in self._due)
        return frozenset(cursor.scope.agent for cursor in cursors if cursor.due_at <= now)

    def set_back(self, by: int, now: int) -> None:
        """Moves due times back with the clock, so that nothing waits longer because of it."""
        for n in self._due:
            cursor = self._cursors[n]
            # A delivery may have been taken since the clock was set. It stays hidden for its
            # whole time, or a second worker would take it while the first one calls.
            least = min(cursor.due_at, now + self._hold) if cursor.taken else 1
            self._cursors[n] = replace(cursor, due_at=max(least, cursor.due_at - by))

    def change(self, id: int, rule: Rule, now: int) -> str:
        """Applies a rule to the webhook of a delivery. Returns the id of its task if anything
        changed."""
        n, seq = rules.split_id(id)
        before = self._cursors.get(n)
        after = rule(before, seq, now) if before is not None else None
        if after is None or after is before:
            return ""
        self.keep(after)
        return after.hook.task_id

    def deliveries(self, *, dead: bool, limit: int, agent: str | None) -> list[Delivery]:
        """Returns the deliveries on their way, or the dead letters, as `Store.outbox` promises."""
        cursors = (
            cursor
            for n in sorted(self._cursors)
            if agent in (None, (cursor := self._cursors[n]).scope.agent)
        )
        if not dead:
            return list(islice(chain.from_iterable(map(rules.waiting, cursors)), limit))
        letters = chain.from_iterable(map(rules.dead, cursors))
        return sorted(letters, key=lambda one: (one.dead_at, one.id))[:limit]

    def holds_task(self, task_id: str) -> bool:
        """Returns whether something of a task is still on its way, so that the task must stay."""
        return any(cursor.due_at for cursor in self.of(task_id))

    def holds_log(self, task_id: str) -> bool:
        """Returns whether something of a task was not delivered, so that its events must stay."""
        return any(cursor.due_at or cursor.letters for cursor in self.of(task_id))
