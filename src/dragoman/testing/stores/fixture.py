"""What the contract tests work with: a clock that is moved by hand, and a store with shortcuts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from dragoman.core.events import AnyEvent, Ask, Asked, Opened, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Message, Role, State, Text
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
from dragoman.store.writes import commit

AGENT = "desk"
ANOTHER = "another"
ALICE = Scope("", "alice", AGENT)
BOB = Scope("", "bob", AGENT)
ALICE_ELSEWHERE = Scope("other", "alice", AGENT)
ALICE_WITH_ANOTHER = Scope("", "alice", ANOTHER)
LEASE = 30_000
START = 1_700_000_000_000


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: int = START) -> None:
        self.now = now
        self._passed = 0

    def __call__(self) -> int:
        """Returns the time of day."""
        return self.now

    def steady(self) -> int:
        """Returns the steady time, which nobody can set."""
        return self._passed

    def tick(self, millis: int) -> None:
        """Lets time pass."""
        self.now += millis
        self._passed += millis

    def set(self, millis: int) -> None:
        """Sets the time of day forward or back, while no time passes."""
        self.now += millis


Make = Callable[[Path, HandClock], Awaitable[Store]]


def said(text: str, role: Role = Role.USER) -> Message:
    """Makes a message with one text."""
    return Message(message_id=f"m-{text}", role=role, parts=(Text(text=text),))


class StoreFixture:
    """An open store, its clock, and the logs as they should be. Use it with `async with`."""

    def __init__(self, make: Make, folder: Path, worker: str = "w1") -> None:
        self.clock = HandClock()
        self.folds: dict[str, Fold] = {}
        self._make = make
        self._folder = folder
        self._worker = worker
        self.store: Store

    async def __aenter__(self) -> StoreFixture:
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

    # Drafts and writes that are not handed over yet.

    def stamp(self, task_id: str, *events: AnyEvent) -> tuple[Stamped, ...]:
        """Stamps events as the next ones in the log of a task."""
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
        """Makes a draft of a task with two events. A worker holds it, or it is runnable if the name
        is empty."""
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
        *events: AnyEvent,
        heard: int = 0,
        records: tuple[Record, ...] = (),
        forget: tuple[int, ...] = (),
        fresh: bool = False,
        expires_at: int = 0,
    ) -> Write:
        """Makes a change that continues the log as the fixture knows it. The last event decides the
        state."""
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

    # Changes that are waited for.

    async def create(self, draft: Draft) -> Row:
        """Creates a task and returns its row as the store knows it."""
        await commit(lambda done: self.store.create(draft, done))
        return await self.store.row(draft.row.scope, draft.row.task_id)

    async def open_task(self, task_id: str, *, worker: str = "w1", scope: Scope = ALICE) -> Row:
        """Creates a task that a worker holds, or that is runnable if the name is empty."""
        return await self.create(self.draft(task_id, worker=worker, scope=scope))

    async def enlist(self, count: int) -> list[str]:
        """Enlists workers, and returns their names."""
        workers = [f"w{n}" for n in range(1, count + 1)]
        for worker in workers:
            await self.store.enlist(worker, LEASE)
        return workers

    async def append(self, write: Write) -> None:
        """Appends to a log and waits for the commit."""
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
        """Sends a message of the caller to a task."""
        return await self.store.add_input(ALICE, task_id, Input(message=said(text)), question)

    async def log(self, task_id: str, scope: Scope = ALICE) -> list[Stamped]:
        """Returns the whole log of a task."""
        return (await self.store.read(scope, task_id, 0, 1_000_000)).entries
