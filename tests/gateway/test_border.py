"""What a caller shows to the gateway never reaches an agent behind it, in any dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Agent, Task, connect
from dragoman.client import SharedSecret
from dragoman.client.credentials import Fixed
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import PeerRefused
from dragoman.net.http.asgi import Receive, Scope, Send
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.agent_names import by_name
from dragoman.server.app import App
from dragoman.server.engines import engines_for
from dragoman.server.serve import wind_down
from dragoman.settings import Settings
from dragoman.testing.served import served
from gateway.behind import DIALECTS, SECRET, gateway, section, settings, worker
from ports import own_port
from waiting import until

LIMIT = 240.0
CANARY = "canary"
SHOWN = {
    "authorization": f"Bearer {CANARY}-of-the-caller-himself",
    "cookie": f"session={CANARY}",
    "proxy-authorization": f"Basic {CANARY}",
    "x-api-key": CANARY,
    "x-forwarded-for": f"10.1.2.3, {CANARY}",
    "forwarded": f"for={CANARY}",
    "x-custom": CANARY,
    "referer": f"http://{CANARY}.example",
    "user-agent": CANARY,
    "connection": "keep-alive, x-custom",
    "te": "trailers",
}


@asynccontextmanager
async def recorded(
    own: Settings, agent: Agent | None = None
) -> AsyncIterator[tuple[str, list[str]]]:
    """An agent of ours, its address, and all headers and metadata that ever reached it."""
    seen: list[str] = []
    agents = by_name(agent or worker())
    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    peers, pool = engines_for(agents, own)
    app = App(agents, peers, own, Log("error"), url, pool=pool)
    for mount in app.mounts.values():  # every wire asks here, and gRPC nowhere else
        admit = mount.server.admit

        def noting(headers, target, certificate, admit=admit):  # type: ignore[no-untyped-def]
            seen.append(repr(dict(headers)))
            return admit(headers, target, certificate)

        mount.server.admit = noting

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(repr([*scope.get("headers", ()), scope.get("query_string")]))
        await app.route(scope, receive, send)

    await app.start()
    listener = GranianServer(route, sock, own.limits)
    listener.begin()
    try:
        yield url, seen
    finally:
        await wind_down(app, listener)
        sock.close()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_nothing_that_a_caller_shows_reaches_an_agent(tmp_path: Path, dialect: str) -> None:
    grpc_port = own_port() if "grpc" in dialect else 0
    (tmp_path / "token").write_text(SHOWN["authorization"].removeprefix("Bearer "))
    callers = {"alice": Known(secret=Secret(file=str(tmp_path / "token")))}
    guarded = replace(settings(tmp_path), auth={"token": Tokens(callers=callers)})
    behind = settings(tmp_path, name="worker", grpc_port=grpc_port)
    async with (
        asyncio.timeout(LIMIT),
        recorded(behind) as (url, seen),
        gateway({"worker": section(tmp_path, url, dialect, grpc_port)}, guarded) as door,
    ):
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        headers = {**SHOWN, "a2a-version": "1.0"}
        async with httpx2.AsyncClient(timeout=60) as client:
            answer = await client.post(door.at("worker"), json=body, headers=headers)
        assert "HI" in answer.text
        async with connect(
            door.at("worker"), auth={"authorization": SHOWN["authorization"]}
        ) as caller:
            task = await caller.send("3", skill="count")
            assert isinstance(task, Task)
            assert task.text == "0 1 2 "
        assert seen
        assert [
            each for each in seen if CANARY in each or "alice" in each or "x-custom" in each
        ] == []


@pytest.mark.parametrize("dialect", ["iat", "iat-ws"])
async def test_a_refused_signature_leads_the_operator_to_agent_id(
    tmp_path: Path, dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        asyncio.timeout(120),
        served(worker(), settings(tmp_path, name="someone")) as url,
        gateway(
            {"worker": section(tmp_path, url, dialect) | {"agent_id": ""}},
            settings(tmp_path),
            wait=False,
        ) as door,
        connect(door.url) as caller,
    ):
        with pytest.raises(PeerRefused) as caught:
            await caller.send("hi")
        assert "agent_id" not in caught.value.message
        hint = "signed for 'worker': agent_id in [agents.worker] is the name that the agent has"
        await until(lambda: hint in caplog.text)
        (address,) = door.upstream("worker").pool.addresses
        await until(lambda: hint in address.last_error)


METADATA = {
    name: SHOWN[name]
    for name in ("authorization", "cookie", "proxy-authorization", "x-api-key", "x-custom")
}


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-grpc", "iat", "iat-ws"])
async def test_nothing_of_grpc_metadata_or_of_iat_reaches_an_agent(
    tmp_path: Path, dialect: str
) -> None:
    grpc_port, own_grpc = own_port() if "grpc" in dialect else 0, own_port()
    (tmp_path / "token").write_text(SHOWN["authorization"].removeprefix("Bearer "))
    callers = {"alice": Known(secret=Secret(file=str(tmp_path / "token")))}
    guarded = settings(tmp_path, grpc_port=own_grpc, auth={"token": Tokens(callers=callers)})
    behind = settings(tmp_path, name="worker", grpc_port=grpc_port)
    async with (
        asyncio.timeout(LIMIT),
        recorded(behind) as (url, seen),
        gateway({"worker": section(tmp_path, url, dialect, grpc_port)}, guarded) as door,
    ):
        host = door.url.partition("://")[2]
        signed = SharedSecret(SECRET, to="worker", me="", beside=Fixed(METADATA))
        for address, auth in (
            (f"a2a+grpc://127.0.0.1:{own_grpc}", Fixed(METADATA)),
            (f"iat+http://{host}/iat", signed),
            (f"iat+ws://{host}/iat/ws", signed),
        ):
            async with connect(address, auth=auth) as caller:
                task = await caller.send("hi", skill="echo")
                assert isinstance(task, Task)
                assert task.text == "HI"
        assert seen
        assert [
            each for each in seen if CANARY in each or "alice" in each or "x-custom" in each
        ] == []
