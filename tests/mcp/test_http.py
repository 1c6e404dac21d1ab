"""`/mcp` behind our authentication, rate limits, hosts and limits of size, for one agent and for
several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from msgspec.structs import replace

from cli.run import AGENT, serving
from dragoman import Agent, Turn, connect
from dragoman.app import create_app
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError
from dragoman.core.model import State
from dragoman.mcp import extra
from dragoman.mcp.session_shares import (
    MOST_SESSIONS_OF_CALLER,
    SessionCaller,
    SessionShares,
    TooManySessions,
)
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.server.serve import address, wind_down
from dragoman.settings import Limits, Rates, Settings
from dragoman.testing import served

pytestmark = pytest.mark.slow
TOKENS = {"ann": "a-token-of-ann-0001", "bob": "a-token-of-bob-0001"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def settings(**sections: Any) -> Settings:
    known = Settings(**sections)
    server = replace(known.server, store="memory:", allow_private=True)
    return replace(known, server=server)


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tokens]:
    callers = {}
    for name, token in TOKENS.items():
        monkeypatch.setenv(name.upper(), token)
        callers[name] = Known(secret=Secret(env=name.upper()))
    return {"people": Tokens(callers=callers)}


@asynccontextmanager
async def as_caller(url: str, who: str, mode: str) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {TOKENS[who]}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as web,
        Client(streamable_http_client(url, http_client=web), mode=mode) as mcp,
    ):
        yield mcp


def text(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))


def greeter(name: str) -> Agent:
    agent = Agent(name, description=f"It is {name}.")

    @agent.skill("hello")
    async def hello(turn: Turn) -> str:
        return f"{name} greets {turn.caller.principal}"

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return f"{name} heard {await turn.ask('What?')}"

    return agent


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_only_callers_with_credentials_get_in(tokens: dict[str, Any], mode: str) -> None:
    async with served(greeter("Alpha"), settings(auth=tokens)) as url:
        async with httpx2.AsyncClient() as web:
            for given in ({}, {"authorization": "Bearer wrong-token-000000"}):
                refused = await web.post(f"{url}/mcp", json=LIST, headers={**HEADERS, **given})
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"].startswith("Bearer")
                assert refused.json()["error"]["data"]["reason"] == "unauthenticated"
        async with as_caller(f"{url}/mcp", "ann", mode) as mcp:
            assert text(await mcp.call_tool("hello", {"message": "x"})) == "Alpha greets ann"


async def test_a_session_and_a_task_are_their_callers_alone(tokens: dict[str, Any]) -> None:
    async with served(greeter("Alpha"), settings(auth=tokens)) as url, httpx2.AsyncClient() as web:
        opening = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        ann = {**HEADERS, "authorization": f"Bearer {TOKENS['ann']}"}
        opened = await web.post(
            f"{url}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
            headers=ann,
        )
        assert opened.status_code == 200
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        bob = {**HEADERS, **session, "authorization": f"Bearer {TOKENS['bob']}"}
        assert (await web.post(f"{url}/mcp", json=LIST, headers=bob)).status_code == 404
        async with as_caller(f"{url}/mcp", "ann", "2026-07-28") as mcp:
            asked = await mcp.call_tool("ask", {"message": "x"})
        async with as_caller(f"{url}/mcp", "bob", "2026-07-28") as mcp:
            task = asked.structured_content["task_id"]
            found = await mcp.call_tool("answer_task", {"task_id": task, "answer": "x"})
            assert found.is_error
            assert text(found) == "There is no such task."


OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.mark.parametrize("known", [True, False], ids=["caller", "stranger"])
async def test_sessions_are_shared_out_and_one_caller_cannot_have_them_all(
    tokens: dict[str, Any], known: bool
) -> None:
    """One that opens session after session is told when to try again; others are served."""
    own = settings(auth=tokens) if known else settings()
    async with served(greeter("Alpha"), own) as url, httpx2.AsyncClient(timeout=60) as web:
        ann = {**HEADERS, **({"authorization": f"Bearer {TOKENS['ann']}"} if known else {})}

        async def opened() -> httpx2.Response:
            return await web.post(f"{url}/mcp", json=OPENING, headers=ann)

        first = await opened()
        assert first.status_code == 200
        for _ in range(MOST_SESSIONS_OF_CALLER - 1):
            assert (await opened()).status_code == 200
        refused = await opened()
        assert refused.status_code == 503
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert "sessions" in refused.json()["error"]["message"]
        if known:
            bob = {**HEADERS, "authorization": f"Bearer {TOKENS['bob']}"}
            served_too = await web.post(f"{url}/mcp", json=OPENING, headers=bob)
            assert served_too.status_code == 200
        # A request that opens no session, and the next session after one has ended, are served.
        session = {"mcp-session-id": first.headers["mcp-session-id"]}
        listed = await web.post(f"{url}/mcp", json=LIST, headers={**ann, **session})
        assert listed.status_code == 200
        ended = await web.delete(f"{url}/mcp", headers={**ann, **session})
        assert ended.status_code == 200
        assert (await opened()).status_code == 200
        assert (await opened()).status_code == 503
        await web.post(f"{url}/mcp", json=LIST, headers=ann)  # refused: it is no opening


def test_a_session_that_nobody_uses_gives_its_place_back() -> None:
    now, ann = 0.0, SessionCaller("ann", stranger=False)
    shares = SessionShares(most=8, most_of_caller=2, idle_seconds=10, clock=lambda: now)
    for session in ("one", "two"):
        shares.opened(shares.open(ann), session)
    with pytest.raises(TooManySessions) as refused:
        shares.open(ann)
    assert refused.value.public["retry_after"] == "10"
    shares.end("two", SessionCaller("bob", stranger=False), gone=True)  # it is not his
    shares.begin("one", ann)
    now = 11.0
    shares.open(ann)  # in place of the second: the first is in use
    with pytest.raises(TooManySessions):
        shares.open(ann)
    shares.end("one", ann)
    shares.opened(ann, "")  # it was refused
    shares.open(ann)


def test_strangers_together_leave_half_of_the_sessions_to_known_callers() -> None:
    shares = SessionShares(most=8, most_of_caller=2, idle_seconds=10, clock=lambda: 0.0)
    for number in range(4):
        shares.open(SessionCaller(f"192.0.2.{number}", stranger=True))
    with pytest.raises(TooManySessions):
        shares.open(SessionCaller("192.0.2.9", stranger=True))
    shares.open(SessionCaller("ann", stranger=False))


async def test_rate_limits_count_requests(tokens: dict[str, Any]) -> None:
    limited = settings(auth=tokens, rates=Rates(calls_per_minute=2))
    async with served(greeter("Alpha"), limited) as url, httpx2.AsyncClient() as web:
        ann = {**HEADERS, "authorization": f"Bearer {TOKENS['ann']}"}
        found = [await web.post(f"{url}/mcp", json=LIST, headers=ann) for _ in range(3)]
        assert found[-1].status_code == 429
        assert found[-1].headers["retry-after"]
        assert 429 not in [each.status_code for each in found[:2]]


async def test_foreign_hosts_and_origins_are_refused() -> None:
    async with served(greeter("Alpha"), settings()) as url, httpx2.AsyncClient() as web:
        rebound = await web.post(
            f"{url}/mcp", json=LIST, headers={**HEADERS, "host": "evil.example"}
        )
        assert rebound.status_code == 421
        page = await web.post(
            f"{url}/mcp", json=LIST, headers={**HEADERS, "origin": "https://evil.example"}
        )
        assert page.status_code == 403


async def test_bodies_that_are_too_large_or_no_json_get_a_clear_error() -> None:
    small = settings(limits=Limits(body_size=2000))
    async with served(greeter("Alpha"), small) as url, httpx2.AsyncClient() as web:
        large = await web.post(f"{url}/mcp", content=b"x" * 2001, headers=HEADERS)
        assert large.status_code == 413
        assert large.json()["error"]["data"]["reason"] == "too_large"
        for version in ({}, {"mcp-protocol-version": "2026-07-28"}):
            garbage = await web.post(
                f"{url}/mcp", content=b"{garbage", headers={**HEADERS, **version}
            )
            assert garbage.status_code == 400
            assert "error" in garbage.json()
        unknown = await web.put(f"{url}/mcp", content=b"{}")
        assert unknown.status_code == 405
        async with Client(f"{url}/mcp") as mcp:
            assert text(await mcp.call_tool("hello", {"message": "x"})).startswith("Alpha")


@pytest.fixture
async def two() -> AsyncIterator[str]:
    async with served([greeter("Alpha"), greeter("Beta")], settings()) as url:
        yield url


async def test_the_root_offers_all_agents_and_each_mount_point_its_own(
    two: str, client: Callable[..., Client]
) -> None:
    async with client(f"{two}/mcp") as mcp:
        names = [each.name for each in (await mcp.list_tools()).tools]
        assert names == ["alpha__hello", "alpha__ask", "beta__hello", "beta__ask", "answer_task"]
        found = await mcp.call_tool("beta__hello", {"message": "x"})
        assert text(found) == "Beta greets anonymous"
        asked = await mcp.call_tool("beta__ask", {"message": "x"})
        task = asked.structured_content["task_id"]
        assert task.startswith("beta/")
        answered = await mcp.call_tool("answer_task", {"task_id": task, "answer": "you"})
        assert text(answered) == "Beta heard you"
    async with client(f"{two}/agents/beta/mcp") as mcp:
        names = [each.name for each in (await mcp.list_tools()).tools]
        assert names == ["hello", "ask", "answer_task"]
        assert text(await mcp.call_tool("hello", {"message": "x"})) == "Beta greets anonymous"


async def test_the_root_offers_only_the_agents_that_let_the_caller_in(
    tokens: dict[str, Any],
) -> None:
    alpha, beta = greeter("Alpha"), greeter("Beta")
    beta.auth = tokens
    async with served([alpha, beta], settings()) as url:
        async with Client(f"{url}/mcp") as mcp:
            names = [each.name for each in (await mcp.list_tools()).tools]
            assert names == ["alpha__hello", "alpha__ask", "answer_task"]
            with pytest.raises(MCPError, match="no tool"):
                await mcp.call_tool("beta__hello", {"message": "x"})
        async with as_caller(f"{url}/mcp", "ann", "auto") as mcp:
            found = await mcp.call_tool("beta__hello", {"message": "x"})
            assert text(found) == "Beta greets ann"


async def test_a_skill_of_the_extended_card_is_a_tool_for_callers_that_may_use_it(
    tokens: dict[str, Any],
) -> None:
    agent = greeter("Alpha")
    agent.anonymous = ("hello",)

    @agent.skill("secret", extended=True)
    async def secret(turn: Turn) -> str:
        return "psst"

    async with served(agent, settings(auth=tokens)) as url:
        async with Client(f"{url}/mcp") as mcp:
            names = [each.name for each in (await mcp.list_tools()).tools]
            assert "secret" not in names
            assert text(await mcp.call_tool("hello", {"message": "x"})) == "Alpha greets anonymous"
            refused = await mcp.call_tool("ask", {"message": "x"})
            assert refused.is_error
        async with as_caller(f"{url}/mcp", "ann", "auto") as mcp:
            assert text(await mcp.call_tool("secret", {"message": "x"})) == "psst"


async def test_the_list_of_tools_obeys_card_access(tokens: dict[str, Any]) -> None:
    agent = greeter("Alpha")
    agent.anonymous = ("hello",)
    known = settings(auth=tokens)
    hidden = replace(known, server=replace(known.server, card_access="authenticated"))
    async with served(agent, hidden) as url, httpx2.AsyncClient() as web:
        assert (await web.post(f"{url}/mcp", json=LIST, headers=HEADERS)).status_code == 403
        async with as_caller(f"{url}/mcp", "ann", "auto") as mcp:
            assert (await mcp.list_tools()).tools


async def test_mcp_can_be_switched_off() -> None:
    off = settings()
    off = replace(off, server=replace(off.server, mcp=False))
    async with served(greeter("Alpha"), off) as url, httpx2.AsyncClient() as web:
        assert (await web.post(f"{url}/mcp", json=LIST, headers=HEADERS)).status_code == 404


async def test_an_agent_without_streams_is_offered_as_well(
    desk: Agent, client: Callable[..., Client]
) -> None:
    desk.streaming = False
    async with served(desk, settings()) as url, client(f"{url}/mcp") as mcp:
        assert text(await mcp.call_tool("say", {"message": "hi"})) == "hi"
        asked = await mcp.call_tool("trip", {"message": "x"})
        task = asked.structured_content["task_id"]
        found = await mcp.call_tool("answer_task", {"task_id": task, "answer": "Oslo"})
        assert text(found) == "A trip to Oslo"


def test_without_the_extra_there_is_no_route_and_asking_for_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extra, "installed", lambda: False)
    assert "/mcp" not in create_app(greeter("Alpha"), settings()).routes
    asked = settings()
    asked = replace(asked, server=replace(asked.server, mcp=True))
    with pytest.raises(ConfigError, match=r"pip install 'dragoman\[mcp\]'"):
        create_app(greeter("Alpha"), asked)


async def test_a_changed_request_state_reaches_no_task_of_others(tokens: dict[str, Any]) -> None:
    async with served(greeter("Alpha"), settings(auth=tokens)) as url:
        async with as_caller(f"{url}/mcp", "ann", "2026-07-28") as mcp:
            asked = await mcp.call_tool("ask", {"message": "x"})
        task = asked.structured_content["task_id"]
        async with as_caller(f"{url}/mcp", "bob", "2026-07-28") as mcp:
            for state in (msgspec.json.encode({"task": task, "question": ""}).decode(), "junk"):
                found = await mcp.session.call_tool("ask", {"message": "x"}, request_state=state)
                assert isinstance(found, CallToolResult)
                assert found.is_error


async def test_agents_that_come_and_go_leave_a_session_open() -> None:
    """The session is the caller's, whichever agents there are."""
    app = create_app({"alpha": greeter("Alpha")}, settings(), several=True)
    sock = bind("127.0.0.1", 0, limits=Limits())
    await app.start()
    listener = GranianServer(app.route, sock, Limits(), Settings().tls, app.server.trusts)
    listener.begin()
    try:
        async with Client(f"{address(sock)}/mcp", mode="legacy") as mcp:
            assert len((await mcp.list_tools()).tools) == 3
            await app.add_agent("beta", greeter("Beta"))
            found = await mcp.call_tool("beta__hello", {"message": "x"})
            assert text(found) == "Beta greets anonymous"
            await app.remove_agent("alpha")
            names = [each.name for each in (await mcp.list_tools()).tools]
            assert names == ["beta__hello", "beta__ask", "answer_task"]
    finally:
        await wind_down(app, listener)
        sock.close()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_task_goes_on_when_the_server_stops_during_its_call(
    tmp_path: Path, mode: str
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    with serving("agent.py", cwd=tmp_path) as first:
        started = asyncio.Event()

        async def told(progress: float, total: float | None, message: str | None) -> None:
            started.set()

        async with Client(f"{first.url}/mcp", mode=mode) as mcp:
            call = asyncio.create_task(
                mcp.call_tool("long", {"message": "x"}, progress_callback=told)
            )
            await started.wait()
            await asyncio.to_thread(first.end)
            with pytest.raises(MCPError):
                await call
    with serving("agent.py", cwd=tmp_path) as second:
        async with connect(second.url) as agent:
            (task,) = (await agent.list()).tasks
            assert task.state in (State.SUBMITTED, State.WORKING)


class Counted(Agent):
    """An agent that counts how often its card is read."""

    read = 0

    def card(self, *args: Any, **options: Any) -> Card:
        self.read += 1
        return super().card(*args, **options)


async def test_a_call_reads_the_card_of_its_own_agent_only(client: Callable[..., Client]) -> None:
    agents = {name: Counted(name) for name in ("alpha", "beta")}
    for each in agents.values():

        @each.skill("hello")
        async def hello(turn: Turn) -> str:
            return "hello"

    async with served(agents, settings()) as url, client(f"{url}/mcp") as mcp:
        await mcp.list_tools()
        before = {name: each.read for name, each in agents.items()}
        assert text(await mcp.call_tool("beta__hello", {"message": "x"})) == "hello"
        assert agents["alpha"].read == before["alpha"]
        assert agents["beta"].read > before["beta"]
