"""Webhooks and what is due to them: the rules that all stores share, without any I/O.

Theory. The log of a task is the truth, so the outbox does not repeat it. A webhook remembers up to
which event everything was delivered (`sent`), and every later event is a delivery. An event and
its deliveries are therefore one write, whatever happens. Only the first delivery of a webhook is
ever tried, so a single time (`due_at`) says when the webhook needs attention; 0 means that nothing
waits. Only what was given up, or is tried again by hand, is written down by itself (`Letter`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.model import Hook

from .bulkheads import Principal, host_of
from .interface import Delivery
from .task_row import Scope

_SEQ_BITS = 32
"""The id of a delivery is the number of its webhook and, in this many low bits, its seq."""


class Letter(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One event for one webhook, and how its delivery went so far."""

    seq: int
    dead_at: int = 0
    attempt: int = 0
    status: int = 0
    error: str = ""


class Mail(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A webhook and everything that is due to it."""

    n: int
    hook: Hook
    scope: Scope
    sent: int
    """Everything up to this seq was delivered or given up."""
    last: int
    """The length of the log."""
    due_at: int = 0
    """When the next delivery is to be tried; 0 if nothing waits."""
    taken: int = 0
    """The seq that is being delivered now; 0 if none is."""
    attempt: int = 0
    """The number of tries of the next delivery."""
    status: int = 0
    """The status of the last answer to the next delivery."""
    error: str = ""
    """What prevented an answer to the next delivery."""
    letters: tuple[Letter, ...] = ()
    """The dead letters and those that are tried again, by seq."""


Said = tuple[int, str]
"""The status of an answer, and the error that prevented one."""

Rule = Callable[[Mail, int, int], Mail | None]
"""Takes a mail, a seq of it and the time; returns the mail as it will be, or None if the seq is
not there."""


def delivery_id(n: int, seq: int) -> int:
    """The id of the delivery of an event to the webhook with this number."""
    return n << _SEQ_BITS | seq


def split_id(id: int) -> tuple[int, int]:
    """The number of the webhook and the seq that an id consists of."""
    return id >> _SEQ_BITS, id & ((1 << _SEQ_BITS) - 1)


# Rules: each takes the mail as it is and returns it as it will be.


def begin(n: int, hook: Hook, scope: Scope, *, sent: int, last: int, now: int) -> Mail:
    """The mail of a new webhook."""
    return _schedule(Mail(n=n, hook=hook, scope=scope, sent=sent, last=last), now)


def move(mail: Mail, hook: Hook, now: int) -> Mail:
    """Replaces the webhook under its id. What is due goes to the new address, and at once."""
    return _schedule(replace(mail, hook=hook, attempt=0, status=0, error=""), now)


def grow(mail: Mail, last: int, now: int) -> Mail:
    """Notes that the log has grown."""
    return replace(mail, last=last, due_at=mail.due_at or now)


def head(mail: Mail) -> Letter | None:
    """The next delivery: the oldest event that is neither delivered nor given up."""
    for letter in mail.letters:
        if not letter.dead_at:
            return letter
    if mail.sent >= mail.last:
        return None
    return Letter(seq=mail.sent + 1, attempt=mail.attempt, status=mail.status, error=mail.error)


def take(mail: Mail, now: int, hold_ms: int) -> tuple[Mail, Delivery | None]:
    """Takes the next delivery, and hides it from others for `hold_ms`."""
    found = head(mail)
    if found is None:
        return replace(mail, due_at=0), None
    found = replace(found, attempt=found.attempt + 1)
    mail = replace(_with(mail, found), due_at=now + hold_ms, taken=found.seq)
    return mail, delivery_of(mail, found)


def arrive(through: int = 0) -> Rule:
    """The rule for a delivery that arrived, and with it every later one up to `through`."""

    def rule(mail: Mail, seq: int, now: int) -> Mail:
        if _open(mail, seq) is None:
            return mail
        return _free(_without(mail, seq, through), seq, now)

    return rule


def postpone(wait_ms: int, said: Said, *, tried: bool) -> Rule:
    """The rule for a delivery that failed; without a try the attempt does not count."""

    def rule(mail: Mail, seq: int, now: int) -> Mail:
        found = _open(mail, seq)
        if found is None:
            return mail
        status, error = said
        attempt = found.attempt if tried else max(0, found.attempt - 1)
        mail = _with(mail, replace(found, attempt=attempt, status=status, error=error))
        return _free(mail, seq, now + wait_ms)

    return rule


def give_up(said: Said, through: int = 0) -> Rule:
    """The rule for a delivery that is given up, together with every later one up to `through`:
    one dead letter stands for them all."""

    def rule(mail: Mail, seq: int, now: int) -> Mail:
        found = _open(mail, seq)
        if found is None:
            return mail
        status, error = said
        after = _without(mail, seq, through)
        last = after.sent if seq == mail.sent + 1 else seq
        dead = replace(found, seq=last, dead_at=now, status=status, error=error)
        return _free(_file(after, dead), seq, now)

    return rule


def redeliver(mail: Mail, seq: int, now: int) -> Mail | None:
    """The rule for a dead letter that is tried again."""
    for letter in mail.letters:
        if letter.seq == seq and letter.dead_at:
            mail = _file(mail, replace(letter, dead_at=0, attempt=0))
            return mail if mail.taken else replace(mail, due_at=now)
    return None


def bulkheads_of(mail: Mail) -> tuple[Principal, str]:
    """The principal and the host whose bulkheads a delivery has to pass."""
    return (mail.scope.tenant, mail.scope.principal), host_of(mail.hook.url)


def delivery_of(mail: Mail, letter: Letter) -> Delivery:
    """A letter as callers of the store see it."""
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
    """Every delivery of a mail that is on its way, in order."""
    first = head(mail)
    for letter in chain(
        (letter for letter in mail.letters if not letter.dead_at),
        (Letter(seq=seq) for seq in range(mail.sent + 1, mail.last + 1)),
    ):
        if first is not None and letter.seq == first.seq:
            yield delivery_of(mail, first)
        else:
            yield replace(delivery_of(mail, letter), due_at=0)


def dead(mail: Mail) -> Iterator[Delivery]:
    """The dead letters of a mail."""
    return (delivery_of(mail, letter) for letter in mail.letters if letter.dead_at)


def _open(mail: Mail, seq: int) -> Letter | None:
    """A letter that is neither delivered nor dead; None if the news about it comes too late."""
    if seq == mail.sent + 1 <= mail.last:
        return Letter(seq=seq, attempt=mail.attempt, status=mail.status, error=mail.error)
    return next((one for one in mail.letters if one.seq == seq and not one.dead_at), None)


def _with(mail: Mail, letter: Letter) -> Mail:
    if letter.seq == mail.sent + 1:
        said = letter.status, letter.error
        return replace(mail, attempt=letter.attempt, status=said[0], error=said[1])
    return _file(mail, letter)


def _file(mail: Mail, letter: Letter) -> Mail:
    others = [one for one in mail.letters if one.seq != letter.seq]
    letters = tuple(sorted([*others, letter], key=lambda one: one.seq))
    return replace(mail, letters=letters)


def _without(mail: Mail, seq: int, through: int) -> Mail:
    if seq == mail.sent + 1:
        sent = max(seq, min(through, mail.last))
        return replace(mail, sent=sent, attempt=0, status=0, error="")
    return replace(mail, letters=tuple(one for one in mail.letters if one.seq != seq))


def _free(mail: Mail, seq: int, due_at: int) -> Mail:
    """Notes that this seq is no longer being delivered."""
    # Another one may be: the news about this seq came after it was taken again.
    return mail if mail.taken not in (0, seq) else _schedule(mail, due_at)


def _schedule(mail: Mail, due_at: int) -> Mail:
    return replace(mail, taken=0, due_at=due_at if head(mail) is not None else 0)


class OutboxCalls:
    """The calls of `Store` that report on a delivery, each as a rule for its mail."""

    async def _settle(self, id: int, rule: Rule) -> bool:
        """Applies a rule to the mail of a delivery; whether that changed anything."""
        raise NotImplementedError

    async def delivered(self, id: int, through: int = 0) -> None:
        await self._settle(id, arrive(through))

    async def retry(
        self, id: int, wait_ms: int, status: int, error: str, *, tried: bool = True
    ) -> None:
        await self._settle(id, postpone(wait_ms, (status, error), tried=tried))

    async def mark_dead(self, id: int, status: int, error: str, through: int = 0) -> None:
        await self._settle(id, give_up((status, error), through))

    async def redeliver(self, id: int) -> bool:
        return await self._settle(id, redeliver)
