"""What the engine tests share: a clock to move, stores to crash and to hold up, logs to read."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from dragoman import Agent, Message, State, Task
from dragoman.core.events import AnyEvent, ArtifactChunk, Asked, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, Fold, may_follow
from dragoman.core.peer import ANYONE, Context
from dragoman.engine import Engine, EngineSettings
from dragoman.store import open_store
from dragoman.store.interface import Done, Draft, Row, Scope, Store, Write
from dragoman.testing import Client
from waiting import LIMIT, until

ANN = Context(principal="ann")
BOB = Context(principal="bob")


class Clock:
    """The real time, moved on by hand."""

    def __init__(self) -> None:
        self._ahead = 0
        self._wrong = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead + self._wrong

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._ahead

    def skip(self, seconds: float) -> None:
        """So much later, at once."""
        self._ahead += int(seconds * 1000)

    def set_forward(self, seconds: float) -> None:
        """Someone sets the time of day; no time passes."""
        self._wrong += int(seconds * 1000)


class EngineHarness:
    """A store at a URL and the engines that were started on it, one after the other or at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = Clock()
        self._memory: Store | None = None

    def store(self) -> Store:
        """The store as a new process would open it; what is in memory is the same for all."""
        if self.url != "memory:":
            return open_store(self.url, clock=self.clock)
        self._memory = self._memory or open_store(self.url, clock=self.clock)
        return self._memory

    def client(self, agent: Agent, *, context: Context = ANYONE, **settings: Any) -> Client:
        """A client of an engine of its own, not started."""
        return client_of(agent, self.store(), self.clock, context=context, **settings)

    async def crash(self, client: Client) -> None:
        """As `kill -9` would: its code is gone, nothing is said, given back or told to anyone."""
        engine = client.engine
        await engine._maintenance.stop()
        for run in list(engine.runner.runs.values()):
            run.writer.closed = True
            if run.task is not None and not run.task.done():
                run.task.cancel()
                await asyncio.wait([run.task])
        engine.runner.runs.clear()
        if self.url != "memory:":
            await engine.store.close()

    async def restart(self, client: Client, agent: Agent | None = None, **settings: Any) -> Client:
        """Crashes an engine and starts another when the dead one's lease and the pause are over."""
        await self.crash(client)
        self.clock.skip(60)
        new = self.client(agent or client.engine.agent, context=client.context, **settings)
        await new.engine.start()
        await self.later(new, 31)
        return new

    async def later(self, client: Client, seconds: float) -> None:
        """So much later for a living engine, which then looks what is due."""
        runner = client.engine.runner
        lease = runner.settings.lease
        while seconds > 0:
            # In steps: it lives through all of it, so nobody may find it dead in between.
            await client.store.beat(runner.worker, int(lease * 1000))
            self.clock.skip(min(seconds, lease / 3))
            seconds -= lease / 3
        await client.store.beat(runner.worker, int(lease * 1000))
        runner.place_free.set()


def client_of(
    agent: Agent,
    store: Store,
    clock: Callable[[], int],
    *,
    context: Context = ANYONE,
    **settings: Any,
) -> Client:
    """A client whose engine tells the time by this clock."""
    _beat_in_order(store)
    client = Client(agent, store=store, settings=EngineSettings(**settings), context=context)
    client.engine = Engine(agent, store, client.engine.settings, clock=clock)
    return client


def _beat_in_order(store: Store) -> None:
    """Lets a beat of the engine and one of `EngineHarness.later` follow each other. A worker beats
    alone, but here a beat of the engine that began before the clock was moved could end after
    those of `later`, and bring back a lease that is over by then."""
    if isinstance(store.beat, partial):
        return  # another engine has this store too
    store.beat = partial(_beat, asyncio.Lock(), store.beat)  # type: ignore[method-assign]


async def _beat(
    turn: asyncio.Lock, beat: Callable[[str, int], Awaitable[bool]], worker: str, lease_ms: int
) -> bool:
    async with turn:
        return await beat(worker, lease_ms)


