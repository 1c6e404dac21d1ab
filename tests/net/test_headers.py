"""Header lists: how large they may be over HTTP/1 and HTTP/2, and what joining them costs."""

from __future__ import annotations

import asyncio
import time

import httpx2
import pytest

from dragoman.net.http.asgi import headers_in
from hostile.frames import bomb, greeting, head, request
from net.served_peer import RunningServer, call, open_server, said

V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}


async def heard_over_http_2(home: RunningServer, frames: bytes, wait: float = 2.0) -> bytes:
    return await home.raw(greeting() + frames, wait)


def test_repeated_headers_are_joined_by_commas_in_their_order() -> None:
    pairs = [(b"a", b"1"), (b"host", b"h"), (b"a", b"2"), (b"b", b""), (b"a", b"3"), (b"b", b"x")]
    assert headers_in(pairs) == {"a": "1, 2, 3", "host": "h", "b": ", x"}


def test_joining_many_headers_takes_linear_time() -> None:
    pairs = [(b"x-bomb", b"b" * 4000)] * 8_000
    began = time.process_time()
    assert len(headers_in(pairs)["x-bomb"]) == 8_000 * 4_002 - 2
    assert time.process_time() - began < 3.0  # a tenth of a second; 13 when it was quadratic


async def test_a_header_bomb_over_http_2_costs_nothing() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        began = time.process_time()
        heard = await heard_over_http_2(home, bomb(home.port, 4_000) + bomb(home.port, 4_000, 3))
        assert b"HTTP/1" not in heard
        assert time.process_time() - began < 2.0  # 24 to 45 s before
        assert not home.peer.asked
        answer = await client.post("/", content=call("SendMessage", said("hi")), headers=V1)
        assert answer.status_code == 200


@pytest.mark.parametrize("http2", [False, True], ids=["http/1.1", "http/2"])
async def test_headers_below_the_limit_are_served_and_above_it_refused(http2: bool) -> None:
    async with (
        open_server(head_size=8192) as home,
        httpx2.AsyncClient(base_url=home.url, http2=http2, http1=not http2) as client,
    ):
        body = call("SendMessage", said("hi"))
        fits = await client.post("/", content=body, headers={**V1, "x-long": "x" * 7_400})
        assert fits.status_code == 200
        asked = len(home.peer.asked)
        try:
            big = await client.post("/", content=body, headers={**V1, "x-long": "x" * 16_000})
            assert big.status_code == 431
        except httpx2.TransportError:
            pass  # closed without a word
        assert len(home.peer.asked) == asked


async def test_a_peer_that_answers_no_ping_is_left_over_http_2() -> None:
    async with open_server(stall=1, head_time=1) as home:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(greeting() + request(1, head(home.port)))
        heard = b""
        async with asyncio.timeout(60):
            while piece := await reader.read(65536):
                heard += piece
        assert b"ok" in heard
        writer.close()
