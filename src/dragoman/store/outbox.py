"""Webhooks and what is on its way to them: the rules every store shares, and an outbox in memory.

Theory. The log of a task is the truth, so the outbox need not repeat it: a hook remembers up to
where everything was told (`sent`), and every event behind that is a delivery. An event and its
deliveries are therefore one write, whatever happens. Only the first delivery of a hook is ever
tried, so one time (`due_at`) says when its hook needs someone; 0 says that nothing waits. What was
given up, or is tried again by hand, is written down by itself (`Letter`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.model import Hook

from .bulkheads import Bulkheads, Principal, host_of
from .interface import Delivery, Scope

_SEQ_BITS = 32
"""The id of a delivery is the number of its hook and, in this many bits, its seq."""


class Letter(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One event for one hook, and what became of it so far."""

    seq: int
    dead_at: int = 0
    attempt: int = 0
    status: int = 0
    error: str = ""


class Mail(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A hook and all that is due to it."""

    n: int
    hook: Hook
    scope: Scope
    sent: int
    """Everything up to this seq was delivered or given up."""
    last: int
    """The end of the log."""
    due_at: int = 0
    taken: int = 0
    """The seq that someone is delivering now."""
    attempt: int = 0
    """Of what comes next,"""
    status: int = 0
    error: str = ""
    letters: tuple[Letter, ...] = ()
    """Dead ones, and those that are tried again; by seq."""


Said = tuple[int, str]
"""The status of an answer, or what prevented one."""

Rule = Callable[[Mail, int, int], Mail | None]
"""What becomes of a seq in some mail at some time; None if it is not there."""


def delivery_id(n: int, seq: int) -> int:
    """The id of a delivery."""
    return n << _SEQ_BITS | seq


def parted(id: int) -> tuple[int, int]:
    """The number of the hook and the seq behind an id."""
    return id >> _SEQ_BITS, id & ((1 << _SEQ_BITS) - 1)


# Rules: the mail as it is in, the mail as it will be out.


def begun(n: int, hook: Hook, scope: Scope, *, sent: int, last: int, now: int) -> Mail:
    """A new hook."""
    return _scheduled(Mail(n=n, hook=hook, scope=scope, sent=sent, last=last), now)


def moved(mail: Mail, hook: Hook, now: int) -> Mail:
    """Another hook under the same id: what is due goes there, and at once."""
    return _scheduled(replace(mail, hook=hook, attempt=0, status=0, error=""), now)


def grown(mail: Mail, last: int, now: int) -> Mail:
    """The log grew."""
    return replace(mail, last=last, due_at=mail.due_at or now)


def head(mail: Mail) -> Letter | None:
    """What comes next: the oldest that is neither delivered nor given up."""
    for letter in mail.letters:
        if not letter.dead_at:
            return letter
    if mail.sent >= mail.last:
        return None
    return Letter(seq=mail.sent + 1, attempt=mail.attempt, status=mail.status, error=mail.error)


def taken(mail: Mail, now: int, hold_ms: int) -> tuple[Mail, Delivery | None]:
    """Someone delivers what comes next; until `hold_ms` are over nobody else does."""
    found = head(mail)
    if found is None:
        return replace(mail, due_at=0), None
    found = replace(found, attempt=found.attempt + 1)
    mail = replace(_with(mail, found), due_at=now + hold_ms, taken=found.seq)
    return mail, told(mail, found)


def arrived(through: int = 0) -> Rule:
    """It was delivered, and with it all that came behind it up to `through`."""

    def rule(mail: Mail, seq: int, now: int) -> Mail:
        if _open(mail, seq) is None:
            return mail
        return _freed(_without(mail, seq, through), seq, now)

    return rule


def postponed(mail: Mail, seq: int, due_at: int, said: Said, *, tried: bool) -> Mail:
    """It was not; again later. Without a try the attempt does not count."""
    found = _open(mail, seq)
    if found is None:
        return mail
    status, error = said
    attempt = found.attempt if tried else max(0, found.attempt - 1)
    mail = _with(mail, replace(found, attempt=attempt, status=status, error=error))
    return _freed(mail, seq, due_at)


def later(wait_ms: int, said: Said, *, tried: bool) -> Rule:
    """`postponed`, as a rule that takes only what the outbox knows."""
    return lambda mail, seq, now: postponed(mail, seq, now + wait_ms, said, tried=tried)


def given_up(said: Said, through: int = 0) -> Rule:
    """It is given up, as one with all that came behind it up to `through`; what comes behind that
    is tried."""

    def rule(mail: Mail, seq: int, now: int) -> Mail:
        found = _open(mail, seq)
        if found is None:
            return mail
        status, error = said
        after = _without(mail, seq, through)
        last = after.sent if seq == mail.sent + 1 else seq
        dead = replace(found, seq=last, dead_at=now, status=status, error=error)
        return _freed(_filed(after, dead), seq, now)

    return rule


def again(mail: Mail, seq: int, now: int) -> Mail | None:
    """A dead letter is tried again; None if there is none."""
    for letter in mail.letters:
        if letter.seq == seq and letter.dead_at:
            mail = _filed(mail, replace(letter, dead_at=0, attempt=0))
            return mail if mail.taken else replace(mail, due_at=now)
    return None


def place_of(mail: Mail) -> tuple[Principal, str]:
    """Behind which bulkheads it is."""
    return (mail.scope.tenant, mail.scope.principal), host_of(mail.hook.url)


def told(mail: Mail, letter: Letter) -> Delivery:
    """A letter as others see it."""
    return Delivery(
        id=delivery_id(mail.n, letter.seq),
        hook=mail.hook,
        scope=mail.scope,
        seq=letter.seq,
        last=mail.last if letter.seq > mail.sent else 0,
        attempt=letter.attempt,
        due_at=0 if letter.dead_at else mail.due_at,
        dead_at=letter.dead_at,
        status=letter.status,
        error=letter.error,
    )


def waiting(mail: Mail) -> Iterator[Delivery]:
    """All that is on its way, in its order."""
    first = head(mail)
    for letter in chain(
        (letter for letter in mail.letters if not letter.dead_at),
        (Letter(seq=seq) for seq in range(mail.sent + 1, mail.last + 1)),
    ):
        if first is not None and letter.seq == first.seq:
            yield told(mail, first)
        else:
            yield replace(told(mail, letter), due_at=0)


def dead(mail: Mail) -> Iterator[Delivery]:
    """All that was given up."""
    return (told(mail, letter) for letter in mail.letters if letter.dead_at)


def _open(mail: Mail, seq: int) -> Letter | None:
    """A letter that is neither delivered nor dead: else the news of it come too late."""
    if seq == mail.sent + 1 <= mail.last:
        return Letter(seq=seq, attempt=mail.attempt, status=mail.status, error=mail.error)
    return next((one for one in mail.letters if one.seq == seq and not one.dead_at), None)


def _with(mail: Mail, letter: Letter) -> Mail:
    if letter.seq == mail.sent + 1:
        said = letter.status, letter.error
        return replace(mail, attempt=letter.attempt, status=said[0], error=said[1])
    return _filed(mail, letter)


def _filed(mail: Mail, letter: Letter) -> Mail:
    others = [one for one in mail.letters if one.seq != letter.seq]
    letters = tuple(sorted([*others, letter], key=lambda one: one.seq))
    return replace(mail, letters=letters)


def _without(mail: Mail, seq: int, through: int) -> Mail:
    if seq == mail.sent + 1:
        sent = max(seq, min(through, mail.last))
        return replace(mail, sent=sent, attempt=0, status=0, error="")
    return replace(mail, letters=tuple(one for one in mail.letters if one.seq != seq))


def _freed(mail: Mail, seq: int, due_at: int) -> Mail:
    """Nobody delivers this one any more."""
    return mail if mail.taken not in (0, seq) else _scheduled(mail, due_at)


def _scheduled(mail: Mail, due_at: int) -> Mail:
    return replace(mail, taken=0, due_at=due_at if head(mail) is not None else 0)


class MemoryOutbox:
    """The mail of all tasks, in memory."""

    def __init__(self) -> None:
        self._mails: dict[int, Mail] = {}
        self._tasks: dict[str, dict[str, int]] = {}
        self._due: set[int] = set()
        self._n = 0
        self._hold = 0

    def __contains__(self, task_id: object) -> bool:
        """Whether a task has hooks."""
        return task_id in self._tasks

    def set(self, scope: Scope, hook: Hook, *, sent: int, last: int, now: int) -> None:
        """See `Store.set_hook`."""
        known = self._tasks.get(hook.task_id, {}).get(hook.hook_id)
        if known is not None:
            self.keep(moved(self._mails[known], hook, now))
            return
        self.keep(begun(self.number(), hook, scope, sent=sent, last=last, now=now))

    def number(self) -> int:
        """The number of a new hook."""
        self._n += 1
        return self._n

    def keep(self, mail: Mail) -> None:
        """Takes mail in, in the place of what was there."""
        self._n = max(self._n, mail.n)
        self._mails[mail.n] = mail
        self._tasks.setdefault(mail.hook.task_id, {})[mail.hook.hook_id] = mail.n
        if mail.due_at:
            self._due.add(mail.n)
        else:
            self._due.discard(mail.n)

    def of(self, task_id: str) -> list[Mail]:
        """The mail of a task, oldest hook first."""
        return [self._mails[n] for n in sorted(self._tasks.get(task_id, {}).values())]

    def grown(self, task_id: str, last: int, now: int) -> None:
        """The log of a task grew."""
        for mail in self.of(task_id):
            self.keep(grown(mail, last, now))

    def drop(self, task_id: str, hook_ids: Iterable[str] | None = None) -> bool:
        """Forgets hooks of a task, or all of them; whether there were any."""
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
        """See `Store.due`."""
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
            if bulkheads is not None and not bulkheads.admit(*place_of(mail)):
                continue
            held, delivery = taken(mail, now, hold_ms)
            self.keep(held)
            if delivery is not None:
                found.append(delivery)
        return found

    def set_back(self, by: int, now: int) -> None:
        """The clock was set back: what is due must not wait longer for that."""
        for n in self._due:
            mail = self._mails[n]
            # What is taken may have been taken since: it stays so until its time is over.
            least = min(mail.due_at, now + self._hold) if mail.taken else 1
            self._mails[n] = replace(mail, due_at=max(least, mail.due_at - by))

    def change(self, id: int, rule: Rule, now: int) -> str:
        """Applies a rule to the mail behind a delivery; the task it belongs to, if anything
        changed."""
        n, seq = parted(id)
        before = self._mails.get(n)
        after = rule(before, seq, now) if before is not None else None
        if after is None or after is before:
            return ""
        self.keep(after)
        return after.hook.task_id

    def outbox(self, *, dead_ones: bool, limit: int, agent: str | None) -> list[Delivery]:
        """See `Store.outbox`."""
        mails = (
            mail
            for n in sorted(self._mails)
            if agent in (None, (mail := self._mails[n]).scope.agent)
        )
        if not dead_ones:
            return list(islice(chain.from_iterable(map(waiting, mails)), limit))
        found = sorted(chain.from_iterable(map(dead, mails)), key=lambda one: (one.dead_at, one.id))
        return found[:limit]

    def holds_task(self, task_id: str) -> bool:
        """Whether something of a task is still on its way."""
        return any(mail.due_at for mail in self.of(task_id))

    def holds_log(self, task_id: str) -> bool:
        """Whether something of a task was not delivered: its events are still needed."""
        return any(mail.due_at or mail.letters for mail in self.of(task_id))
