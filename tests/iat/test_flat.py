"""Real agents: given to a host by their addresses, flat, without HELO and without a pulse."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import httpx2
import pytest

from cli.run import dragoman
from dragoman import State
from dragoman.core.errors import ConfigError
from dragoman.core.events import ArtifactChunk
from dragoman.iat import Host
from dragoman.iat.sub_agent import MISSES, AddressTransport
from dragoman.testing.served import served
from iat.flat_agent import Echoing, FlatAgent, Streaming, running
from iat.team import SECRET, engine_host, registering, settings, story, worker
from iat.test_foreign import built_go
from net.iat.sub_agent import signed
from waiting import until

PATIENCE = 60.0


async def test_a_host_is_given_the_address_of_a_real_agent(tmp_path: Path) -> None:
    with running(FlatAgent()) as agent:
        host = Host("engine", agents=[agent.url])
        async with served(host, settings(tmp_path, "engine")):
            sub = await host.find("", PATIENCE)
            assert sub.name == agent.url.removeprefix("http://")
            seen, task = await story(host, "use uppercase hi")
            assert task.state is State.COMPLETED, task.status
            assert task.text == "USE UPPERCASE HI"
            _, failed = await story(host, "fail")
            assert failed.state is State.FAILED
            assert failed.status.message.text == "the model is away"
        assert any(isinstance(entry.event, ArtifactChunk) for entry in seen)
        (said, _) = [each.said for each in agent.asked if each.action == "execute_task"]
        assert said["type"] == "request"
        assert said["payload"]["content"] == "use uppercase hi"
        assert said["to"] == sub.name
        assert "query" not in said["payload"]
        # The form is found out once, and not with the work.
        assert not [each for each in agent.asked if each.action == "execute"]


@pytest.mark.parametrize("kind", [Echoing, Streaming])
async def test_a_fall_back_within_a_stream_is_said_again(
    tmp_path: Path, kind: type[FlatAgent]
) -> None:
    with running(kind()) as agent:
        host = Host("engine", agents=[f"go={agent.url}/a2a"])
        async with served(host, settings(tmp_path, "engine")):
            await host.find("go", PATIENCE)
            for number in range(2):
                _, task = await story(host, f"hi {number}", agent="go")
                assert task.text == f"HI {number}", task.status
        actions = [each.action for each in agent.asked if "exec" in each.action]
        assert actions == ["execute", "execute_task", "execute_task"]


async def test_an_agent_that_knows_no_pulse_is_not_offline(tmp_path: Path) -> None:
    with running(FlatAgent()) as agent:
        host = Host("engine", pulse=0.2, agents=[f"go={agent.url}"])
        gone: list[str] = []
        async with served(host, settings(tmp_path, "engine")):
            sub = await host.find("go", PATIENCE)
            host.news = lambda sub: gone.append(sub.name)
            await agent.heard("pulse", 2 * MISSES + 1)
            assert sub.online
            assert host.agents["go"] is sub
            assert not gone


async def test_an_agent_at_an_address_is_waited_for_and_found_again(tmp_path: Path) -> None:
    with running(FlatAgent()) as agent:
        port, url = agent.server_port, agent.url
    host = Host("engine", pulse=0.2, patience=PATIENCE, agents=[f"go={url}"])
    async with served(host, settings(tmp_path, "engine")):
        for word in ("one", "two"):
            work = asyncio.create_task(story(host, word, agent="go"))
            with running(FlatAgent(port)):
                _, task = await work
                assert task.text == word.upper()
            await until(lambda: "go" not in host.agents)


async def test_an_agent_of_ours_at_an_address_does_it_all(tmp_path: Path) -> None:
    async with served(worker(), settings(tmp_path, "worker")) as url:
        host = engine_host(agents=[f"worker={url}"])
        async with served(host, settings(tmp_path, "engine")):
            sub = await host.find("worker", PATIENCE)
            assert [tool.name for tool in sub.tools] == ["work"]
            _, task = await story(host, "a.txt", True)
            assert task.text == "a.txt has 5 bytes, deleted"


async def test_nobody_takes_the_place_of_an_agent_at_an_address(tmp_path: Path) -> None:
    """Whoever registers under its name is a caller, and no more: not called, and sent nothing."""
    async with served(worker(), settings(tmp_path, "worker")) as url:
        host = engine_host(agents=[f"worker={url}"])
        with running(FlatAgent()) as thief:
            async with (
                served(host, settings(tmp_path, "engine")) as at,
                httpx2.AsyncClient(base_url=at) as client,
            ):
                sub = await host.find("worker", PATIENCE)
                body = registering("worker", f"{thief.url}/a2a")
                reply = await client.post("/iat", content=body, headers=signed(body, None, SECRET))
                assert reply.json()["payload"]["session_token"]
                assert [*host.agents.values()] == [sub]
                _, task = await story(host, "a.txt", True, agent="worker")
                assert task.text == "a.txt has 5 bytes, deleted"
            assert not thief.asked


@pytest.mark.parametrize(
    "address",
    [
        *("go", "ws://127.0.0.1:1/", "http://", "go= http://x"),
        *("http://user:pw@127.0.0.1:1", "http://127.0.0.1:99999", "http://0x7f.1/a2a"),
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        Host("engine", agents=[address])


async def test_an_address_is_tried_again_whatever_went_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(FlatAgent()) as agent:
        host = Host("engine", agents=[f"go={agent.url}"])
        async with served(host, settings(tmp_path, "engine")):
            dial, failed = host.dial, []
            assert dial is not None

            def failing_once(url: str, to: str = "", **how: bool) -> AddressTransport:
                if not failed:
                    failed.append(url)
                    raise ValueError("nobody thought of this")
                return dial(url, to, **how)

            host.dial = failing_once
            assert (await host.find("go", PATIENCE)).online
    assert failed
    assert "nobody thought of this" in caplog.text


@pytest.mark.slow  # starts a process
def test_the_command_line_takes_addresses(tmp_path: Path) -> None:
    with running(FlatAgent()) as agent, running(FlatAgent()) as other:
        ran = dragoman(
            *("iat", "host", "--port", "0", "--store", "memory:"),
            *("--agent", f"go={agent.url}", "--agent", f"other={other.url}/a2a"),
            *("--execute", "hello there", "--to", "go"),
            cwd=tmp_path,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "HELLO THERE" in ran.stdout
        assert agent.count("execute_task") == 1
        assert other.count("execute_task") == 0


@pytest.mark.slow
async def test_an_agent_in_go_that_speaks_as_real_ones_do(tmp_path: Path) -> None:
    """Go's own HTTP server, and its way to read JSON."""
    command = built_go(Path(__file__).parent / "flat-go" / "agent.go")
    process = subprocess.Popen(  # noqa: ASYNC220  its output is read in a thread
        [command], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        assert process.stdout is not None
        url = (await asyncio.to_thread(process.stdout.readline)).strip()
        host = Host("engine", pulse=0.2, agents=[f"go={url}"])
        async with served(host, settings(tmp_path, "engine")):
            sub = await host.find("go", PATIENCE)
            _, task = await story(host, "use uppercase hi", agent="go")
            assert task.text == "USE UPPERCASE HI", task.status
            for _ in range(MISSES + 1):
                assert await sub.pulse(PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert SECRET not in url
