"""What the contract tests work with: a clock moved by hand, and short ways to say a change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from dragoman.core.events import Ask, Asked, Opened, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Message, Role, State, Text
from dragoman.store.commit import commit
from dragoman.store.interface import (
    Claim,
    Draft,
    Idempotency,
    Input,
    Record,
    Row,
    Scope,
    Store,
    Write,
)

AGENT = "desk"
ANOTHER = "another"
ALICE = Scope("", "alice", AGENT)
BOB = Scope("", "bob", AGENT)
ALICE_ELSEWHERE = Scope("other", "alice", AGENT)
ALICE_WITH_ANOTHER = Scope("", "alice", ANOTHER)
LEASE = 30_000
START = 1_700_000_000_000


class HandClock:
    """Stands still until it is moved."""

    def __init__(self, now: int = START) -> None:
        self.now = now
        self._passed = 0

    def __call__(self) -> int:
        """The time of day."""
        return self.now

    def steady(self) -> int:
        """The time that only passes."""
        return self._passed

    def tick(self, millis: int) -> None:
        """Time passes."""
        self.now += millis
        self._passed += millis

    def set(self, millis: int) -> None:
        """Someone sets the time of day, by so much; no time passes."""
        self.now += millis


Make = Callable[[Path, HandClock], Awaitable[Store]]


def said(text: str, role: Role = Role.USER) -> Message:
    """A message with one text."""
    return Message(message_id=f"m-{text}", role=role, parts=(Text(text=text),))


class Bench:
    """A store, its clock, and the logs as they should be."""

    def __init__(self, make: Make, folder: Path, worker: str = "w1") -> None:
        self.clock = HandClock()
        self.folds: dict[str, Fold] = {}
        self._make = make
        self._folder = folder
        self._worker = worker
        self.store: Store

    async def __aenter__(self) -> Bench:
        self.store = await self._make(self._folder, self.clock)
        await self.store.open()
        await self.store.enlist(self._worker, LEASE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()

    async def reopen(self) -> None:
        """Closes the store and opens it again, as a restart would."""
        await self.store.close()
        self.store = await self._make(self._folder, self.clock)
        await self.store.open()

    # Drafts and writes, without handing them over.

    def stamp(self, task_id: str, *events: Opened | StateChanged | Asked) -> tuple[Stamped, ...]:
        """The events as the next ones of the task's log."""
        fold = self.folds.setdefault(task_id, Fold(task_id, f"c-{task_id}"))
        stamped = []
        for event in events:
            stamped.append(Stamped(task_id, fold.context_id, fold.seq + 1, self.clock.now, event))
            fold.add(stamped[-1])
        return tuple(stamped)

    def draft(
        self,
        task_id: str,
        *,
        scope: Scope = ALICE,
        worker: str = "w1",
        context: str = "",
        key: Idempotency | None = None,
        end: State | None = None,
    ) -> Draft:
        """A task with two events; held by a worker, or (worker="") runnable now."""
        now = self.clock.now
        self.folds[task_id] = fold = Fold(task_id, context or f"c-{task_id}")
        second = StateChanged(state=end or State.WORKING)
        entries = self.stamp(task_id, Opened(message=said("hello"), skill="plan"), second)
        row = Row(
            task_id=task_id,
            context_id=fold.context_id,
            tenant=scope.tenant,
            principal=scope.principal,
            agent=scope.agent,
            skill="plan",
            dialect="a2a-1.0",
            state=second.state,
            last_seq=len(entries),
            created_at=now,
            status_at=now,
            worker=worker,
            token=f"token-{task_id}" if worker else "",
            epoch=1 if worker else 0,
            attempt=1 if worker else 0,
            runnable=not worker and end is None,
            run_at=now,
        )
        ended = fold.task() if end is not None else None
        return Draft(row=row, entries=entries, idempotency=key, ended=ended)

    def write(
        self,
        claim: Claim,
        *events: StateChanged | Asked,
        heard: int = 0,
        records: tuple[Record, ...] = (),
        forget: tuple[int, ...] = (),
        fresh: bool = False,
        expires_at: int = 0,
    ) -> Write:
        """A change that continues the log as the bench knows it; the last event says the state."""
        fold = self.folds[claim.task_id]
        base = fold.seq
        entries = self.stamp(claim.task_id, *events)
        last = events[-1] if events else None
        question = last if isinstance(last, Asked) else None
        final = fold.state in (State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED)
        return Write(
            claim=claim,
            base=base,
            entries=entries,
            state=fold.state,
            status_at=fold.status.at,
            heard=heard,
            question=question.question if question else "",
            asking=question.kind if question else None,
            expires_at=expires_at,
            records=records,
            forget=forget,
            ended=fold.task() if final else None,
            fresh=fresh,
        )

    # Changes, awaited.

    async def create(self, draft: Draft) -> Row:
        """Creates a task and gives its row as the store tells it."""
        await commit(lambda done: self.store.create(draft, done))
        return await self.store.row(draft.row.scope, draft.row.task_id)

    async def open_task(self, task_id: str, *, worker: str = "w1", scope: Scope = ALICE) -> Row:
        """Creates a plain task."""
        return await self.create(self.draft(task_id, worker=worker, scope=scope))

    async def append(self, write: Write) -> None:
        """Appends, and waits for it."""
        await commit(lambda done: self.store.append(write, done))

    async def end(self, row: Row, state: State = State.COMPLETED, *, heard: int = 0) -> None:
        """Ends a task."""
        await self.append(self.write(row.claim, StateChanged(state=state), heard=heard))

    async def ask(
        self, row: Row, question: str = "q1", *, heard: int = 0, expires_at: int = 0
    ) -> None:
        """Makes a task wait for its caller."""
        asked = Asked(question=question, kind=Ask.INPUT, message=said("which?", Role.AGENT))
        await self.append(self.write(row.claim, asked, heard=heard, expires_at=expires_at))

    async def add_input(
        self, task_id: str, text: str = "this one", question: str | None = None
    ) -> Row:
        """The caller says something."""
        return await self.store.add_input(ALICE, task_id, Input(message=said(text)), question)

    async def log(self, task_id: str, scope: Scope = ALICE) -> list[Stamped]:
        """The whole log."""
        return (await self.store.read(scope, task_id, 0, 1_000_000)).entries
