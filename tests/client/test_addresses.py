"""Addresses that name a dialect: where it is spoken, what is shown, and who learns who we are."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.asyncio.server import Request, Response, ServerConnection, serve

from client.our_server import AUTH, QUICK, SECRET, open_server
from client.test_lines import guarded
from client.test_rebinding import HOST, PUBLIC, Names, internet
from dragoman import State, Task, connect
from dragoman.client import SharedSecret
from dragoman.client.addresses import dialects_of, mount_of, paths_at, schemes, web_form
from dragoman.core.errors import BadParams, ConfigError, PeerUnreachable, Unauthenticated
from dragoman.dialects import DIALECTS
from dragoman.iat import Host
from dragoman.security.iat import IatAuthenticator
from dragoman.testing import served
from iat.flat_agent import FlatAgent, Streaming, running
from iat.team import SECRET as TEAM_SECRET
from iat.team import settings
from iat.test_secret import shown
from waiting import until

WAYS = ["iat+http", "iat+ws"]


def test_addresses_are_taken_apart() -> None:
    iat, ws = DIALECTS["iat"], DIALECTS["iat-ws"]
    assert dialects_of("iat+https://x") == [iat]
    assert dialects_of("iat+wss://x") == [ws]
    assert [each.name for each in dialects_of("a2a+grpc://x")] == ["a2a-1.0-grpc", "a2a-0.3-grpc"]
    assert dialects_of("https://x") == []
    for wrong in ("x", "iat+grpc://x", "iat://x", "soap+http://x", "ftp://x"):
        with pytest.raises(ConfigError, match="An address begins with"):
            dialects_of(wrong)
    assert web_form("iat+wss://x/y") == "https://x/y"
    assert web_form("a2a+grpc://x:1") == "http://x:1"
    assert {"iat+http", "iat+wss", "a2a+grpcs", "https"} <= set(schemes())
    assert "iat+grpc" not in schemes()
    assert paths_at("http://x", iat) == ["/", "/iat", "/a2a"]
    assert paths_at("http://x/", ws) == ["/iat/ws"]
    assert paths_at("http://x/iat", iat) == []
    beneath = ["/agents/alpha/iat", "/agents/alpha/a2a"]
    assert paths_at("http://x/agents/alpha", iat) == ["/agents/alpha", *beneath]
    assert paths_at("http://x/agents/alpha", ws) == []
    assert paths_at("http://x/agents/alpha", iat, mount=True) == beneath
    assert mount_of("http://x/agents/alpha/iat", iat) == "http://x/agents/alpha"
    assert mount_of("http://x/iat/ws", ws) == "http://x"


@pytest.mark.parametrize("path", ["", "/", "/iat"])
async def test_the_path_of_the_dialect_may_be_left_out(path: str) -> None:
    async with open_server() as home:
        for way in WAYS:
            tail = "/iat/ws" if path == "/iat" and way == "iat+ws" else path
            url = f"{home.url.replace('http', way)}{tail}"
            async with connect(url, auth=AUTH, limits=QUICK) as agent:
                assert agent.card.name == "Desk"
                assert (await agent.send("hi")).text == "HI"


@pytest.mark.parametrize("dialect", ["iat", "iat-ws"])
async def test_a_card_that_lists_a_dialect_may_be_read_for_it(dialect: str) -> None:
    async with open_server() as home, connect(home.url, dialect=dialect, auth=AUTH) as agent:
        assert agent.dialect == dialect
        assert (await agent.stream("hi").result()).text == "HI"


async def test_a_dialect_that_the_address_does_not_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"and not a2a-1\.0"):
        async with connect("iat+http://127.0.0.1:1", dialect="a2a-1.0"):
            pass


@pytest.mark.parametrize("way", ["iat+http", "iat+ws", "a2a+grpc"])
async def test_nobody_there_is_said(way: str) -> None:
    with pytest.raises(PeerUnreachable, match="cannot be reached") as caught:
        async with connect(f"{way}://127.0.0.1:9", limits=replace(QUICK, retries=1)) as agent:
            await agent.send("hi")
    assert not caught.value.sent


# Who we are.


@pytest.mark.parametrize("way", WAYS)
async def test_the_secret_is_proved_for_a_name_and_never_sent(way: str) -> None:
    async with open_server() as home:
        url = home.url.replace("http", way)
        for auth in (None, SharedSecret(SECRET, to="Other"), SharedSecret("wrong-one", to="Desk")):
            async with connect(url, auth=auth, limits=QUICK) as agent:
                with pytest.raises(Unauthenticated):
                    await agent.send("hi")
    assert SECRET not in repr(await AUTH.credentials("", None, (), refused=None))


def test_what_an_agent_hears_proves_the_secret(tmp_path: Path) -> None:
    async def talk(url: str, auth: SharedSecret) -> None:
        async with connect(url.replace("http", "iat+http"), auth=auth, limits=QUICK) as agent:
            assert (await agent.send("hello")).text == "HELLO"
            assert (await agent.stream("hello").result()).text == "HELLO"

    for kind in (FlatAgent, Streaming):
        with running(kind()) as agent:
            asyncio.run(talk(agent.url, SharedSecret(SECRET, to="go")))
            assert all(SECRET not in shown(each) for each in agent.asked)
            heard = [each for each in agent.asked if each.path == "/a2a"]
            assert all("x-iat-signature" in each.headers for each in heard)
            agent.asked.clear()
            asyncio.run(talk(agent.url, SharedSecret(SECRET, to="")))
            assert not any("x-iat-signature" in each.headers for each in agent.asked)


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_that_ends_is_begun_anew(way: str) -> None:
    from dragoman.iat.service import IatService

    async with open_server() as home:
        guard: IatAuthenticator = home.app.service(IatService).guard
        async with connect(home.url.replace("http", way), auth=AUTH, limits=QUICK) as agent:
            for _ in range(2):
                assert (await agent.send("hi")).text == "HI"
                assert (await agent.stream("hi").result()).text == "HI"
                assert await guard.sessions.revoke("dragoman") == 1


@pytest.mark.parametrize("way", WAYS)
async def test_other_credentials_open_a_session_too(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with guarded(monkeypatch) as home:
        url = home.url.replace("http", way)
        async with (
            connect(url, auth="s3cret-of-ann-123", limits=QUICK) as one,
            connect(url, auth="s3cret-of-ann-123", limits=QUICK) as two,
            connect(home.url, auth="s3cret-of-ann-123", limits=QUICK) as a2a,
        ):
            task = await one.send("hi")
            assert isinstance(task, Task)
            assert (await two.get(task)).text == "HI"  # it belongs to who has the token
            assert (await a2a.get(task)).text == "HI"
        async with connect(url, auth="wrong", limits=QUICK) as agent:
            with pytest.raises(Unauthenticated):
                await agent.send("hi")


@pytest.mark.parametrize("way", WAYS)
async def test_whoever_only_asks_a_host_is_no_sub_agent(tmp_path: Path, way: str) -> None:
    host = Host("engine", patience=0.1)
    async with served(host, settings(tmp_path, "engine")) as url:
        auth = SharedSecret(TEAM_SECRET, to="engine")
        async with connect(url.replace("http", way), auth=auth, limits=QUICK) as agent:
            task = await agent.send("work")
            assert isinstance(task, Task)
            assert task.state is State.FAILED
            assert host.agents == {}


# Where we go.


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_is_called_where_its_name_was_checked(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with open_server() as home:
        url = f"{way}://{HOST}:{home.port}"
        names = Names(["127.0.0.1"])
        async with internet(monkeypatch, names), connect(url, auth=AUTH, limits=QUICK) as agent:
            assert (await agent.send("hi")).text == "HI"
        hostile = Names(["127.0.0.1"], [PUBLIC])
        async with internet(monkeypatch, hostile), connect(url, auth=AUTH, limits=QUICK) as agent:
            with pytest.raises(BadParams, match="led to this machine before"):
                await agent.send("hi")


@pytest.mark.parametrize("dialect", ["iat", "iat-ws"])
async def test_addresses_that_a_card_lists_are_guarded(dialect: str) -> None:
    async with open_server() as home:
        card = home.card()
        with pytest.raises(BadParams, match="may not be called"):
            async with connect("https://agent.example.com", card=card, dialect=dialect):
                pass


async def test_a_websocket_follows_no_redirect() -> None:
    asked: list[str] = []

    async def never(socket: ServerConnection) -> None:
        raise AssertionError("it was opened")

    def elsewhere(socket: ServerConnection, request: Request) -> Response:
        asked.append(request.path)
        response = socket.respond(HTTPStatus.FOUND, "")
        response.headers["location"] = "/iat/other"
        return response

    async with serve(never, "127.0.0.1", 0, process_request=elsewhere) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        limits = replace(QUICK, retries=0)
        with pytest.raises(PeerUnreachable, match="moved to /iat/other"):
            async with connect(f"iat+ws://127.0.0.1:{port}", auth=AUTH, limits=limits) as agent:
                await agent.send("hi")
    assert asked == ["/manifest", "/iat/ws"]


# WebSockets.


@pytest.mark.slow  # takes four seconds
async def test_a_reader_that_stops_to_ask_holds_up_nothing() -> None:
    """Far more events than fit between the socket and its reader, who asks something else."""
    async with (
        open_server() as home,
        connect(home.url.replace("http", "iat+ws"), auth=AUTH, limits=QUICK) as agent,
    ):
        events = agent.stream("900", skill="story")
        first: Any = await anext(events)

        async def completed() -> bool:
            return (await agent.get(first.task_id)).state is State.COMPLETED

        await until(completed)
        told = [event async for event in events]
        assert len(told) > 900
        assert events.task is not None
        assert events.task.text.split() == [str(number) for number in range(900)]


@pytest.mark.slow  # silence of two seconds
async def test_a_silent_stream_stays_open() -> None:
    """The server closes sockets that say nothing for long; a ping in between keeps them."""
    from dragoman import Agent
    from dragoman.core.auth_schemes import Secret
    from dragoman.settings import Iat, Server, Settings

    quiet = Agent("Desk")

    @quiet.skill("wait")
    async def wait(turn: Any) -> str:
        await asyncio.sleep(2)  # the work of the agent: longer than a socket may be silent
        return "done"

    iat = Iat(secret=Secret(env="TEST_DESK_SECRET"), idle=1.0)
    known = Settings(server=Server(store="memory:", allow_private=True), iat=iat)
    limits = replace(QUICK, idle=0.8)
    async with (
        served(quiet, known) as url,
        connect(url.replace("http", "iat+ws"), auth=AUTH, limits=limits) as agent,
    ):
        events = agent.stream("hi")
        assert (await events.result()).text == "done"
        assert events.connections == 1
