"""A name is of one agent: nobody else takes it, wherever it is and whatever it says of itself."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from dragoman import Agent, Turn
from dragoman.iat import Host
from dragoman.testing.client import Client
from dragoman.testing.served import served
from iat.flat_agent import FlatAgent, Welcoming, running
from iat.team import SECRET, WAYS, engine_host, joining, registering, settings, story
from net.iat.sub_agent import signed
from waiting import until

AGAIN = 4
"""Greetings of two tries to reach an agent: each tries two paths."""


def echo() -> Agent:
    agent = Agent("Echo")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return f"echo {turn.text}"

    return agent


class Later(Welcoming):
    """Answers only when it is told to, so that it never has the name before the agent whose name
    that is."""

    open = False

    def verify_request(self, request: object, client_address: object) -> bool:
        """Hangs up until then: an answer is one with any status."""
        return self.open


async def registered(host_url: str, name: str, endpoint: str) -> int:
    """The status of a register with the secret, from somebody at this address."""
    body = registering(name, endpoint)
    async with httpx2.AsyncClient(base_url=host_url, timeout=60) as client:
        reply = await client.post("/iat", content=body, headers=signed(body, None, SECRET))
    return reply.status_code


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("away", [False, True])
async def test_an_address_without_a_name_does_not_get_that_of_a_registered_agent(
    tmp_path: Path, way: str, away: bool
) -> None:
    """Not even while the agent is away, as long as its session is not over."""
    with running(Later("worker")) as liar:
        assert isinstance(liar, Later)
        host = engine_host(agents=[liar.url], pulse=1.0)
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(served(host, settings(tmp_path, "engine")))
            own = settings(tmp_path, "worker", host=joining(url, way))
            async with served(echo(), own):
                await host.find("worker", 60)
                if not away:
                    liar.open = True
                    await liar.heard("HELO", liar.count("HELO") + AGAIN)
                    _, task = await story(host, "hello", agent="worker")
                    assert task.text == "echo hello"
            await until(lambda: "worker" not in host.agents)
            liar.open = True
            await liar.heard("HELO", liar.count("HELO") + AGAIN)
            assert "worker" not in host.agents
        assert liar.count("execute") == liar.count("execute_task") == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_name_is_not_taken_over_from_another_address_while_its_agent_answers(
    tmp_path: Path, way: str
) -> None:
    host = engine_host()
    with running(FlatAgent()) as thief:
        async with served(host, settings(tmp_path, "engine")) as url:
            async with served(echo(), settings(tmp_path, "worker", host=joining(url, way))):
                before = await host.find("worker", 60)
                assert await registered(url, "worker", f"{thief.url}/a2a") == 403
                assert host.agents["worker"] is before
                _, task = await story(host, "hello", agent="worker")
                assert task.text == "echo hello"
            assert thief.asked == []
            # An agent that is gone may come back elsewhere.
            assert await registered(url, "worker", f"{thief.url}/a2a") == 200
            _, task = await story(host, "hello", agent="worker")
            assert task.text == "HELLO"


async def test_an_agent_may_register_again_where_it_is(tmp_path: Path) -> None:
    host = engine_host()
    with running(FlatAgent()) as agent:
        async with served(host, settings(tmp_path, "engine")) as url:
            for _ in range(2):
                assert await registered(url, "worker", f"{agent.url}/a2a") == 200


async def test_an_agent_that_the_host_was_given_in_code_keeps_its_name(tmp_path: Path) -> None:
    host: Host = engine_host()
    with running(FlatAgent()) as thief:
        async with (
            Client(echo()) as client,
            served(host, settings(tmp_path, "engine")) as url,
        ):
            host.add("worker", client.engine)
            assert await registered(url, "worker", f"{thief.url}/a2a") == 403
            _, task = await story(host, "hello", agent="worker")
            assert task.text == "echo hello"
