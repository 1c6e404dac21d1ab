"""What a deadline means, in every binding. A caller's time-out, its gRPC deadline or its leaving
bounds the wait, never the task; `dragoman-deadline` bounds the task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import httpx2
import pytest

from dragoman import Agent, State, Task, Turn
from dragoman.core.lifecycle import FINAL
from dragoman.core.operations import GetTask
from dragoman.core.peer import DEADLINE, Context
from dragoman.server.app import App
from engine.harness import until
from iat.wires import beside
from net.iat.sub_agent import RunningAgent, open_server
from semantics.ways import WAYS, RunningServer, Way, said, served

PATIENCE = 60.0
SHORT = 0.7
"""Seconds that an impatient caller waits."""
BINDINGS = (*WAYS, "IAT over HTTP", "IAT over WebSocket")
bindings = pytest.mark.parametrize("binding", BINDINGS)
forms = pytest.mark.parametrize("stream", [False, True], ids=["send", "stream"])


class Worker:
    """An agent whose work ends when it is told to, and not before."""

    def __init__(self) -> None:
        self.agent = Agent("go-agent")
        self.finish = asyncio.Event()
        self._turn: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

        @self.agent.skill("work")
        async def work(turn: Turn) -> str:
            self._turn.set_result(turn)
            await turn.say("I have begun.")
            await self.finish.wait()
            return "done"

    async def caller(self) -> Context:
        """Who asked, once the work has begun."""
        async with asyncio.timeout(PATIENCE):
            return (await asyncio.shield(self._turn)).caller

    async def task(self, app: App) -> Task:
        """The task as it stands."""
        caller, turn = await self.caller(), self._turn.result()
        found = await app.mounts[""].peer.call(GetTask(task_id=turn.task_id), caller)
        assert isinstance(found, Task)
        return found

    async def ended(self, app: App) -> Task:
        """The task, once it is over."""

        async def over() -> bool:
            return (await self.task(app)).state in FINAL

        await until(over, PATIENCE)
        return await self.task(app)


class Ask(Protocol):
    """Sends one message and waits for its task: `patience` seconds at the most, and the task may
    work for `work` seconds."""

    async def __call__(self, *, stream: bool, work: str = "", patience: float = 60) -> None: ...


@asynccontextmanager
async def serving(worker: Worker, binding: str) -> AsyncIterator[tuple[App, Ask]]:
    """The worker's server, and how to ask it in this binding."""
    if binding in WAYS:
        async with served(worker.agent) as server:
            yield server.app, _a2a(WAYS[binding], server)
    else:
        async with open_server(agent=worker.agent) as other:
            yield other.app, (_iat_http if binding == "IAT over HTTP" else _iat_socket)(other)


def _a2a(way: Way, server: RunningServer) -> Ask:
    async def ask(*, stream: bool, work: str = "", patience: float = 60) -> None:
        headers = {DEADLINE: work} if work else {}
        op = said("go", wait=True)
        await way.ask(server, op, stream=stream, headers=headers, patience=patience)

    return ask


def _iat_http(server: RunningAgent) -> Ask:
    async def ask(*, stream: bool, work: str = "", patience: float = 60) -> None:
        await server.join()
        headers = {"accept": "text/event-stream"} if stream else {}
        if work:
            headers[DEADLINE] = work
        body = server.envelope("execute", query="go")
        await server.client.post("/iat", json=body, headers=headers, timeout=patience)

    return ask


def _iat_socket(server: RunningAgent) -> Ask:
    async def ask(*, stream: bool, work: str = "", patience: float = 60) -> None:
        about: dict[str, Any] = {"metadata": {DEADLINE: float(work)}} if work else {}
        async with beside(server, "websocket", "host-1") as wire:
            async with asyncio.timeout(patience):
                async for _ in wire.execute("go", stream=stream, **about):
                    pass

    return ask


@forms
@bindings
async def test_a_caller_that_waits_no_longer_does_not_end_its_task(
    binding: str, stream: bool
) -> None:
    worker = Worker()
    async with serving(worker, binding) as (app, ask):
        # A gRPC deadline is answered with DEADLINE_EXCEEDED; the others hang up by themselves.
        try:
            await ask(stream=stream, patience=SHORT)
        except (TimeoutError, httpx2.TimeoutException):
            assert not binding.startswith("gRPC")
        assert (await worker.caller()).deadline is None, "the wait was taken for the work"
        assert (await worker.task(app)).state is State.WORKING
        worker.finish.set()
        task = await worker.ended(app)
        assert (task.state, task.text) == (State.COMPLETED, "done")


@forms
@bindings
async def test_a_caller_that_leaves_does_not_end_its_task(binding: str, stream: bool) -> None:
    worker = Worker()
    async with serving(worker, binding) as (app, ask):
        waiting = asyncio.ensure_future(ask(stream=stream))
        await worker.caller()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await worker.task(app)).state is State.WORKING
        worker.finish.set()
        task = await worker.ended(app)
        assert (task.state, task.text) == (State.COMPLETED, "done")


@forms
@bindings
async def test_the_seconds_of_work_that_a_caller_allows_bound_its_task(
    binding: str, stream: bool
) -> None:
    worker = Worker()
    async with serving(worker, binding) as (app, ask):
        began = time.monotonic()
        await ask(stream=stream, work="0.5")  # its wait is long enough for all of it
        task = await worker.ended(app)
        assert time.monotonic() - began >= 0.5
        assert (await worker.caller()).deadline == 0.5
        assert task.state is State.FAILED
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "agent_timed_out"}


@pytest.mark.parametrize("binding", ["gRPC 1.0", "gRPC 0.3"])
async def test_a_grpc_deadline_does_not_replace_the_seconds_of_work(binding: str) -> None:
    worker = Worker()
    async with serving(worker, binding) as (app, ask):
        await ask(stream=False, work="30", patience=SHORT)
        assert (await worker.caller()).deadline == 30
        worker.finish.set()
        assert (await worker.ended(app)).state is State.COMPLETED
