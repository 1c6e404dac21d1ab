"""Streams over real sockets: joined writes, early and late errors, readers that leave or stall."""

from __future__ import annotations

import asyncio
import socket

import httpx2
import msgspec
import pytest

from dragoman.dialects import sse
from net.served_peer import RunningServer, call, open_server, post, said, said_0_3
from waiting import until

V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}
V0 = {"Content-Type": "application/json"}


def stream(text: str, **more: str) -> bytes:
    headers = [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return post(call("SendStreamingMessage", said(text)), "A2A-Version: 1.0", *headers)


async def open_streams(home: RunningServer, count: int) -> None:
    """Waits until so many streams are open, no more and no fewer."""
    await until(lambda: home.peer.open == len(home.app.server.streams) == count)


async def test_events_carry_their_place_and_ready_ones_leave_together() -> None:
    async with open_server() as home:
        heard = await home.raw(stream("count 20"))
        head, _, body = heard.partition(b"\r\n\r\n")
        assert b"content-type: text/event-stream" in head
        assert b"cache-control: no-cache" in head
        assert b"x-accel-buffering: no" in head
        assert body.count(b"data:") == 22
        ids = [line for line in body.splitlines() if line.startswith(b"id:")]
        assert [int(line[3:]) for line in ids] == [*range(1, 22), 99]
        # Chunked framing shows the writes: the first event, the twenty together, the last.
        sizes = [line for line in body.split(b"\r\n") if line and b":" not in line]
        assert len(sizes) == 4  # and the closing 0


async def test_an_error_before_the_first_event_is_a_plain_answer() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        answer = await client.post("/", content=call("SubscribeToTask", {"id": "no"}), headers=V1)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["code"] == -32001
        crash = await client.post(
            "/", content=call("SendStreamingMessage", said("crash")), headers=V1
        )
        assert crash.json()["error"]["code"] == -32603
        await open_streams(home, 0)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/resubscribe", {"id": "no"}, -32001),
        ("message/stream", said_0_3("crash"), -32603),
        ("message/stream", {"message": {"role": "user"}}, -32602),
        ("message/stream", [1], -32602),
    ],
    ids=str,
)
async def test_a_stream_that_0_3_refuses_is_a_stream_with_one_error(
    method: str, params: object, code: int
) -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        answer = await client.post("/", content=call(method, params), headers=V0)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        (event,) = sse.SseParser().feed(answer.content)
        told = msgspec.json.decode(event.body)
        assert (told["id"], told["error"]["code"]) == (1, code)
        await open_streams(home, 0)


async def test_what_http_refuses_itself_is_no_stream_in_0_3_either() -> None:
    async with open_server(streams=0) as home, httpx2.AsyncClient(base_url=home.url) as client:
        many = await client.post("/", content=call("message/stream", said_0_3("hi")), headers=V0)
        assert (many.status_code, many.headers["content-type"]) == (429, "application/json")
        assert many.json()["id"] == 1


async def test_a_method_that_does_not_stream_is_refused_plainly_in_0_3() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        lost = await client.post("/", content=call("tasks/get", {"id": "no"}), headers=V0)
        assert lost.headers["content-type"] == "application/json"
        assert lost.json()["error"]["message"].startswith("Task not found: ")


async def test_an_error_after_it_is_an_event() -> None:
    async with open_server() as home:
        heard = await home.raw(stream("crash later"))
        assert b"200 OK" in heard
        assert heard.count(b"data:") == 2
        assert b"-32603" in heard
        assert b"secret words" not in heard
        assert heard.endswith(b"0\r\n\r\n")
        await open_streams(home, 0)


@pytest.mark.slow  # silence of three seconds
async def test_silence_is_filled_with_comments() -> None:
    async with open_server() as home:
        heard = await home.raw(stream("wait"), wait=3)
        assert heard.count(b": keep-alive\n") > 2
        assert b": keep-alive\n\n" not in heard
        await open_streams(home, 0)


async def test_a_reader_that_leaves_ends_its_stream_at_once() -> None:
    async with open_server() as home:
        _, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(stream("wait"))
        await open_streams(home, 1)
        writer.close()
        await open_streams(home, 0)


async def test_a_reader_that_never_reads_holds_little_and_is_closed() -> None:
    async with open_server(stall=0.5) as home:
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            lazy.connect(("127.0.0.1", home.port))
            lazy.sendall(stream("flood"))
            await open_streams(home, 1)
            await open_streams(home, 0)
            sent = home.app.server.metrics.events
            assert sent * 65536 < 16 * 1024 * 1024  # what the kernel's buffers took, and no more
            assert home.app.server.metrics.streams_stalled == 1
        assert b"200 OK" in await home.raw(stream("count 1"))


async def test_streams_are_limited() -> None:
    async with open_server(streams=1) as home, httpx2.AsyncClient(base_url=home.url) as client:
        _, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(stream("wait"))
        await open_streams(home, 1)
        refused = await client.post(
            "/", content=call("SendStreamingMessage", said("hi")), headers=V1
        )
        assert refused.status_code == 429
        assert "error" in refused.json()
        answer = await client.post("/", content=call("SendMessage", said("hi")), headers=V1)
        assert answer.status_code == 200
        writer.close()
        await open_streams(home, 0)


async def test_stopping_ends_open_streams() -> None:
    async with open_server() as home:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(stream("wait"))
        await open_streams(home, 1)
        await home.app.stop()
        async with asyncio.timeout(60):
            heard = await reader.read()
        assert heard.endswith(b"0\r\n\r\n")
        await open_streams(home, 0)
        assert home.peer.stopped_with == 3.0
        writer.close()
