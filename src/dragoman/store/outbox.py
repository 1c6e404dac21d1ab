"""The rules of the outbox, which all stores share: what is due to a webhook, without any I/O.

Theory. The log of a task is the source of truth, so the outbox does not repeat it. A webhook
remembers the last event up to which everything was delivered (`sent`), and every later event is a
delivery. An event and its deliveries are therefore always one write. Only the oldest delivery of a
webhook is ever attempted, so a single time (`due_at`) says when the webhook needs attention; 0
means that nothing waits. Only deliveries that were given up, or that are attempted again by hand,
have a record of their own (`Letter`).
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


class HookCursor(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The place of a webhook in the log of its task, and everything that is due to it."""

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


# In a database, the columns are the fields of both. A cursor keeps its webhook as bytes, its scope
# in three columns, its letters in a table of their own, and reads `last` from its task.
MOVING = tuple(
    name
    for name in HookCursor.__struct_fields__
    if name not in ("n", "hook", "scope", "last", "letters")
)
LETTER = Letter.__struct_fields__


Said = tuple[int, str]
"""The status of an answer, and the error that prevented one."""

Rule = Callable[[HookCursor, int, int], HookCursor | None]
"""Takes a cursor, a seq of it and the time; returns the cursor as it will be, or None if the seq is
not there."""


def delivery_id(n: int, seq: int) -> int:
    """Returns the id of the delivery of an event to the webhook with this number."""
    return n << _SEQ_BITS | seq


def split_id(id: int) -> tuple[int, int]:
    """Returns the number of the webhook and the seq that an id consists of."""
    return id >> _SEQ_BITS, id & ((1 << _SEQ_BITS) - 1)


# Rules: each takes the cursor as it is and returns it as it will be.


def begin(n: int, hook: Hook, scope: Scope, *, sent: int, last: int, now: int) -> HookCursor:
    """Returns the cursor of a new webhook."""
    return _schedule(HookCursor(n=n, hook=hook, scope=scope, sent=sent, last=last), now)


def move(cursor: HookCursor, hook: Hook, now: int) -> HookCursor:
    """Replaces the webhook under its id. What is due goes to the new address, and at once."""
    return _schedule(replace(cursor, hook=hook, attempt=0, status=0, error=""), now)


def grow(cursor: HookCursor, last: int, now: int) -> HookCursor:
    """Notes that the log has grown."""
    return replace(cursor, last=last, due_at=cursor.due_at or now)


def head(cursor: HookCursor) -> Letter | None:
    """Returns the next delivery: the oldest event that is neither delivered nor given up."""
    for letter in cursor.letters:
        if not letter.dead_at:
            return letter
    if cursor.sent >= cursor.last:
        return None
    return Letter(
        seq=cursor.sent + 1, attempt=cursor.attempt, status=cursor.status, error=cursor.error
    )


def take(cursor: HookCursor, now: int, hold_ms: int) -> tuple[HookCursor, Delivery | None]:
    """Takes the next delivery, and hides it from others for `hold_ms`."""
    found = head(cursor)
    if found is None:
        return replace(cursor, due_at=0), None
    found = replace(found, attempt=found.attempt + 1)
    cursor = replace(_with(cursor, found), due_at=now + hold_ms, taken=found.seq)
    return cursor, delivery_of(cursor, found)


def arrive(through: int = 0) -> Rule:
    """Returns the rule for a delivery that arrived, and with it every later one up to `through`."""

    def rule(cursor: HookCursor, seq: int, now: int) -> HookCursor:
        if _open(cursor, seq) is None:
            return cursor
        return _free(_without(cursor, seq, through), seq, now)

    return rule


def postpone(wait_ms: int, said: Said, *, tried: bool) -> Rule:
    """Returns the rule for a delivery that failed. If it was not even tried, the attempt does not
    count."""

    def rule(cursor: HookCursor, seq: int, now: int) -> HookCursor:
        found = _open(cursor, seq)
        if found is None:
            return cursor
        status, error = said
        attempt = found.attempt if tried else max(0, found.attempt - 1)
        cursor = _with(cursor, replace(found, attempt=attempt, status=status, error=error))
        return _free(cursor, seq, now + wait_ms)

    return rule


def give_up(said: Said, through: int = 0) -> Rule:
    """Returns the rule for a delivery that is given up, together with every later one up to
    `through`: one dead letter stands for them all."""

    def rule(cursor: HookCursor, seq: int, now: int) -> HookCursor:
        found = _open(cursor, seq)
        if found is None:
            return cursor
        status, error = said
        after = _without(cursor, seq, through)
        last = after.sent if seq == cursor.sent + 1 else seq
        dead = replace(found, seq=last, dead_at=now, status=status, error=error)
        return _free(_file(after, dead), seq, now)

    return rule


