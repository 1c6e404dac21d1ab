"""Who is refused before its body came can go on asking on the same connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx2
import pytest

from dragoman.net.http.asgi import LEFT_SIZE
from security.guarded_server import House, open_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house


@asynccontextmanager
async def line(house: House) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    url = house.client.base_url
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
    house: House, path: str, chunked: bool
) -> None:
    size = "transfer-encoding: chunked" if chunked else "content-length: 2"
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{size}\r\n"
    head += "content-type: application/json\r\n\r\n"
    body = b"2\r\n{}\r\n0\r\n\r\n" if chunked else b"{}"
    async with line(house) as (reader, writer):
        for _ in range(3):
            writer.write(head.encode())
            await asyncio.sleep(0.05)  # long enough to be refused by the head alone
            writer.write(body)
            status, told = await heard(reader)
            assert status == (404 if path == "/nowhere" else 401)
            assert b"connection: close" not in told


async def test_who_has_much_to_say_hears_that_the_connection_ends(house: House) -> None:
    head = f"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {LEFT_SIZE + 1}\r\n\r\n"
    async with line(house) as (reader, writer):
        writer.write(head.encode())
        status, told = await heard(reader)
        assert (status, b"connection: close" in told) == (401, True)
        async with asyncio.timeout(60):
            assert await reader.read() == b""


@pytest.mark.slow  # hundreds of requests
@pytest.mark.parametrize("known", [True, False], ids=["known", "refused"])
async def test_one_http2_connection_carries_many_requests(house: House, known: bool) -> None:
    """An answer before the end of its request would be a reset (RFC 9113 §8.1)."""
    left = iter(range(640))
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    headers = {"a2a-version": "1.0"}
    if known:
        headers["authorization"] = f"Bearer {house.token()}"

    async def work(client: httpx2.AsyncClient) -> set[int]:
        return {
            (await client.post("/message:send", json=body, headers=headers)).status_code
            for _ in left
        }

    url = house.client.base_url
    async with (
        httpx2.AsyncClient(base_url=url, http1=False, http2=True, timeout=60) as client,
        asyncio.TaskGroup() as group,
    ):
        workers = [group.create_task(work(client)) for _ in range(64)]
    assert set().union(*(worker.result() for worker in workers)) == {200 if known else 401}
