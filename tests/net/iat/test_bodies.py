"""What a body may cost before it is known whose it is: in IAT its credential may stand in it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest

from dragoman import Agent, connect
from dragoman.client.credentials import SharedSecret
from dragoman.core.auth_schemes import ApiKeys, Known, Secret
from dragoman.net.strangers import MOST_RECENT, RECENT, RecentAddresses
from dragoman.settings import Limits
from net.iat.sub_agent import SECRET, RunningAgent, make_agent, open_server, signed

PATHS = ("/iat", "/a2a", "/a2a/stream")
LIMITS = Limits(hello_size=16_384, hello_time=2.0)
LARGE = "x" * 200_000
KEY = "a-key-of-alice-that-is-long-enough"
os.environ["TEST_KEY_OF_ALICE"] = KEY


class Stranger:
    """A connection by hand: what is sent, how much of it was taken, and what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def head(self, path: str, *headers: str) -> None:
        lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        self._writer.write("\r\n".join((*lines, *headers, "", "")).encode())
        await self._writer.drain()

    async def flood(self, piece: bytes, times: int) -> int:
        """Sends pieces until the other side has enough; how many went off."""
        for sent in range(times):
            try:
                self._writer.write(piece)
                async with asyncio.timeout(1):
                    await self._writer.drain()
            except (OSError, TimeoutError):
                return sent
        return times

    async def status(self) -> int:
        async with asyncio.timeout(60):
            return int((await self._reader.readline()).split()[1])


@asynccontextmanager
async def stranger(server: RunningAgent, local: str = "127.0.0.1") -> AsyncIterator[Stranger]:
    url = httpx2.URL(server.url)
    streams = await asyncio.open_connection(url.host, url.port, local_addr=(local, 0))
    try:
        yield Stranger(*streams)
    finally:
        streams[1].close()
        with suppress(OSError):
            await streams[1].wait_closed()


def guarded_agent() -> Agent:
    agent = make_agent()
    agent.auth["keys"] = ApiKeys(callers={"alice": Known(secret=Secret(env="TEST_KEY_OF_ALICE"))})
    return agent


def hex_of(server: RunningAgent) -> tuple[str, ...]:
    """Headers that look as if somebody had signed something."""
    return f"X-IAT-Timestamp: {int(time.time())}", f"X-IAT-Signature: {'ab' * 32}"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("guarded", [False, True], ids=["secret", "secret and keys"])
async def test_a_large_body_of_a_stranger_is_refused_before_it_comes(
    path: str, guarded: bool
) -> None:
    agent = guarded_agent() if guarded else None
    async with open_server(limits=LIMITS, agent=agent) as server:
        for shown in (
            (),
            ("Authorization: Bearer iat_wrong",),
            ("X-IAT-Token: wrong", "X-API-Key: wrong"),
            hex_of(server),
        ):
            async with stranger(server) as them:
                await them.head(path, "Content-Length: 3000000", *shown)
                assert await them.status() == 401, shown


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_of_a_stranger_without_a_length_is_read_to_the_small_limit(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.net.http.request_body.LEFT_TIME", 0.2)
    async with open_server(limits=LIMITS) as server, stranger(server) as them:
        await them.head(path, "Transfer-Encoding: chunked", *hex_of(server))
        piece = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
        await them.flood(piece, 2)
        assert await them.status() == 401


@pytest.mark.slow  # takes two seconds
async def test_a_body_of_a_stranger_that_trickles_has_the_short_time() -> None:
    async with open_server(limits=LIMITS) as server, stranger(server) as them:
        await them.head("/iat", "Content-Length: 4000", *hex_of(server))
        began = time.monotonic()
        answer = asyncio.create_task(them.status())
        while not answer.done() and time.monotonic() - began < 60:
            await them.flood(b" ", 1)
            await asyncio.wait([answer], timeout=0.3)
        assert await answer in (401, 408)
        # `body_time` is 120 s, and no pause was as long as `body_idle`.
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"x-iat-timestamp": "1000"},
        {"x-iat-timestamp": ""},
        {"x-iat-timestamp": "soon"},
        {"x-iat-signature": "ab"},
        {"x-iat-signature": "zz" * 32},
    ],
)
async def test_a_signature_that_no_body_fits_is_refused_before_the_body(
    wrong: dict[str, str],
) -> None:
    """Even from an address that is known."""
    async with open_server(limits=LIMITS) as server:
        await server.join()
        shown = {**signed(b""), **wrong}
        async with stranger(server) as them:
            lines = [f"{name}: {value}" for name, value in shown.items() if name[0] == "x"]
            await them.head("/iat", "Content-Length: 3000000", *lines)
            assert await them.status() == 401