class Slow:
    """A store that can be held up between any two calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: set[str] = set()
        self._held_back: set[str] = set()
        self._waiting: list[tuple[str, Callable[[], object]]] = []

    def hold(self, *names: str) -> None:
        """Calls of these methods wait from now on."""
        self._held.update(names)

    def hold_back(self, *names: str) -> None:
        """What these methods answer is held back from now on."""
        self._held_back.update(names)

    def let_go(self, *names: str) -> None:
        """What waits, of these methods or of all, goes on in its order."""
        names = names or (*self._held, *self._held_back)
        self._held.difference_update(names)
        self._held_back.difference_update(names)
        ready = [go for name, go in self._waiting if name in names]
        self._waiting = [one for one in self._waiting if one[0] not in names]
        for go in ready:
            go()

    @property
    def waiting(self) -> int:
        """How many calls are held up now."""
        return len(self._waiting)

    def holds(self, name: str) -> bool:
        """Whether a call of this method is held up now."""
        return any(each == name for each, _ in self._waiting)

    def create(self, draft: Draft, done: Done) -> None:
        self._hand_over("create", lambda: self._store.create(draft, done))

    def append(self, write: Write, done: Done) -> None:
        self._hand_over("append", lambda: self._store.append(write, done))

    def _hand_over(self, name: str, go: Callable[[], object]) -> None:
        if name in self._held:
            self._waiting.append((name, go))
        else:
            go()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def later(*args: Any, **kw: Any) -> Any:
            if name in self._held:
                await self._gate(name)
            answer = await found(*args, **kw)
            if name in self._held_back:
                await self._gate(name)
            return answer

        return later

    async def _gate(self, name: str) -> None:
        gate = asyncio.get_running_loop().create_future()
        self._waiting.append((name, lambda: gate.done() or gate.set_result(None)))
        await gate


async def read_by(client: Client, task_id: str, count: int = 1) -> None:
    """Waits until so many readers follow a task of this engine and have seen all there is."""
    run = client.engine.runner.runs[task_id]
    await until(lambda: len(run.log._readers or ()) >= count)


async def written(client: Client) -> None:
    """Waits until the store has everything that was said by what runs here."""
    runs = client.engine.runner.runs
    await until(lambda: all(run.log.committed == run.writer.fold.seq for run in runs.values()))


async def in_state(client: Client, task_id: str, *states: State, seconds: float = LIMIT) -> Task:
    """The task, once it is in one of these states."""
    task: Task | None = None

    async def there() -> bool:
        nonlocal task
        task = await client.get(task_id)
        return task.state in states

    await until(there, seconds)
    assert task is not None
    return task


async def ended(client: Client, task_id: str, seconds: float = LIMIT) -> Task:
    """The task, once it is over."""
    return await in_state(client, task_id, *FINAL, seconds=seconds)


async def log_of(client: Client, task_id: str) -> list[Stamped]:
    """The whole log of a task, straight from the store."""
    found: list[Stamped] = []
    while True:
        page = await client.store.read(_scope(client), task_id, len(found), 1000)
        if not page.entries:
            return found
        found.extend(page.entries)


async def row_of(client: Client, task_id: str) -> Row:
    """The row of a task, straight from the store."""
    return await client.store.row(_scope(client), task_id)


def _scope(client: Client) -> Scope:
    return client.engine.runner.scope_of(client.context)


async def checked(client: Client, task_id: str) -> list[Stamped]:
    """The log of a task, after a look at what must hold for every log."""
    log = await log_of(client, task_id)
    assert [entry.seq for entry in log] == list(range(1, len(log) + 1)), "seq has gaps"
    assert {entry.task_id for entry in log} == {task_id}
    fold = Fold(task_id, log[0].context_id)
    for number, entry in enumerate(log):
        before = fold.state
        fold.add(entry)
        if number:
            assert may_follow(before, fold.state), f"{before} -> {fold.state}"
    _, stored = await client.store.load(_scope(client), task_id)
    assert fold.task() == stored, "the log and the stored task differ"
    assert await client.get(task_id) == stored
    return log


def terminals(log: list[Stamped]) -> list[State]:
    """The final states a log tells of: one at the most."""
    states = (getattr(entry.event, "state", None) for entry in log)
    return [state for state in states if state in FINAL]


def brief(event: AnyEvent) -> str:
    """An event in a few letters: `working`, `working say:hi`, `+result:ab`, `=result:c!`."""
    match event:
        case StateChanged(state=state, message=message, heard=heard):
            said = f" say:{message.text}" if message else ""
            return f"{state}{said}" + (f" heard:{heard.text}" if heard else "")
        case Asked(question=question):
            return f"?{question}"
        case ArtifactChunk(artifact=artifact, append=append, last=last):
            sign, end = "+" if append else "=", "!" if last else ""
            return f"{sign}{artifact.artifact_id}:{artifact.text}{end}"
        case Snapshot(task=task):
            return f"snapshot {task.state}"
    return type(event).__name__.lower()


def story(entries: list[Stamped] | list[Stamped | Message]) -> list[str]:
    """A log in brief."""
    return [brief(entry.event) for entry in entries if isinstance(entry, Stamped)]


async def gathered(events: AsyncIterator[Stamped | Message]) -> list[Stamped]:
    """A whole stream."""
    return [event async for event in events if isinstance(event, Stamped)]


@asynccontextmanager
async def background(work: Awaitable[Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Something that goes on beside the test and ends with it."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