def redeliver(cursor: HookCursor, seq: int, now: int) -> HookCursor | None:
    """Returns the rule for a dead letter that is tried again."""
    for letter in cursor.letters:
        if letter.seq == seq and letter.dead_at:
            cursor = _file(cursor, replace(letter, dead_at=0, attempt=0))
            return cursor if cursor.taken else replace(cursor, due_at=now)
    return None


def bulkheads_of(cursor: HookCursor) -> tuple[Principal, str]:
    """Returns the principal and the host whose bulkheads a delivery has to pass."""
    return (cursor.scope.tenant, cursor.scope.principal), host_of(cursor.hook.url)


def delivery_of(cursor: HookCursor, letter: Letter) -> Delivery:
    """Returns a letter as callers of the store see it."""
    return Delivery(
        id=delivery_id(cursor.n, letter.seq),
        hook=cursor.hook,
        scope=cursor.scope,
        seq=letter.seq,
        last=cursor.last if letter.seq > cursor.sent else 0,
        attempt=letter.attempt,
        due_at=0 if letter.dead_at else cursor.due_at,
        dead_at=letter.dead_at,
        status=letter.status,
        error=letter.error,
    )


def waiting(cursor: HookCursor) -> Iterator[Delivery]:
    """Yields every delivery to a webhook that is on its way, in order."""
    first = head(cursor)
    for letter in chain(
        (letter for letter in cursor.letters if not letter.dead_at),
        (Letter(seq=seq) for seq in range(cursor.sent + 1, cursor.last + 1)),
    ):
        if first is not None and letter.seq == first.seq:
            yield delivery_of(cursor, first)
        else:
            yield replace(delivery_of(cursor, letter), due_at=0)


def dead(cursor: HookCursor) -> Iterator[Delivery]:
    """Returns the dead letters of a webhook."""
    return (delivery_of(cursor, letter) for letter in cursor.letters if letter.dead_at)


def _open(cursor: HookCursor, seq: int) -> Letter | None:
    """Returns a letter that is neither delivered nor dead, or None if its outcome is reported too
    late."""
    if seq == cursor.sent + 1 <= cursor.last:
        return Letter(seq=seq, attempt=cursor.attempt, status=cursor.status, error=cursor.error)
    return next((one for one in cursor.letters if one.seq == seq and not one.dead_at), None)


def _with(cursor: HookCursor, letter: Letter) -> HookCursor:
    if letter.seq == cursor.sent + 1:
        said = letter.status, letter.error
        return replace(cursor, attempt=letter.attempt, status=said[0], error=said[1])
    return _file(cursor, letter)


def _file(cursor: HookCursor, letter: Letter) -> HookCursor:
    others = [one for one in cursor.letters if one.seq != letter.seq]
    letters = tuple(sorted([*others, letter], key=lambda one: one.seq))
    return replace(cursor, letters=letters)


def _without(cursor: HookCursor, seq: int, through: int) -> HookCursor:
    if seq == cursor.sent + 1:
        sent = max(seq, min(through, cursor.last))
        return replace(cursor, sent=sent, attempt=0, status=0, error="")
    return replace(cursor, letters=tuple(one for one in cursor.letters if one.seq != seq))


def _free(cursor: HookCursor, seq: int, due_at: int) -> HookCursor:
    """Notes that this seq is no longer being delivered."""
    # Another seq may be in delivery now, if the outcome of this one was reported too late.
    return cursor if cursor.taken not in (0, seq) else _schedule(cursor, due_at)


def _schedule(cursor: HookCursor, due_at: int) -> HookCursor:
    return replace(cursor, taken=0, due_at=due_at if head(cursor) is not None else 0)


class OutboxCalls:
    """The calls of `Store` that report on a delivery, each as a rule for the cursor of
    its webhook."""

    async def _settle(self, id: int, rule: Rule) -> bool:
        """Applies a rule to the webhook of a delivery. Returns whether that changed anything."""
        raise NotImplementedError

    async def mark_delivered(self, id: int, through: int = 0) -> None:
        await self._settle(id, arrive(through))

    async def retry(
        self, id: int, wait_ms: int, status: int, error: str, *, tried: bool = True
    ) -> None:
        await self._settle(id, postpone(wait_ms, (status, error), tried=tried))

    async def mark_dead(self, id: int, status: int, error: str, through: int = 0) -> None:
        await self._settle(id, give_up((status, error), through))

    async def redeliver(self, id: int) -> bool:
        return await self._settle(id, redeliver)
