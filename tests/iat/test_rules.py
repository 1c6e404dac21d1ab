"""What a host enforces: tools, hops, heartbeats, who may speak; and coming back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import Agent, State, Turn
from dragoman.core.card import Card, Tool
from dragoman.core.errors import PeerUnreachable, Unsupported
from dragoman.dialects.iat.wire import Envelope, Kind, envelope_in, envelope_out
from dragoman.iat import Host
from dragoman.iat.registration import MOST, pause
from dragoman.iat.sub_agent import MISSES, SubAgent
from dragoman.testing.served import served
from iat.team import (
    SECRET,
    WAYS,
    at,
    engine_host,
    joining,
    settings,
    story,
    team,
    worker,
)
from waiting import LIMIT


def caller_of(name: str, **arguments: Any) -> Agent:
    """Calls one tool."""
    agent = Agent("Caller")

    @agent.skill("call")
    async def call(turn: Turn) -> str:
        return str(await turn.call_tool(name, **arguments))

    return agent


async def test_tools_are_described_by_their_hints() -> None:
    tools = engine_host().offered()
    assert [tool.name for tool in tools] == ["size", "shout"]
    assert tools[0].description == "How large a file is."
    assert tools[0].parameters["properties"] == {"path": {"type": "string"}}
    assert tools[0].parameters["required"] == ["path"]
    assert tools[0].returns == {"type": "integer"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [({}, "bad_params"), ({"path": 1}, "bad_params"), ({"x": 1}, "bad_params")],
)
async def test_a_tool_is_not_run_with_wrong_arguments(arguments: Any, code: str) -> None:
    told = await engine_host().tools["size"].run(arguments)
    assert told["error"]["code"] == code


async def test_a_tool_that_breaks_its_promise_or_fails_tells_no_more_than_that() -> None:
    host = Host("host")

    @host.tool
    def wrong() -> int:
        return "many"  # type: ignore[return-value]

    @host.tool(name="broken")
    def fails() -> int:
        raise RuntimeError("password=hunter2")

    assert (await host.tools["wrong"].run(None))["error"]["code"] == "tool_failed"
    told = await host.tools["broken"].run(None)
    assert told["error"]["code"] == "tool_failed"
    assert "hunter2" not in str(told)


@pytest.mark.parametrize("allowed", [["shout"], []])
async def test_only_allowed_tools_are_run(tmp_path: Path, allowed: list[str]) -> None:
    host = engine_host()
    async with team(tmp_path, host, {"caller": caller_of("size", path="abc")}):
        _, task = await story(host, "go")
        assert task.text == "3"
        _, task = await story(host, "go", allowed_tools=allowed)
        assert task.state is State.FAILED
        assert "size" in task.status.message.text
        with pytest.raises(Unsupported):
            host.execute("go", allowed_tools=["format_disk"])


async def test_a_sub_agent_that_calls_what_was_not_offered_is_refused(tmp_path: Path) -> None:
    """A sub-agent that does not look at what it was offered."""
    from websockets.asyncio.client import connect

    host = engine_host()
    async with served(host, settings(tmp_path, "engine")) as url, connect(_ws(url)) as socket:
        token = await _register(socket, "rogue")
        running = asyncio.create_task(story(host, "go", agent="rogue", allowed_tools=[]))
        asked = envelope_in(_bytes(await socket.recv()))
        assert asked.action == "execute"
        await socket.send(
            _said(Kind.REQUEST, "call_tool", asked, token, tool_name="size", arguments={})
        )
        told = envelope_in(_bytes(await socket.recv()))
        assert told.kind is Kind.RESPONSE
        assert told.payload["error"]["code"] == "tool_not_allowed"
        await socket.send(_said(Kind.RESPONSE, "done", asked, token, result_summary="fine"))
        _, task = await running
        assert task.state is State.COMPLETED
        assert task.text == "fine"


async def test_frames_without_the_token_and_from_others_are_refused(tmp_path: Path) -> None:
    from websockets.asyncio.client import connect

    host = engine_host()
    async with served(host, settings(tmp_path, "engine")) as url, connect(_ws(url)) as socket:
        token = await _register(socket, "one")
        running = asyncio.create_task(story(host, "go", agent="one"))
        asked = envelope_in(_bytes(await socket.recv()))
        done = _said(Kind.RESPONSE, "done", asked, "", result_summary="forged")
        await socket.send(done)
        told = envelope_in(_bytes(await socket.recv()))
        assert told.payload["error"]["code"] == "unauthorized"
        other = msgspec.structs.replace(
            envelope_in(_bytes(done)), token=token, sender="somebody-else"
        )
        await socket.send(envelope_out(other).decode())
        told = envelope_in(_bytes(await socket.recv()))
        assert told.payload["error"]["code"] == "forbidden"
        await socket.send(_said(Kind.RESPONSE, "done", asked, token, result_summary="true"))
        _, task = await running
        assert task.text == "true"


def _ws(url: str) -> str:
    return f"{at(url, 'ws')}/iat/ws"


def _bytes(said: str | bytes) -> bytes:
    return said.encode() if isinstance(said, str) else said


def _said(kind: Kind, action: str, asked: Envelope, token: str, **payload: Any) -> str:
    return envelope_out(
        Envelope(
            kind=kind,
            action=action,
            payload=payload,
            id="q1",
            parent=asked.id,
            sender=asked.to,
            to=asked.sender,
            token=token,
        )
    ).decode()


async def _register(socket: Any, name: str) -> str:
    hello = Envelope(
        kind=Kind.REQUEST,
        action="register",
        payload={"agent_id": name, "tools": []},
        id="r1",
        sender=name,
        token=SECRET,
    )
    await socket.send(envelope_out(hello).decode())
    return str(envelope_in(_bytes(await socket.recv())).payload["session_token"])


@pytest.mark.slow  # takes two seconds
@pytest.mark.parametrize("way", WAYS)
async def test_in_a_ring_of_three_hosts_a_message_dies(tmp_path: Path, way: str) -> None:
    hosts = [Host(name, patience=5) for name in ("one", "two", "three")]
    ran: list[str] = []
    for host in hosts:
        _count(host, ran)
    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(served(hosts[0], settings(tmp_path, "one"))),
        ]
        for name, host in (("two", hosts[1]), ("three", hosts[2])):
            own = settings(tmp_path, name, host=joining(urls[-1], way, hosts[len(urls) - 1].name))
            urls.append(await stack.enter_async_context(served(host, own)))
        # The last one closes the ring: the first is a sub-agent of the third.
        assert hosts[2].dial is not None
        back = hosts[2].dial(f"{urls[0]}/iat", "one", typed=True, signs=True)
        hosts[2].agents["one"] = SubAgent(
            "one", Card(name="one", description="", version=""), (), back
        )
        await hosts[0].find("two", LIMIT)
        await hosts[1].find("three", LIMIT)
        _, task = await story(hosts[0], "round and round", agent="two")
        assert task.state is State.FAILED
        assert task.status.message.metadata["reason"] == "ttl_exceeded"
        assert ran == ["one", "two", "three", "one"]
        await hosts[2].agents.pop("one").transport.close()


def _count(host: Host, ran: list[str]) -> None:
    skill = host.skills["execute"]
    inner = skill.function

    async def counted(turn: Turn) -> None:
        ran.append(host.name)
        await inner(turn)

    host.skills["execute"] = msgspec.structs.replace(skill, function=counted)


async def test_several_sub_agents_at_once(tmp_path: Path) -> None:
    host = engine_host()
    agents = {f"worker-{number}": worker() for number in range(4)}
    async with team(tmp_path, host, agents):
        with pytest.raises(Unsupported):
            await host.find()
        told = await asyncio.gather(
            *(story(host, name, index % 2 == 0, agent=name) for index, name in enumerate(agents))
        )
        for index, (name, (_, task)) in enumerate(zip(agents, told, strict=True)):
            end = "kept" if index % 2 else "deleted"
            assert task.text == f"{name} has {len(name)} bytes, {end}"


async def test_many_quick_chunks_come_through_a_socket(tmp_path: Path) -> None:
    agent = Agent("Fast")

    @agent.skill("count")
    async def count(turn: Turn) -> AsyncIterator[str]:
        for number in range(500):
            yield f"{number} "

    host = engine_host()
    async with team(tmp_path, host, {"fast": agent}):
        seen, task = await story(host, "go")
        assert task.text.split() == [str(number) for number in range(500)]
        assert [entry.seq for entry in seen] == list(range(1, len(seen) + 1))


class Silent:
    """A line to somebody who never answers."""

    async def ping(self) -> None:
        raise PeerUnreachable()

    async def close(self) -> None:
        return


async def test_three_missed_pulses_are_offline() -> None:
    host = Host("host", pulse=0.02, patience=0.2)
    sub = SubAgent("away", Card(name="away", description="", version=""), (), Silent())  # type: ignore[arg-type]
    host.agents["away"] = sub
    for number in range(1, MISSES + 1):
        assert sub.online
        assert await sub.pulse(0.1) is (number < MISSES)
    assert not sub.online
    with pytest.raises(PeerUnreachable, match="Unreachable"):
        await host.find("away")


@pytest.mark.slow  # takes three seconds
@pytest.mark.parametrize("way", WAYS)
async def test_a_joined_agent_registers_again_when_the_host_comes_back(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragoman.iat import registration
    from dragoman.net.http.granian_server import GranianServer, bind
    from dragoman.observability.log import Log
    from dragoman.server.app import App, engine_for
    from dragoman.server.serve import wind_down

    monkeypatch.setattr(registration.Registration.run, "__defaults__", (0.5,))
    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    url = f"http://127.0.0.1:{port}"

    async def life(sock: Any, stack: AsyncExitStack) -> Host:
        host = engine_host()
        own = settings(tmp_path, "engine")
        app = App(host, engine_for(host, own), own, Log("error"), url)
        await app.start()
        listener = GranianServer(app.route, sock, own.limits)
        listener.begin()

        async def end() -> None:
            await wind_down(app, listener)

        stack.push_async_callback(end)
        return host

    async with served(
        caller_of("shout", words="hi"), settings(tmp_path, "c", host=joining(url, way))
    ):
        for number in range(2):
            async with AsyncExitStack() as stack:
                host = await life(sock if not number else bind("127.0.0.1", port), stack)
                await host.find("c", LIMIT)
                _, task = await story(host, "go")
                assert task.text == "HI"
    sock.close()


def test_pauses_grow_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the pauses of a real host
    assert max(pause(20) for _ in range(200)) <= MOST
    assert max(pause(0) for _ in range(200)) <= 0.5
    assert len({pause(3) for _ in range(20)}) > 10


def test_a_tool_needs_a_function_and_a_name_of_its_own() -> None:
    from dragoman.core.errors import ConfigError

    host = engine_host()
    with pytest.raises(ConfigError):
        host.tool(3)  # type: ignore[call-overload]
    with pytest.raises(ConfigError):
        host.tool(name="size")(lambda: 1)
    with pytest.raises(ConfigError):
        Host("x", depth=0)
    assert isinstance(host.offered()[0], Tool)
