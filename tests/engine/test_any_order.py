"""Whatever happens in whatever order: the log has no gaps, one end, and is the stored task."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counts import count
from dragoman import Agent, State, Turn
from dragoman.core.errors import DragomanError
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.testing import Client
from engine.conftest import url_of
from engine.harness import EngineHarness, checked, log_of, row_of, terminals, until
from waiting import turns

SAY, YIELD, STEP, ASK, APPROVE, AUTH, PAUSE = (
    "say",
    "yield",
    "step",
    "ask",
    "approve",
    "auth",
    "pause",
)
TELL, YES, CANCEL, DROP, CRASH, STOP = "tell", "yes", "cancel", "drop", "crash", "stop"

CODE = st.lists(st.sampled_from([SAY, YIELD, STEP, ASK, APPROVE, AUTH, PAUSE]), max_size=8)
WORLD = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([TELL, YES, CANCEL, DROP, CRASH, STOP])),
    max_size=8,
)


class Play:
    """A skill that does what its text says, and the world around it."""

    def __init__(self, code: list[str], url: str = "memory:") -> None:
        self.harness = EngineHarness(url)
        self.code = code
        self.steps: Counter[int] = Counter()
        self.told: list[str] = []
        self.crashes = 0
        self.canceled = False
        self.agent = Agent("Play")

        @self.agent.skill("play", max_attempts=100)
        async def play(turn: Turn) -> AsyncGenerator[str, None]:
            for number, what in enumerate(code):
                match what:
                    case "say":
                        await turn.say(f"say {number}")
                    case "yield":
                        yield f"{number} "
                    case "step":
                        await turn.step(f"step {number}", self._step, number)
                    case "ask":
                        await turn.ask(f"ask {number}")
                    case "approve":
                        await turn.approve(f"approve {number}")
                    case "auth":
                        await turn.need_auth({}, key=f"auth {number}")
                    case "pause":
                        await asyncio.sleep(0.001)  # what the case is made of

    async def _step(self, number: int) -> None:
        self.steps[number] += 1

    async def run(self, world: list[tuple[int, str]]) -> None:
        client = self.harness.client(self.agent, max_parked=1)
        await client.engine.start()
        task_id = (await client.send("go", wait=False)).id
        for steps, what in world:
            for _ in range(steps):  # how far the agent gets before the world does its part
                await asyncio.sleep(0.0005 if steps > 4 else 0)  # what the case is made of
            client = await self._do(client, task_id, what)
        await self._bring_to_an_end(client, task_id)
        await self._check(client, task_id)
        await client.engine.stop(0)

    async def _do(self, client: Client, task_id: str, what: str) -> Client:
        try:
            match what:
                case "tell" | "yes":
                    text = "yes" if what == "yes" else f"told {len(self.told)}"
                    await client.send(text, task=task_id, wait=False)
                    self.told.append(text)
                case "cancel":
                    await client.cancel(task_id)
                    self.canceled = True
                case "drop":
                    run = client.engine.runner.runs.get(task_id)
                    if run is not None:
                        await client.engine.runner.give_back(run)
                case "crash":
                    self.crashes += 1
                    return await self.harness.restart(client, max_parked=1)
                case "stop":
                    await client.engine.stop(0)
                    client = self.harness.client(self.agent, max_parked=1)
                    await client.engine.start()
        except DragomanError:
            assert (await client.get(task_id)).state in FINAL
        return client

    async def _bring_to_an_end(self, client: Client, task_id: str) -> None:
        async def over() -> bool:
            row = await row_of(client, task_id)
            if row.resting and not row.final:
                await self._do(client, task_id, YES)
            return row.final

        await until(over)

    async def _check(self, client: Client, task_id: str) -> None:
        log = await checked(client, task_id)
        assert len(terminals(log)) == 1
        task = await client.get(task_id)
        assert task.state is (State.CANCELED if self.canceled else State.COMPLETED)
        said = [m.text for m in (*task.history, task.status.message) if m is not None]
        heard = [text for text in said if text.startswith(("told", "yes"))]
        assert len(heard) + said.count("[credentials]") == len(self.told)
        texts = Counter(text for text in said if text.startswith("say"))
        assert all(count == 1 for count in texts.values())
        assert all(count <= 1 + self.crashes for count in self.steps.values())
        if task.state is State.COMPLETED:
            expected = "".join(f"{n} " for n, what in enumerate(self.code) if what == YIELD)
            assert "".join(made.text for made in task.artifacts) == expected
            assert texts.keys() == {f"say {n}" for n, w in enumerate(self.code) if w == SAY}
            assert self.steps.keys() == {n for n, w in enumerate(self.code) if w == STEP}


@settings(max_examples=count(30, 150), deadline=None)
@given(CODE, WORLD)
def test_any_order_of_things(code: list[str], world: list[tuple[int, str]]) -> None:
    asyncio.run(Play(code).run(world))


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@settings(max_examples=count(8, 25), deadline=None)
@given(code=CODE, world=WORLD)
def test_any_order_of_things_on_disk(
    kind: str, code: list[str], world: list[tuple[int, str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Play(code, url_of(kind, Path(folder))).run(world))


@settings(max_examples=count(15, 60), deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.lists(st.integers(0, 20), min_size=1, max_size=4),
)
def test_any_reader_at_any_place_sees_the_log(pauses: list[int], cursors: list[int]) -> None:
    """Readers begin anywhere at any time; what each of them folds is the task."""
    asyncio.run(_read(pauses, cursors))


async def _read(pauses: list[int], cursors: list[int]) -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        for number, pause in enumerate(pauses):
            yield f"{number} "
            await turns(pause)

    async with Client(agent) as client:
        task = await client.send("go", wait=False)

        async def follow(delay: int, cursor: int | None) -> list[Stamped]:
            await turns(delay)
            try:
                return [e async for e in client.watch(task.id, cursor) if isinstance(e, Stamped)]
            except DragomanError:
                return []  # nothing there yet, or over already

        async with asyncio.TaskGroup() as group:
            readers = [
                (cursor, group.create_task(follow(delay, cursor)))
                for delay, place in enumerate(cursors)
                for cursor in (place, None)
            ]
        log = await log_of(client, task.id)
        for cursor, reader in readers:
            events = reader.result()
            if not events:
                continue
            if cursor is not None:
                assert events == log[cursor:]
                continue
            assert events[1:] == log[events[0].seq :]
            fold = Fold(task.id, task.context_id)
            for event in events:
                fold.add(event)
            assert fold.task() == await client.get(task.id)
        assert sum(isinstance(e.event, ArtifactChunk) for e in log) >= len(pauses)
