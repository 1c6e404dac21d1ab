"""The mail of all tasks in memory; the rules are in `store/outbox.py`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from msgspec.structs import replace

from dragoman.core.model import Hook

from .. import outbox as rules
from ..bulkheads import Bulkheads
from ..interface import Delivery
from ..outbox import Mail, Rule
from ..task_row import Scope


class MemoryOutbox:
    """Webhooks by task, and which of them are due."""

    def __init__(self) -> None:
        self._mails: dict[int, Mail] = {}
        self._tasks: dict[str, dict[str, int]] = {}
        self._due: set[int] = set()
        self._n = 0
        self._hold = 0

    def __contains__(self, task_id: object) -> bool:
        """Whether a task has webhooks."""
        return task_id in self._tasks

    def set(self, scope: Scope, hook: Hook, *, sent: int, last: int, now: int) -> None:
        """Stores a webhook in the place of the one with its id."""
        known = self._tasks.get(hook.task_id, {}).get(hook.hook_id)
        if known is not None:
            self.keep(rules.move(self._mails[known], hook, now))
            return
        self.keep(rules.begin(self.number(), hook, scope, sent=sent, last=last, now=now))

    def number(self) -> int:
        """The number of a new webhook."""
        self._n += 1
        return self._n

    def keep(self, mail: Mail) -> None:
        """Stores a mail in the place of the one with its number."""
        self._n = max(self._n, mail.n)
        self._mails[mail.n] = mail
        self._tasks.setdefault(mail.hook.task_id, {})[mail.hook.hook_id] = mail.n
        if mail.due_at:
            self._due.add(mail.n)
        else:
            self._due.discard(mail.n)

    def of(self, task_id: str) -> list[Mail]:
        """The mail of a task, oldest webhook first."""
        return [self._mails[n] for n in sorted(self._tasks.get(task_id, {}).values())]

    def grow(self, task_id: str, last: int, now: int) -> None:
        """Notes that the log of a task has grown."""
        for mail in self.of(task_id):
            self.keep(rules.grow(mail, last, now))

    def drop(self, task_id: str, hook_ids: Iterable[str] | None = None) -> bool:
        """Forgets some webhooks of a task, or all of them; whether there were any."""
        hooks = self._tasks.get(task_id, {})
        gone = [
            hook_id
            for hook_id in (list(hooks) if hook_ids is None else hook_ids)
            if hook_id in hooks
        ]
        for hook_id in gone:
            n = hooks.pop(hook_id)
            del self._mails[n]
            self._due.discard(n)
        if not hooks:
            self._tasks.pop(task_id, None)
        return bool(gone)

    def due(
        self, agent: str, limit: int, now: int, hold_ms: int, bulkheads: Bulkheads | None
    ) -> list[Delivery]:
        """Takes what is due, as `Store.due` says."""
        self._hold = max(self._hold, hold_ms)
        ready = [
            mail
            for n in self._due
            if (mail := self._mails[n]).due_at <= now and mail.scope.agent == agent
        ]
        ready.sort(key=lambda mail: (mail.due_at, mail.n))
        found: list[Delivery] = []
        for mail in ready:
            if len(found) >= limit:
                break
            if bulkheads is not None and not bulkheads.admit(*rules.bulkheads_of(mail)):
                continue
            held, delivery = rules.take(mail, now, hold_ms)
            self.keep(held)
            if delivery is not None:
                found.append(delivery)
        return found

    def set_back(self, by: int, now: int) -> None:
        """Moves due times back with the clock, so that nothing waits longer because of it."""
        for n in self._due:
            mail = self._mails[n]
            # A delivery may have been taken since the clock was set. It stays hidden for its
            # whole time, or a second worker would take it while the first one calls.
            least = min(mail.due_at, now + self._hold) if mail.taken else 1
            self._mails[n] = replace(mail, due_at=max(least, mail.due_at - by))

    def change(self, id: int, rule: Rule, now: int) -> str:
        """Applies a rule to the mail of a delivery; the id of its task if anything changed."""
        n, seq = rules.split_id(id)
        before = self._mails.get(n)
        after = rule(before, seq, now) if before is not None else None
        if after is None or after is before:
            return ""
        self.keep(after)
        return after.hook.task_id

    def deliveries(self, *, dead: bool, limit: int, agent: str | None) -> list[Delivery]:
        """The deliveries on their way, or the dead letters, as `Store.outbox` says."""
        mails = (
            mail
            for n in sorted(self._mails)
            if agent in (None, (mail := self._mails[n]).scope.agent)
        )
        if not dead:
            return list(islice(chain.from_iterable(map(rules.waiting, mails)), limit))
        letters = chain.from_iterable(map(rules.dead, mails))
        return sorted(letters, key=lambda one: (one.dead_at, one.id))[:limit]

    def holds_task(self, task_id: str) -> bool:
        """Whether something of a task is still on its way, so that the task must stay."""
        return any(mail.due_at for mail in self.of(task_id))

    def holds_log(self, task_id: str) -> bool:
        """Whether something of a task was not delivered, so that its events must stay."""
        return any(mail.due_at or mail.letters for mail in self.of(task_id))
