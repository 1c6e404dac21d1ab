"""Peers that are slow, silent or many: every state of a connection has its limits."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest

from dragoman.net.http.connections import LOOK, Connections, SocketMeter
from dragoman.net.http.descriptors import (
    open_descriptors,
    peer,
    shut_down,
    socket_inode,
    transferred,
)
from dragoman.net.strangers import network_of
from dragoman.settings import Limits
from hostile.frames import ACK, PREFACE, SETTINGS, frame, greeting, head, request
from net.served_peer import RunningServer, call, open_server, post, said
from ports import NEEDS_IPV6
from waiting import pace, stays, until

V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}
HANG = 60.0


HALVES = {
    "nothing": b"",
    "one letter that may begin either version": b"P",
    "half of HTTP/2's preface": PREFACE[:12],
    "the preface without settings": PREFACE,
    "a handshake without a request": greeting(),
    "a request line": b"POST / HTTP/1.1\r\n",
    "half of the headers": b"POST / HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    "half of a header block": greeting() + frame(1, 0, 1, b"\x82\x86"),
}


@asynccontextmanager
async def dialed(
    home: RunningServer, source: str = "127.0.0.1", host: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(
        host, home.port, local_addr=(source, 0), limit=1024
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None = None) -> bytes:
    """Waits until the other side has closed, and returns what it said. With `writer`, the pings of
    HTTP/2 are answered."""
    heard = b""
    async with asyncio.timeout(HANG):
        try:
            while piece := await reader.read(65536):
                heard += piece
                at = piece.find(b"\0\0\x08\x06\0")  # a ping
                if at >= 0 and writer is not None:
                    writer.write(frame(6, ACK, 0, piece[at + 9 : at + 17]))
        except ConnectionError:
            pass
    return heard


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES.keys())
async def test_a_connection_that_never_asks_is_closed(half: bytes) -> None:
    async with open_server(hello_time=0.4) as home, dialed(home) as (reader, writer):
        writer.write(half)
        await ended(reader)
        assert not home.peer.asked


async def test_a_half_handshake_that_trickles_is_closed_all_the_same() -> None:
    async with open_server(hello_time=0.4) as home, dialed(home) as (reader, writer):

        async def trickle() -> None:
            for byte in PREFACE[:-1] * 1000:
                writer.write(bytes([byte]))
                await pace(0.05)

        trickling = asyncio.create_task(trickle())
        await ended(reader)
        trickling.cancel()


@pytest.mark.slow  # takes two seconds
@pytest.mark.parametrize("first", [b"", request(1, head(1))], ids=["no request", "one request"])
async def test_a_flood_of_pings_and_settings_ends_its_connection(first: bytes) -> None:
    async with open_server() as home, dialed(home) as (reader, writer):
        writer.write(greeting() + first)
        reading = asyncio.create_task(ended(reader))
        flood = (frame(6, 0, 0, b"12345678") + frame(SETTINGS, 0, 0)) * 1000
        async with asyncio.timeout(HANG):
            try:
                while not reading.done():
                    writer.write(flood)
                    await writer.drain()
                    await pace(0.01)
            except ConnectionError:
                pass
            await reading
        assert home.listener.connections.shut["loud"] == 1


async def test_an_idle_http_2_connection_that_answers_pings_is_closed() -> None:
    async with open_server(head_time=0.5, stall=20) as home, dialed(home) as (reader, writer):
        writer.write(greeting() + request(1, head(home.port)))
        assert b"ok" in await ended(reader, writer)
        assert home.listener.connections.shut["idle"] == 1


@pytest.mark.slow  # takes three seconds
@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=NEEDS_IPV6)])
async def test_a_running_exchange_keeps_its_connection(host: str) -> None:
    async with open_server(host, hello_time=0.3, head_time=0.3) as home:
        async with dialed(home, host, host) as (reader, writer):
            writer.write(post(call("SendStreamingMessage", said("wait")), "A2A-Version: 1.0"))
            heard, began = b"", time.monotonic()
            while time.monotonic() < began + 3:  # several looks, and three times every limit
                heard = await asyncio.wait_for(reader.read(65536), HANG)
                assert heard
            assert home.peer.open == 1
        await until(lambda: home.peer.open == 0)


@pytest.mark.slow  # takes two seconds
async def test_a_stream_beside_finished_requests_keeps_an_http_2_connection() -> None:
    body = call("SendStreamingMessage", said("wait"))
    fields = head(1, "POST", "/", ("a2a-version", "1.0"), ("content-type", "application/json"))
    async with open_server(hello_time=0.3, head_time=0.3) as home, dialed(home) as (reader, writer):
        fields[2] = (":authority", f"127.0.0.1:{home.port}")
        writer.write(greeting() + request(1, fields, body))
        await until(lambda: home.peer.open == 1)
        writer.write(request(3, head(home.port)))
        began = time.monotonic()
        while time.monotonic() < began + 2:
            assert await asyncio.wait_for(reader.read(65536), HANG)
        assert home.peer.open == 1


def unread_request(home: RunningServer, size: int) -> bytes:
    return post(call("SendMessage", said("x" * size)), "A2A-Version: 1.0")


async def test_answers_that_nobody_reads_do_not_stay() -> None:
    async with open_server(stall=0.5, head_time=0.5) as home, AsyncExitStack() as stack:
        for _ in range(5):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, ("127.0.0.1", home.port))
            stack.callback(sock.close)
            await loop.sock_sendall(sock, unread_request(home, 3_500_000))
        await until(lambda: len(home.peer.tasks) == 5)
        connections = home.listener.connections
        # Whether we or the system are first to see that nobody reads.
        await until(lambda: len(connections._open) == 0 and not connections._latest)


@pytest.mark.parametrize(
    ("size", "streams", "stalled"), [(12_000, (1, 3, 5), 0), (900_000, (1,), 1)], ids=str
)
@pytest.mark.slow  # takes several seconds
async def test_answers_held_back_by_http_2_windows_do_not_stay(
    size: int, streams: tuple[int, ...], stalled: int
) -> None:
    fields = head(1, "POST", "/", ("a2a-version", "1.0"), ("content-type", "application/json"))
    # On a slow machine the request itself takes a while, and must not be what is closed.
    async with open_server(stall=2.0, head_time=2.0) as home, dialed(home) as (reader, writer):
        fields[2] = (":authority", f"127.0.0.1:{home.port}")
        body = call("SendMessage", said("x" * size))
        writer.write(greeting(window=0))
        assert await reader.read(1000)
        # The server's own windows count once its settings are acknowledged.
        writer.write(frame(SETTINGS, ACK, 0) + b"".join(request(n, fields, body) for n in streams))
        await ended(reader, writer)  # one without pongs could be closed before its answer stalls
        assert len(home.peer.tasks) == len(streams)
        assert home.app.server.metrics.streams_stalled == stalled


async def test_a_reader_that_gets_on_is_waited_for() -> None:
    async with open_server(stall=2, head_time=0.4) as home, dialed(home) as (reader, writer):
        writer.write(unread_request(home, 2_000_000))
        heard = 0
        async with asyncio.timeout(HANG):
            while piece := await reader.read(100_000):
                heard += len(piece)
                await pace(0.01)
        assert heard > 2_000_000


async def test_one_address_has_its_share_of_the_connections() -> None:
    async with open_server(connections_per_address=5) as home, AsyncExitStack() as stack:
        taken = []
        for _ in range(20):
            reader, writer = await stack.enter_async_context(dialed(home, "127.0.0.2"))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            taken.append(asyncio.create_task(ended(reader)))
        await until(lambda: sum(task.done() for task in taken) == 15)
        async with httpx2.AsyncClient(base_url=home.url) as client:
            assert (await client.get("/healthz")).status_code == 200
        assert home.listener.connections.shut["share"] == 15
        for task in taken:
            task.cancel()


@pytest.mark.slow  # takes three seconds
async def test_the_share_of_a_trusted_proxy_is_not_limited() -> None:
    async with open_server(connections_per_address=5) as home, AsyncExitStack() as stack:
        connections = home.listener.connections
        connections._exempt = lambda address: address == "127.0.0.2"
        for _ in range(20):
            _, writer = await stack.enter_async_context(dialed(home, "127.0.0.2"))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(connections._open) == 20)
        await stays(lambda: not connections.shut, 2 * LOOK)


async def test_silent_connections_do_not_starve_others_at_the_cap() -> None:
    limits = {"connections": 10, "connections_per_address": 8, "hello_time": 0.5}
    async with open_server(**limits) as home, AsyncExitStack() as stack:
        for _ in range(40):
            _, writer = await stack.enter_async_context(dialed(home, "127.0.0.2"))
            writer.write(b"P")
        async with httpx2.AsyncClient(base_url=home.url, timeout=HANG) as client:
            for _ in range(3):
                assert (await client.get("/healthz")).status_code == 200


def test_an_ipv6_network_counts_as_one_address() -> None:
    assert (
        network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    )
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"


def test_no_more_connections_than_descriptors() -> None:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert Connections(Limits(connections=10**9)).capacity < soft
    assert Connections(Limits(connections=7)).capacity == 7


def test_an_unfinished_message_is_measured_from_the_last_whole_one() -> None:
    meter = SocketMeter(100)
    assert not meter.exceeds(5_000)  # the handshake
    assert not meter.exceeds(5_100)
    assert meter.exceeds(5_101)
    meter.heard += 1
    assert not meter.exceeds(5_101)
    assert meter.exceeds(5_202)


def test_a_connection_that_is_closed_by_now_has_transferred_nothing() -> None:
    with socket.socket() as sock:
        fd = sock.fileno()
    assert transferred(fd) == (0, 0)


def test_descriptors_tell_whose_they_are_and_are_shut_by_name_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as there:
            here, (host, number) = server.accept()
            with here:
                fd, inode = here.fileno(), socket_inode(here.fileno())
                assert fd in open_descriptors()[0]
                assert peer(fd, port) == (host, str(number))
                assert peer(fd, port + 1) is None
                assert peer(there.fileno(), port) is None  # it is the other end
                assert peer(server.fileno(), port) is None
                there.sendall(b"x" * 1000)
                assert here.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
                assert transferred(fd)[1] == 1000
                assert not shut_down(fd, inode + 1, abort=True)
                assert shut_down(fd, inode, abort=False)
                assert there.recv(1) == b""
                assert here.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack(
                    "ii", 0, 0
                )
