"""Session tokens end when they should and not before: revoked, expired, renewed, after a restart,
and in every process of one store."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from cli.run import dragoman
from dragoman.core.card import Tool
from dragoman.core.errors import StoreUnavailable
from dragoman.core.peer import Context
from dragoman.iat.service import IatService
from dragoman.security.iat import LOOK, MARK, Sessions
from dragoman.store import open_store
from dragoman.store.memory.sessions import MemorySessions
from net.iat.sub_agent import READ, SECRET, RunningAgent, make_agent, open_server
from waiting import before_again, turns, until

HOST = Context(principal="iat:host-1", schemes=("iat",))
TOOL = Tool(name="read")


class Hands:
    """A clock moved by hand, in seconds; `millis` is how a store reads it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def millis(self) -> int:
        return int(self.now * 1000)


def sessions_of(clock: Hands, store: MemorySessions, agent: str = "desk") -> Sessions:
    return Sessions(agent, store, 60, clock)


async def test_tokens_expire_and_a_pulse_renews_them() -> None:
    clock = Hands()
    sessions = sessions_of(clock, MemorySessions(clock.millis))
    token, until = sessions.issue("host-1", HOST, ())
    assert until == 1060
    clock.now = 1050
    assert sessions.renew(token) == 1110
    clock.now = 1100
    assert await sessions.find(token) is not None
    clock.now = 1110
    assert sessions.renew(token) == 0
    assert await sessions.find(token) is None


async def test_a_renewal_is_written_only_when_it_is_worth_it() -> None:
    clock = Hands()
    store = MemorySessions(clock.millis)
    sessions = sessions_of(clock, store)
    token, _ = sessions.issue("host-1", HOST, ())
    await sessions.landed()
    clock.now = 1002
    assert sessions.renew(token) == 1060  # what is told is what a restart would find
    clock.now = 1003
    assert sessions.renew(token) == 1063
    await sessions.landed()
    (kept,) = await store.list_valid(None, None)
    assert (kept.until, kept.revision) == (1_063_000, 2)


async def test_others_are_heard_of_after_a_second_and_asked_no_more_often() -> None:
    clock = Hands()
    store = MemorySessions(clock.millis)
    one, two = sessions_of(clock, store), sessions_of(clock, store)
    token, _ = one.issue("host-1", HOST, ())
    await one.landed()
    found = await two.find(token)  # given out elsewhere, good here
    assert found is not None
    assert (found.who, found.caller) == ("host-1", HOST)
    one.grant(found.key, (TOOL,))
    await one.landed()
    clock.now += LOOK
    found = await two.find(token)
    assert found is not None
    assert found.granted == (TOOL,)
    assert await one.find(token) is not None
    await store.revoke("host-1")
    clock.now += LOOK * 0.9
    assert await two.find(token) is not None  # not asked yet: no I/O per frame
    clock.now += LOOK * 0.1
    assert await two.find(token) is None
    assert await one.find(token) is None


async def test_what_is_renewed_elsewhere_is_not_over_here() -> None:
    clock = Hands()
    store = MemorySessions(clock.millis)
    one, two = sessions_of(clock, store), sessions_of(clock, store)
    token, _ = one.issue("host-1", HOST, ())
    await one.landed()
    assert await two.find(token) is not None
    clock.now += 59
    one.renew(token)
    await one.landed()
    clock.now += 1
    assert await two.find(token) is not None


async def test_a_token_is_good_at_the_door_where_it_was_given() -> None:
    clock = Hands()
    store = MemorySessions(clock.millis)
    token, _ = sessions_of(clock, store).issue("host-1", HOST, ())
    await turns()
    assert await sessions_of(clock, store).find(token) is not None
    assert await sessions_of(clock, store, "another").find(token) is None


async def test_who_cannot_be_asked_lets_nobody_in(tmp_path: Path) -> None:
    clock = Hands()
    store = open_store(f"sqlite:///{tmp_path}/tasks.db", clock=clock.millis)
    await store.open()
    sessions = Sessions("desk", store.sessions, 60, clock)
    token, _ = sessions.issue("host-1", HOST, ())
    await sessions.landed()
    assert await sessions.find(token) is not None
    await store.close()
    assert await sessions.find(token) is not None  # looked a moment ago
    clock.now += LOOK
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await sessions.find(token)


async def test_tokens_of_hosts_we_joined_are_kept_by_them() -> None:
    clock = Hands()
    store = MemorySessions(clock.millis)
    sessions = sessions_of(clock, store)
    sessions.adopt("theirs", "engine", HOST)
    clock.now += 30
    assert sessions.renew("theirs") == 1090
    assert await sessions.find("theirs") is not None
    await sessions.landed()
    assert await store.list_valid(None, None) == []
    assert await sessions.revoke("engine") == 0
    assert await sessions.find("theirs") is None


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_restart_forgets_no_session(tmp_path: Path, kind: str) -> None:
    async with open_server(tmp_path, kind=kind) as server:
        await server.join(tools=[READ])
        await server.ask("grant_tool", tool=READ)
        kept = server.token
        told = await server.ask("register", agent_id="host-2", sender="host-2", token=SECRET)
        revoked = told["session_token"]
        assert await server.app.service(IatService).guard.sessions.revoke("host-2") == 1
    async with open_server(tmp_path, kind=kind) as server:
        server.token = kept
        steps = server.stream(server.envelope("execute", query="read it"))
        actions = [step["payload"].get("action") async for _, _, step in _until(steps, "call_tool")]
        assert actions[-1] == "call_tool"  # what was granted before still is
        said = server.envelope("pulse", sender="host-2", token=revoked)
        assert (await server.post(said)).status_code == 401


