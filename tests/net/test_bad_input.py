"""Bad input gets the right error of its dialect, and the next request works."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from net.served_peer import call, open_server, post, said
from waiting import pace, until

GOOD = call("SendMessage", said("hi"))


@pytest.mark.parametrize(
    ("body", "code", "status"),
    [
        (GOOD[:-3], -32700, 200),
        (b"", -32700, 200),
        (b"[" * 1000 + b"]" * 1000, -32700, 200),
        (b'{"a":' * 1000 + b"1" + b"}" * 1000, -32700, 200),
        (GOOD.replace(b'"hi"', b"NaN"), -32700, 200),
        (GOOD.replace(b'"hi"', b'"\xff\xfe"'), -32700, 200),
        (GOOD.replace(b'"hi"', b"17"), -32602, 200),
        (GOOD.replace(b'"parts":[', b'"parts":[1,'), -32602, 200),
        (b'"hello"', -32600, 200),
        (b"[" + GOOD + b"]", -32600, 200),
        (GOOD.replace(b'"id":1', b'"id":{}'), -32600, 200),
        (GOOD.replace(b"SendMessage", b"Sing"), -32601, 200),
        (b'{"pad":"' + b"x" * 20_000 + b'"}', None, 413),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_bodies(body: bytes, code: int | None, status: int) -> None:
    async with open_server(body_size=16_000) as home:
        heard = await home.raw(post(body, "A2A-Version: 1.0"))
        head, _, answer = heard.partition(b"\r\n\r\n")
        assert int(head.split()[1]) == status
        error = msgspec.json.decode(answer)["error"]
        if code is not None:
            assert error["code"] == code
        assert b"200 OK" in await home.raw(post(GOOD, "A2A-Version: 1.0"))


async def test_a_wrong_content_type_is_refused_before_parsing() -> None:
    async with open_server() as home:
        request = post(b"{", "A2A-Version: 1.0").replace(b"application/json", b"text/plain")
        heard = await home.raw(request)
        assert b" 415 " in heard.splitlines()[0]
        assert b"-32005" in heard


async def test_a_body_too_large_is_refused_while_it_streams() -> None:
    async with open_server(body_size=100_000) as home:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        async with asyncio.timeout(60):
            for _ in range(20):  # far less than a body that never ends
                writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
                await pace(0.01)
                if reader._buffer:  # type: ignore[attr-defined]
                    break
            heard = await reader.readuntil(b"}")
        assert b" 413 " in heard.splitlines()[0]
        writer.close()
        assert b"200 OK" in await home.raw(post(GOOD))


async def test_a_declared_length_too_large_is_refused_unread() -> None:
    async with open_server(body_size=1000) as home:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        heard = await home.raw(head + b"Content-Length: 9999999\r\n\r\n")
        assert b" 413 " in heard.splitlines()[0]


@pytest.mark.parametrize("limits", [{"body_idle": 0.3}, {"body_time": 1.0}], ids=str)
async def test_a_half_sent_request_is_told_so(limits: dict[str, float]) -> None:
    async with open_server(**limits) as home:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(post(GOOD, "A2A-Version: 1.0")[:-10])
        if "body_time" in limits:  # never idle for long, but never done either
            # Well before the time is over: what arrives after the answer makes TCP reset the
            # connection, and then the answer may be lost on its way to us.
            for _ in range(4):
                await pace(0.1)
                writer.write(b"x")
        async with asyncio.timeout(60):
            heard = await reader.readuntil(b"}")
        assert b" 408 " in heard.splitlines()[0]
        writer.close()
        assert not home.app.server.deadlines.waits
        assert b"200 OK" in await home.raw(post(GOOD, "A2A-Version: 1.0"))


async def test_a_request_that_breaks_off_leaves_nothing_behind() -> None:
    async with open_server() as home:
        _, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(post(GOOD)[:-10])
        await until(lambda: home.app.server.deadlines.waits)
        writer.close()
        assert b"200 OK" in await home.raw(post(GOOD, "A2A-Version: 1.0"))
        await until(lambda: not home.app.server.deadlines.waits)


async def test_half_sent_headers_are_cut_off() -> None:
    async with open_server(head_time=0.3) as home:
        assert await home.raw(b"POST / HTTP/1.1\r\nHost: localhost\r\n") == b""
        heard = await home.raw(b"POST / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n")
        assert b" 431 " in heard.splitlines()[0]
        assert b"200 OK" in await home.raw(post(GOOD, "A2A-Version: 1.0"))
