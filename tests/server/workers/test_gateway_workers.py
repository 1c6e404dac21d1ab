"""`dragoman gateway --workers`: every process serves every agent, also those that are linked to one
of them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Agent, State, Task, Turn, connect
from dragoman.gateway.agent_status import AddressStatus, AgentStatus, added_up
from dragoman.store import open_store
from dragoman.store.registry import RegistryEntry, Source
from dragoman.testing.served import served
from gateway import test_sub_agents as sub_agents
from waiting import until

pytestmark = pytest.mark.slow
WORKERS = 2
LOOKS = 12
"""New connections, of which surely some reach each worker."""


def echo() -> Agent:
    agent = Agent("Echo", description="Says it back.")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return f"echo: {turn.text}"

    return agent


class Gateway:
    """A gateway with workers, in processes of its own."""

    def __init__(self, process: asyncio.subprocess.Process, out: Path) -> None:
        self.process, self._out = process, out
        self.url = ""

    @property
    def output(self) -> str:
        return self._out.read_text()

    async def asked(self, name: str) -> str:
        """What an agent answers over a new connection; nothing is tried twice."""
        async with httpx2.AsyncClient(timeout=60) as client:
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            answer = await client.post(
                f"{self.url}/agents/{name}/message:send",
                json={"message": message},
                headers={"A2A-Version": "1.0"},
            )
            if answer.status_code == 404:
                return ""
            assert answer.status_code == 200, answer.text
            return str(answer.json()["task"]["artifacts"][0]["parts"][0]["text"])

    async def told(self, path: str) -> Any:
        async with httpx2.AsyncClient(timeout=60) as client:
            return (await client.get(f"{self.url}{path}")).json()

    async def everywhere(self, name: str, text: str) -> bool:
        return all([await self.asked(name) == text for _ in range(LOOKS)])


@asynccontextmanager
async def serving(folder: Path, upstream: str) -> AsyncIterator[Gateway]:
    (folder / "secret").write_text("an-open-secret-of-these-tests")
    (folder / "dragoman.toml").write_text(
        f'[agents.up]\nurl = "{upstream}"\n\n[iat]\nsecret = {{ file = "{folder}/secret" }}\n'
    )
    out = folder / "out.txt"
    flags = ("--port", "0", "--workers", str(WORKERS), "--registry")
    with out.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "gateway", *flags),
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    found = Gateway(process, out)
    try:
        await until(lambda: "listens at" in found.output or process.returncode is not None)
        assert process.returncode is None, found.output
        (line,) = [each for each in found.output.splitlines() if "listens at" in each]
        found.url = line.partition("listens at ")[2].split()[0].rstrip("/")
        yield found
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 120)


async def test_every_worker_serves_every_agent_and_a_reload_refuses_no_call(
    tmp_path: Path,
) -> None:
    async with served(echo()) as upstream, serving(tmp_path, upstream) as gateway:
        assert await gateway.everywhere("up", "echo: hi")

        # One that is registered is noticed by every worker.
        store = open_store(f"sqlite:///{tmp_path}/dragoman.db")
        await store.open()
        await store.registry.put(
            RegistryEntry(name="late", source=Source.CLI, addresses=(upstream,))
        )
        await store.close()
        await until(lambda: gateway.everywhere("late", "echo: hi"))

        # A sub-agent has a WebSocket to one of them, and is reached through all.
        settings = sub_agents.joining(tmp_path, gateway.url, "ws", "echo")
        settings = replace(settings, server=replace(settings.server, store="memory:"))
        async with served(echo(), settings):
            await until(lambda: gateway.everywhere("echo", "echo: hi"))

            # The status and the figures are those of all workers.
            (up,) = [
                e for e in (await gateway.told("/gateway/status"))["agents"] if e["name"] == "up"
            ]
            assert up["addresses"][0]["state"] == "healthy"

            gateway.process.send_signal(signal.SIGHUP)
            calls = 0
            while "The workers were replaced" not in gateway.output:
                assert "did not start" not in gateway.output, gateway.output
                assert await gateway.asked("up") == "echo: hi"
                calls += 1
            assert calls > 0
            await until(lambda: gateway.everywhere("echo", "echo: hi"))
            async with connect(f"{gateway.url}/agents/echo") as agent:
                task = await agent.send("hi")
                assert isinstance(task, Task)
                assert task.state is State.COMPLETED
    assert gateway.process.returncode == 0, gateway.output


def _seen(state: str, **more: Any) -> dict[str, AgentStatus]:
    known = {"in_flight": 1, "latency": 0.5, "last_seen": "", "last_error": "", "last_failed": ""}
    address = AddressStatus(**{"address": "a", "state": state, "failures": {}, **known, **more})
    about = {"dialect": "a2a-1.0", "queued": 2, "refused": 1, "fallbacks": []}
    return {"up": AgentStatus(name="up", addresses=[address], **about)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ("healthy", "healthy", "healthy"),
        ("healthy", "unknown", "healthy"),
        ("healthy", "open", "half-open"),
        ("open", "open", "open"),
        ("unknown", "open", "open"),
        ("unknown", "unknown", "unknown"),
    ],
)
def test_the_status_of_an_agent_is_what_all_processes_see(one: str, two: str, both: str) -> None:
    first = _seen(one, last_failed="2026-01-01", last_error="old", failures={"health": 1})
    later = _seen(two, last_failed="2026-01-02", last_error="new", failures={"health": 2})
    (found,) = added_up([first, later, {}])
    (address,) = found.addresses
    assert (address.state, address.in_flight) == (both, 2)
    assert (address.last_error, address.failures) == ("new", {"health": 3})
    assert (found.queued, found.refused) == (4, 2)
    (alone,) = added_up([{}, first])
    assert alone == first["up"]