async def post(server: RunningAgent, said: Any, *, local: str, **headers: str) -> httpx2.Response:
    """From an address of one's own."""
    transport = httpx2.AsyncHTTPTransport(local_address=local)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        content = said if isinstance(said, bytes) else json.dumps(said).encode()
        shown = {"content-type": "application/json", **headers}
        return await client.post(f"{server.url}/iat", content=content, headers=shown)


async def test_whoever_shows_a_credential_in_the_headers_may_send_a_large_body() -> None:
    async with open_server(limits=LIMITS, agent=guarded_agent()) as server:
        await server.join()
        token = server.token
        large = server.envelope("execute", query=LARGE, token="")
        for number, headers in enumerate(
            ({"authorization": f"Bearer {token}"}, {"x-iat-token": token}), 10
        ):
            reply = await post(server, large, local=f"127.0.0.{number}", **headers)
            assert reply.status_code == 200, reply.text[:200]
        mine = server.envelope("execute", query=LARGE, token="", sender="alice")
        reply = await post(server, mine, local="127.0.0.12", **{"x-api-key": KEY})
        assert reply.status_code == 200, reply.text[:200]
        about = {"name": "read_file", "description": LARGE, "parameters": {}, "returns": {}}
        join = server.envelope("register", agent_id="host-9", sender="host-9", tools=[about])
        reply = await post(server, join, local="127.0.0.13", **{"x-iat-token": SECRET})
        assert reply.status_code == 200, reply.text[:200]


async def test_whoever_was_known_at_its_address_may_send_a_large_body() -> None:
    """Real hosts show their token only in the envelope, or sign each message."""
    async with open_server(limits=LIMITS) as server:
        await server.join()
        small, large = (server.envelope("execute", query=text) for text in ("hello", LARGE))
        assert (await post(server, large, local="127.0.0.20")).status_code == 401
        assert (await post(server, small, local="127.0.0.20")).status_code == 200
        assert (await post(server, large, local="127.0.0.20")).status_code == 200
        small, large = (
            json.dumps(server.envelope("execute", query=text, token="")).encode()
            for text in ("hello", LARGE)
        )
        for body, status in ((large, 401), (small, 200), (large, 200)):
            reply = await post(server, body, local="127.0.0.21", **signed(body))
            assert reply.status_code == status
        # What one address proved is no proof of another's, and a wrong message proves nothing.
        wrong = server.envelope("execute", query="hello", token="wrong")
        assert (await post(server, wrong, local="127.0.0.22")).status_code == 401
        async with stranger(server, "127.0.0.22") as them:
            await them.head("/iat", "Content-Length: 3000000")
            assert await them.status() == 401


async def test_where_everybody_is_let_in_everybody_may_send_a_large_body() -> None:
    async with open_server(limits=LIMITS, insecure=True) as server:
        large = server.envelope("execute", query=LARGE)
        assert (await post(server, large, local="127.0.0.30")).status_code == 200


async def test_what_is_asked_before_a_large_body_is_no_call_of_its_own() -> None:
    """The rates count calls, and not how often we look who calls."""
    async with open_server(limits=LIMITS, agent=guarded_agent(), calls_per_minute=4) as server:
        for _ in range(4):
            said = server.envelope("execute", query=LARGE, token="", sender="alice")
            reply = await post(server, said, local="127.0.0.40", **{"x-api-key": KEY})
            assert reply.status_code == 200, reply.text[:200]


async def test_our_own_callers_show_their_session_before_the_body() -> None:
    """A server that was started again does not remember their address."""
    async with open_server(limits=LIMITS) as server:
        url = server.url.replace("http", "iat+http")
        async with connect(url, auth=SharedSecret(SECRET, to="go-agent")) as agent:
            await agent.send("hello")
            server.app.server.recognized = RecentAddresses()
            assert (await agent.send(LARGE)).text == LARGE.upper() + " "


def test_addresses_are_known_for_a_while_and_not_without_end() -> None:
    now = [0.0]
    recent = RecentAddresses(lambda: now[0])
    for number in range(MOST_RECENT + 10):
        recent.add(f"address-{number}")
    assert "address-9" not in recent
    assert "address-10" in recent
    assert "" not in recent
    recent.add("")
    assert "" not in recent
    now[0] = RECENT
    assert "address-10" not in recent
