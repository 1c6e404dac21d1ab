"""Who is refused before its body came can go on asking on the same connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman.core.auth_schemes import Secret
from dragoman.net.http import request_body
from dragoman.net.http.request_body import LEFT_HTTP2, LEFT_SIZE
from dragoman.settings import Iat, Limits
from security.guarded_server import GuardedServer, open_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[GuardedServer]:
    async with open_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def line(
    server: GuardedServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    url = server.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    with closing(writer):
        yield reader, writer


async def heard(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and head of the next answer; its body is read too."""
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
    return int(head.split()[1]), head.lower()


@pytest.mark.parametrize("path", ["/", "/message:send", "/a2a-go", "/iat", "/nowhere"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
async def test_the_connection_serves_the_next_request(
    server: GuardedServer, path: str, chunked: bool
) -> None:
    size = "transfer-encoding: chunked" if chunked else "content-length: 2"
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{size}\r\n"
    head += "content-type: application/json\r\n\r\n"
    body = b"2\r\n{}\r\n0\r\n\r\n" if chunked else b"{}"
    async with line(server) as (reader, writer):
        for _ in range(3):
            writer.write(head.encode())
            await asyncio.sleep(0.05)  # long enough to be refused by the head alone
            writer.write(body)
            status, told = await heard(reader)
            assert status == (404 if path == "/nowhere" else 401)
            assert b"connection: close" not in told


async def test_who_has_much_to_say_hears_that_the_connection_ends(server: GuardedServer) -> None:
    head = f"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {LEFT_SIZE + 1}\r\n\r\n"
    async with line(server) as (reader, writer):
        writer.write(head.encode())
        status, told = await heard(reader)
        assert (status, b"connection: close" in told) == (401, True)
        async with asyncio.timeout(60):
            assert await reader.read() == b""


SMALL = 10_000
"""Bytes of a body that the server of the next tests reads, of a stranger's IAT message too."""
os.environ["TEST_IAT_SECRET_OF_REFUSED"] = "a-secret-of-iat-that-is-long-enough"


@asynccontextmanager
async def open_strict_server(
    folder: Path, path: str, **limits: float
) -> AsyncIterator[GuardedServer]:
    sections: dict[str, Any] = {
        "limits": Limits(**{"hello_size" if path == "/iat" else "body_size": SMALL}, **limits),
        "iat": Iat(secret=Secret(env="TEST_IAT_SECRET_OF_REFUSED")),
    }
    async with open_server(folder, **sections) as server:
        yield server


def head_of(server: GuardedServer, path: str, size: int, *, chunked: bool) -> bytes:
    """The head of a request that is refused for its body: for its size or, in IAT, for its size
    from a stranger."""
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    lines.append("transfer-encoding: chunked" if chunked else f"content-length: {size}")
    if path != "/iat":
        lines.append(f"authorization: Bearer {server.token()}")
    return "\r\n".join((*lines, "", "")).encode()


PATHS = pytest.mark.parametrize(
    ("path", "code"), [("/", 413), ("/message:send", 413), ("/iat", 401)]
)
CHUNKED = pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])


@PATHS
@CHUNKED
async def test_a_body_that_is_a_little_too_large_leaves_the_connection_as_it_is(
    tmp_path: Path, path: str, code: int, chunked: bool
) -> None:
    size = 2 * SMALL
    body = b" " * size
    if chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
    async with open_strict_server(tmp_path, path) as server, line(server) as (reader, writer):
        for _ in range(3):
            writer.write(head_of(server, path, size, chunked=chunked) + body)
            status, told = await heard(reader)
            assert (status, b"connection: close" in told) == (code, False)


@PATHS
@CHUNKED
async def test_a_body_that_is_much_too_large_ends_the_connection_and_the_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, code: int, chunked: bool
) -> None:
    """At once, not when it is found to be idle."""
    monkeypatch.setattr(request_body, "LEFT_TIME", 0.2)
    async with (
        open_strict_server(tmp_path, path, head_time=3600) as server,
        line(server) as (reader, writer),
    ):
        writer.write(head_of(server, path, 10 * LEFT_SIZE, chunked=chunked))
        if chunked:  # and it never ends
            writer.write(b"%x\r\n%b\r\n" % (2 * SMALL, b" " * 2 * SMALL))
        status, told = await heard(reader)
        assert (status, b"connection: close" in told) == (code, True)
        async with asyncio.timeout(60):
            assert await reader.read() == b""


async def test_a_body_that_is_too_slow_ends_the_connection_and_the_answer_says_so(
    tmp_path: Path,
) -> None:
    async with (
        open_server(tmp_path, limits=Limits(body_idle=0.3, head_time=3600)) as server,
        line(server) as (reader, writer),
    ):
        writer.write(head_of(server, "/", 100, chunked=False) + b"{")
        status, told = await heard(reader)
        assert (status, b"connection: close" in told) == (408, True)
        async with asyncio.timeout(60):
            assert await reader.read() == b""


@PATHS
@pytest.mark.parametrize("sized", [True, False], ids=["length", "no length"])
async def test_over_http2_a_refusal_is_seen_by_whoever_has_more_to_send(
    tmp_path: Path, path: str, code: int, sized: bool
) -> None:
    """Where the client would only see a reset if the answer came before the end of its request."""
    body = b" " * (LEFT_HTTP2 - 100_000)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 16_384):
            yield body[at : at + 16_384]

    async with open_strict_server(tmp_path, path) as server:
        headers = {"content-type": "application/json"}
        if path != "/iat":
            headers["authorization"] = f"Bearer {server.token()}"
        url = server.client.base_url
        async with httpx2.AsyncClient(base_url=url, http1=False, http2=True, timeout=60) as client:
            for shown in (headers, {"content-type": "application/json"}):
                told = await client.post(path, content=body if sized else pieces(), headers=shown)
                assert told.status_code == (code if shown is headers else 401), told.text
            told = await client.post("/nowhere", content=body if sized else pieces())
            assert told.status_code == 404


@pytest.mark.slow  # hundreds of requests
@pytest.mark.parametrize("known", [True, False], ids=["known", "refused"])
async def test_one_http2_connection_carries_many_requests(
    server: GuardedServer, known: bool
) -> None:
    """An answer before the end of its request would be a reset (RFC 9113 §8.1)."""
    left = iter(range(640))
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    headers = {"a2a-version": "1.0"}
    if known:
        headers["authorization"] = f"Bearer {server.token()}"

    async def work(client: httpx2.AsyncClient) -> set[int]:
        return {
            (await client.post("/message:send", json=body, headers=headers)).status_code
            for _ in left
        }

    url = server.client.base_url
    async with (
        httpx2.AsyncClient(base_url=url, http1=False, http2=True, timeout=60) as client,
        asyncio.TaskGroup() as group,
    ):
        workers = [group.create_task(work(client)) for _ in range(64)]
    assert set().union(*(worker.result() for worker in workers)) == {200 if known else 401}