async def _until(steps: Any, action: str) -> Any:
    async for step in steps:
        yield step
        if step[2]["payload"].get("action") == action:
            await steps.aclose()
            return


async def test_processes_of_one_store_share_sessions(tmp_path: Path) -> None:
    async with open_server(tmp_path) as one, open_server(tmp_path) as two:
        await one.join()
        two.token = one.token  # at once: an answer says that it is kept
        assert (await two.ask("execute", query="hello"))["status"] == "completed"
        await one.app.service(IatService).guard.sessions.revoke("host-1")
        assert (await one.post(one.envelope("pulse"))).status_code == 401
        await refused(lambda: pulse(two))


async def test_another_agent_of_the_store_does_not_know_the_token(tmp_path: Path) -> None:
    other = make_agent()
    other.name = "rust-agent"
    async with open_server(tmp_path) as one, open_server(tmp_path, agent=other) as two:
        await one.join()
        two.token = one.token
        assert (await two.post(two.envelope("pulse"))).status_code == 401
        assert (await one.ask("pulse"))["ok"] is True


async def refused(ask: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    """Waits until a token is good no more: a second, where there is time for it."""

    async def error() -> Any:
        await before_again()  # a caller that asks too often is refused for that
        return (await ask()).get("error")

    assert (await until(error))["code"] == "unauthorized"


async def pulse(server: RunningAgent) -> dict[str, Any]:
    return dict((await server.post(server.envelope("pulse"))).json()["payload"])


async def by_hand(folder: Path, *args: str) -> Any:
    """`dragoman iat ARGS` on the store of a server."""
    place = f"sqlite:///{folder}/tasks.db"
    return await asyncio.to_thread(dragoman, "iat", *args, "--store", place, cwd=folder)


@pytest.mark.slow  # starts processes
async def test_an_operator_sees_and_ends_sessions(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server:
        told = await by_hand(tmp_path, "sessions")
        assert (told.returncode, told.stdout) == (0, "Nobody has a session.\n")
        async with connect(server.ws) as socket:

            async def ask(action: str, **payload: Any) -> dict[str, Any]:
                await socket.send(json.dumps(server.envelope(action, **payload)))
                async with asyncio.timeout(60):
                    return dict(json.loads(await socket.recv())["payload"])

            joined = await ask("register", agent_id="host-1", token=SECRET, tools=[READ])
            server.token = joined["session_token"]
            assert server.token.startswith(MARK)
            assert (await ask("pulse"))["ok"] is True
            told = await by_hand(tmp_path, "sessions")
            assert told.stdout.startswith("host-1  with go-agent  for iat:host-1  since 20")
            assert told.stdout.endswith("tools 1\n")
            (line,) = (await by_hand(tmp_path, "sessions", "--json")).stdout.splitlines()
            shown = json.loads(line)
            assert (shown["who"], shown["agent"], shown["tools"]) == ("host-1", "go-agent", 1)
            assert server.token not in told.stdout + line
            ended = await by_hand(tmp_path, "revoke", "host-1")
            assert (ended.returncode, ended.stdout) == (0, "revoked  host-1  1 session\n")
            await refused(lambda: ask("pulse"))
            assert (await ask("execute", query="hello"))["error"]["code"] == "unauthorized"
        assert (await server.post(server.envelope("pulse"))).status_code == 401
        assert (await by_hand(tmp_path, "sessions")).stdout == "Nobody has a session.\n"
        nobody = await by_hand(tmp_path, "revoke", "host-1", "host-9")
        assert nobody.returncode == 2
        assert "No session of host-1, host-9; see `dragoman iat sessions`." in nobody.stderr
        assert "Whose sessions?" in (await by_hand(tmp_path, "revoke")).stderr


async def test_over_http_a_revoked_token_ends_too(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server:
        await server.join()
        assert (await server.ask("pulse"))["ok"] is True
        store = open_store(f"sqlite:///{tmp_path}/tasks.db")
        await store.open()
        try:
            assert await store.sessions.revoke("host-1") == 1
        finally:
            await store.close()
        await refused(lambda: pulse(server))
        await server.join()  # who has the secret may come back
        assert (await server.ask("pulse"))["ok"] is True


async def test_expired_sessions_are_refused_and_swept(tmp_path: Path) -> None:
    async with open_server(tmp_path, session=0.2) as server:
        await server.join()
        await asyncio.sleep(0.2)  # the whole life of a session
        assert (await server.post(server.envelope("execute", query="hello"))).status_code == 401
        for _ in range(2):
            await server.join()
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as db:
        (left,) = db.execute("SELECT count(*) FROM session").fetchone()
    assert left <= 2  # the two that were given last


async def test_a_pulse_renews_wherever_the_token_stands(tmp_path: Path) -> None:
    async with open_server(session=60) as server:
        await server.join()
        sessions = server.app.service(IatService).guard.sessions
        (session,) = sessions._open.values()
        ways: list[Callable[[], dict[str, str]]] = [
            lambda: {"authorization": f"Bearer {server.token}"},
            lambda: {"x-iat-token": server.token},
        ]
        for headers in (way() for way in ways):
            session.until -= 30
            before = session.until
            reply = await server.post(server.envelope("pulse", token=""), **headers)
            assert reply.json()["payload"]["expires_at"] > before, headers
