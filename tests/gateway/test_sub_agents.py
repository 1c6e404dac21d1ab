"""`/iat` at the root of a gateway: sub-agents that register there are served in every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import State, Task, connect
from dragoman.client.credentials import SharedSecret
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import DragomanError
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.model import Blob
from dragoman.gateway.configuration import registered
from dragoman.iat import Host
from dragoman.server.services.iat_host import HostService
from dragoman.settings import Settings
from dragoman.store.registry import RegistryEntry, Source
from dragoman.testing.served import served
from gateway.behind import settings, worker
from iat.team import SECRET, WAYS, registering
from net.iat.sub_agent import signed
from server.two_agents import TwoAgents, desk, serving
from waiting import stays, until


@asynccontextmanager
async def gateway(
    folder: Path, *, secret: bool = True, auth: Any = None, **iat: Any
) -> AsyncIterator[TwoAgents]:
    """A gateway with one agent of its own, where sub-agents may register."""
    known = replace(settings(folder).iat, **iat)
    if not secret:
        known = replace(known, secret=None)
    make = registered(settings(folder))
    about = {"several": True, "registers": make, "iat": known, "auth": auth or {}}
    async with serving({"desk": desk("hi")}, **about) as found:
        yield found


def joining(folder: Path, url: str, way: str, name: str = "worker") -> Settings:
    """Settings of a sub-agent of this name."""
    known = settings(folder, name=name)
    host = f"host={url.replace('http:', f'{way}:')}"
    return replace(known, iat=replace(known.iat, host=host))


async def listed(url: str) -> dict[str, Any]:
    """The agents of a gateway, by their names."""
    async with httpx2.AsyncClient(timeout=60) as client:
        found = (await client.get(f"{url}/agents")).json()
    return {each["name"]: each for each in found["agents"]}


async def appears(url: str, name: str, health: str = "up") -> None:
    """Waits until an agent is listed in this way."""

    async def there() -> bool:
        return (await listed(url)).get(name, {}).get("health") == health

    await until(there)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow  # takes two seconds
async def test_a_sub_agent_that_registers_is_served_in_every_dialect(
    tmp_path: Path, way: str
) -> None:
    async with (
        asyncio.timeout(240),
        gateway(tmp_path) as door,
        served(worker(), joining(tmp_path, door.url, way)),
    ):
        await appears(door.url, "worker")
        here = f"{door.url}/agents/worker"
        for dialect in ("a2a-1.0", "a2a-0.3", "a2a-1.0-rest", "a2a-0.1"):
            async with connect(here, dialect=dialect) as caller:
                task = await caller.send("hi")
                assert isinstance(task, Task)
                assert (task.state, task.text) == (State.COMPLETED, "HI")
        async with connect(here) as caller:
            assert (caller.card.name, caller.card.version) == ("Worker", "2.1.0")
            assert {"echo", "count"} <= {skill.id for skill in caller.card.skills}
            await everything(caller)


async def everything(caller: Any) -> None:
    """Streams, asks, cancels, sends a file and fails."""
    chunks = [
        entry.event.artifact.text
        async for entry in caller.stream("4", skill="count")
        if isinstance(entry, Stamped) and isinstance(entry.event, ArtifactChunk)
    ]
    assert "".join(chunks) == "0 1 2 3 "
    task = await caller.send("go", skill="trip")
    assert task.status.message.text == "Which city?"
    task = await caller.answer(task, "Rome")
    task = await caller.answer(task, "3")
    assert (task.state, task.text) == (State.COMPLETED, "3 days in Rome")
    task = await caller.send("go", skill="order")
    task = await caller.answer(task, True)
    assert (task.state, task.text) == (State.COMPLETED, "bought")
    task = await caller.send(Blob(b"\x00abc", filename="a.bin"), skill="file")
    assert task.artifacts[0].parts[0].content == b"cba\x00"
    task = await caller.send("go", skill="fail")
    assert task.state is State.FAILED
    assert task.status.message.metadata["reason"] == "paper"
    task = await caller.send("go", skill="slow", wait=False)
    assert (await caller.cancel(task)).state is State.CANCELED


@pytest.mark.slow  # takes two seconds
@pytest.mark.parametrize("way", WAYS)
async def test_one_that_leaves_is_listed_as_offline_and_calls_may_be_repeated(
    tmp_path: Path, way: str
) -> None:
    async with asyncio.timeout(240), gateway(tmp_path) as door:
        host = door.app.service(HostService).agent
        assert isinstance(host, Host)
        host.pulse = 0.2
        async with served(worker(), joining(tmp_path, door.url, way)):
            await appears(door.url, "worker")
        await appears(door.url, "worker", "offline")
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        async with httpx2.AsyncClient(headers={"a2a-version": "1.0"}, timeout=60) as client:
            for _ in range(7):  # more than it takes to open a circuit breaker
                answer = (await client.post(f"{door.url}/agents/worker", json=body)).json()
                assert "try again later" in str(answer["error"]), answer
        async with served(worker(), joining(tmp_path, door.url, way)):
            await appears(door.url, "worker")
            async with connect(f"{door.url}/agents/worker") as caller:
                assert (await caller.send("hi")).text == "HI"


async def test_one_that_stays_away_is_removed_after_a_while(tmp_path: Path) -> None:
    async with asyncio.timeout(240), gateway(tmp_path, offline=0.5) as door:
        async with served(worker(), joining(tmp_path, door.url, "ws")):
            await appears(door.url, "worker")

        async def gone() -> bool:
            return "worker" not in await listed(door.url)

        await until(gone)
        async with served(worker(), joining(tmp_path, door.url, "ws")):
            await appears(door.url, "worker")


async def claim(url: str, name: str, endpoint: str = "http://127.0.0.1:9/iat") -> httpx2.Response:
    """Registers at a gateway by hand."""
    body = registering(name, endpoint, "host")
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        return await client.post("/iat", content=body, headers=signed(body, None, SECRET))


async def test_a_name_of_the_file_is_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(240), gateway(tmp_path) as door:
        reply = await claim(door.url, "desk")
        assert reply.status_code == 403
        assert "The name desk belongs to another agent" in reply.text
        async with connect(f"{door.url}/agents/desk") as caller:
            assert (await caller.send("x")).text == "hi x"
        assert (await claim(door.url, "other")).status_code == 200


async def test_a_name_that_an_operator_registers_is_taken_from_a_sub_agent(tmp_path: Path) -> None:
    async with asyncio.timeout(240), gateway(tmp_path) as door, served(desk("far")) as far:
        async with served(worker(), joining(tmp_path, door.url, "ws")):
            await appears(door.url, "worker")
            assert door.app.registry is not None
            entry = RegistryEntry(name="worker", source=Source.CLI, addresses=(far,))
            await door.app.registry.store.put(entry)

            async def replaced() -> bool:
                async with connect(f"{door.url}/agents/worker") as caller:
                    return caller.card.name == "Desk"

            await until(replaced)
            assert (await claim(door.url, "worker")).status_code == 403
        async with connect(f"{door.url}/agents/worker") as caller:
            assert (await caller.send("x")).text == "far x"


async def test_a_name_that_the_file_takes_later_stays_the_files(tmp_path: Path) -> None:
    async with asyncio.timeout(240), gateway(tmp_path, offline=0.2) as door:
        async with served(worker(), joining(tmp_path, door.url, "ws")):
            await appears(door.url, "worker")
            assert door.app.registry is not None
            await door.app.registry.claim("worker", ())  # as --watch does it
            await door.app.replace_agent("worker", desk("file"))
            assert (await claim(door.url, "worker")).status_code == 403
        host = door.app.service(HostService).agent
        assert isinstance(host, Host)
        await until(lambda: not host.agents)
        await stays(lambda: "worker" in door.app.mounts, 1.0)  # it would be removed in this time
        async with connect(f"{door.url}/agents/worker") as caller:
            assert (await caller.send("x")).text == "file x"


async def test_a_caller_without_the_secret_registers_nothing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-of-sixteen-characters")
    ann = Tokens(callers={"ann": Known(secret=Secret(file=str(tmp_path / "token")))})
    async with asyncio.timeout(240), gateway(tmp_path, auth={"all": ann}) as door:
        headers = {"authorization": "Bearer a-token-of-sixteen-characters"}
        async with httpx2.AsyncClient(base_url=door.url, timeout=60, headers=headers) as client:
            body = registering("spy", "http://127.0.0.1:9/iat", "host")
            await client.post("/iat", content=body)
            assert (await claim(door.url, "other")).status_code == 200

            async def there() -> set[str]:
                found = (await client.get("/agents")).json()
                return {each["name"] for each in found["agents"]}

            async def other() -> bool:
                return "other" in await there()

            await until(other)
            assert await there() == {"desk", "other"}


async def test_without_a_secret_nobody_registers(tmp_path: Path) -> None:
    async with asyncio.timeout(240), gateway(tmp_path, secret=False) as door:
        assert (await claim(door.url, "other")).status_code == 404


async def test_the_host_side_works_for_nobody(tmp_path: Path) -> None:
    async with asyncio.timeout(240), gateway(tmp_path) as door:
        address = f"iat+http://{door.url.partition('://')[2]}/iat"
        auth = SharedSecret(SECRET, to="host", me="somebody")
        with pytest.raises(DragomanError, match="several agents"):
            async with connect(address, auth=auth) as caller:
                await caller.send("hi")
