"""The gRPC port: every state of a connection has its limits, as on the HTTP port."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hpack import Decoder

from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.observability.log import Log
from dragoman.server.app import App, engine_for
from dragoman.settings import Limits, Server, Settings
from hostile.frames import (
    ACK,
    DATA,
    END_STREAM,
    HEADERS,
    MOST_DATA,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    greeting,
    head,
    request,
)
from ports import NEEDS_IPV6
from waiting import until

from .conftest import Caller, agent, state

HANG = 60.0
SEND = "/lf.a2a.v1.A2AService/SendMessage"
CALLED = ("content-type", "application/grpc"), ("te", "trailers")


class Peer:
    """A connection that knows HTTP/2 well enough to seem alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard = 0
        self.credit: defaultdict[int, int] = defaultdict(lambda: 65_535)
        """Bytes that the other side takes now on each stream, and (0) on all together."""

    async def ended(self) -> None:
        """Acknowledges settings and answers pings until the other side has closed."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            async with asyncio.timeout(HANG):
                while True:
                    top = await self.reader.readexactly(9)
                    body = await self.reader.readexactly(int.from_bytes(top[:3], "big"))
                    self.heard += len(body)
                    if top[3] == WINDOW_UPDATE:
                        self.credit[int.from_bytes(top[5:], "big")] += int.from_bytes(body, "big")
                    if top[3] in (PING, SETTINGS) and not top[4] & ACK:
                        said = body if top[3] == PING else b""
                        self.writer.write(frame(top[3], ACK, 0, said))

    async def upload(self, app: App, stream: int, fields: bytes, pause: float = 0.0) -> None:
        """A whole call, as fast as it is taken; or in twenty pieces with a pause after each."""
        asked = head(app.ports["grpc"], "POST", SEND, *CALLED)
        self.writer.write(request(stream, asked, b"?").removesuffix(frame(DATA, 1, stream, b"?")))
        body = b"\0" + struct.pack(">I", len(fields)) + fields
        piece = min(MOST_DATA, len(body) // 20 or 1)
        async with asyncio.timeout(HANG):
            while body:
                now = min(piece, self.credit[0], self.credit[stream])
                said, body = body[:now], body[now:]
                self.credit[0] -= now
                self.credit[stream] -= now
                if said:
                    self.writer.write(frame(DATA, 0 if body else END_STREAM, stream, said))
                await asyncio.sleep(pause or 0.001)  # the pace of the upload


@asynccontextmanager
async def dialed(app: App, source: str = "127.0.0.1") -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", app.ports["grpc"], local_addr=(source, 0)
    )
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


def sent(text: str) -> bytes:
    """A SendMessageRequest of 1.0."""
    from google.protobuf.message_factory import GetMessageClass

    from dragoman.dialects.a2a.proto import POOL

    kind = GetMessageClass(POOL.FindMessageTypeByName("lf.a2a.v1.SendMessageRequest"))
    said = {"message_id": "m", "role": 1, "parts": [{"text": text}]}
    return bytes(kind(message=said).SerializeToString())


def half_message(app: App) -> bytes:
    """The head of a call, and the begin of a message that never comes whole."""
    asked = request(1, head(app.ports["grpc"], "POST", SEND, *CALLED), b"\0\0\0\x10\0" + b"x" * 9)
    top = bytearray(asked)
    top[asked.index(struct.pack(">BBI", DATA, END_STREAM, 1)) + 1] = 0  # it does not end
    return greeting() + bytes(top)


HALVES = {
    "nothing": lambda app: b"",
    "half of HTTP/2's preface": lambda app: PREFACE[:12],
    "the preface without settings": lambda app: PREFACE,
    "a handshake without a call": lambda app: greeting(),
    "half of a header block": lambda app: greeting() + frame(HEADERS, 0, 1, b"\x82\x86"),
    "half of a message": half_message,
}


@pytest.mark.parametrize("limits", [Limits(hello_time=1.0)])
@pytest.mark.parametrize("half", HALVES)
async def test_a_connection_that_never_asks_is_closed(app: App, half: str) -> None:
    async with dialed(app) as peer:
        peer.writer.write(HALVES[half](app))
        await peer.ended()


@pytest.mark.parametrize("limits", [Limits(head_time=0.5)])
async def test_an_idle_connection_that_answers_pings_is_closed(app: App) -> None:
    async with dialed(app) as peer:
        peer.writer.write(greeting())
        ending = asyncio.create_task(peer.ended())
        await peer.upload(app, 1, sent("hello"))
        await ending
        assert peer.heard > 100


@pytest.mark.parametrize("limits", [Limits(head_time=0.5, stall=1.0)])
async def test_answers_held_back_by_windows_do_not_stay(app: App) -> None:
    async with dialed(app) as peer:
        peer.writer.write(greeting(window=0))
        ending = asyncio.create_task(peer.ended())
        await peer.upload(app, 1, sent("x" * 900_000))
        await ending
        assert peer.heard < 10_000


@pytest.mark.parametrize("limits", [Limits(connections_per_address=5)])
async def test_one_address_has_its_share_of_the_connections(app: App) -> None:
    async with AsyncExitStack() as stack:
        ends = []
        for _ in range(15):
            peer = await stack.enter_async_context(dialed(app, "127.0.0.2"))
            peer.writer.write(greeting())
            ends.append(asyncio.create_task(peer.ended()))
        for end in asyncio.as_completed(ends):
            await end
            if sum(each.done() for each in ends) >= 10:
                break
        async with grpc.aio.insecure_channel(f"127.0.0.1:{app.ports['grpc']}") as channel:
            assert state(await Caller(channel, "1.0").send("hello")) == "COMPLETED"
        for end in ends:
            end.cancel()


@pytest.mark.parametrize("limits", [Limits(http2_streams=10)])
async def test_a_connection_has_only_so_many_calls_at_once(app: App) -> None:
    async with dialed(app) as peer:
        peer.writer.write(greeting())
        while (top := await asyncio.wait_for(peer.reader.readexactly(9), HANG))[3] != SETTINGS:
            await peer.reader.readexactly(int.from_bytes(top[:3], "big"))
        body = await peer.reader.readexactly(int.from_bytes(top[:3], "big"))
        told = dict(struct.iter_unpack(">HI", body))
        assert told[3] == 10  # SETTINGS_MAX_CONCURRENT_STREAMS


@pytest.mark.slow  # takes two seconds
@pytest.mark.parametrize("limits", [Limits(hello_time=0.5, head_time=0.5)])
async def test_a_running_call_keeps_its_connection(app: App, channel: grpc.aio.Channel) -> None:
    """A stream of ours, and the watch of the health service, four times as long as any limit."""
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert await watch.read()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{app.ports['grpc']}") as other:
        stream = Caller(other, "1.0").stream("go", "slow")
        began = time.monotonic()
        while time.monotonic() < began + 2:
            assert await stream.read() is not grpc.aio.EOF
        stream.cancel()
    assert not watch.done()
    watch.cancel()


@pytest.mark.slow  # takes longer than limits that a loaded machine keeps
@pytest.mark.parametrize("limits", [Limits(hello_time=4.0, head_time=4.0)])
@pytest.mark.parametrize("before", [0, 1])
async def test_a_long_message_may_take_its_time(app: App, before: int) -> None:
    """Whether it is the first of its connection or not."""
    async with dialed(app) as peer:
        peer.writer.write(greeting())
        ending = asyncio.create_task(peer.ended())
        for stream in range(1, 1 + 2 * before, 2):
            await peer.upload(app, stream, sent("a"))
        await peer.upload(app, 9, sent("x" * 300_000), 0.3)  # six seconds for all of it
        await until(lambda: peer.heard >= 50_000 or ending.done())
        assert peer.heard >= 50_000
        ending.cancel()


async def refusal(peer: Peer) -> dict[str, str]:
    """What the first headers of an answer say."""
    decoder = Decoder()
    async with asyncio.timeout(HANG):
        while True:
            top = await peer.reader.readexactly(9)
            body = await peer.reader.readexactly(int.from_bytes(top[:3], "big"))
            if top[3] == SETTINGS and not top[4] & ACK:
                peer.writer.write(frame(SETTINGS, ACK, 0, b""))
            if top[3] == HEADERS:
                return {str(name): str(value) for name, value, *_ in decoder.decode(body)}


@pytest.mark.parametrize("rpc", ["SendMessage", "SendStreamingMessage"])
async def test_a_stranger_is_refused_before_its_message_has_come(
    rpc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_GRPC_TOKEN", "a-token-of-ann-0123456789")
    tokens = Tokens(callers={"ann": Known(secret=Secret(env="TEST_GRPC_TOKEN"))})
    settings = Settings(
        server=Server(grpc=True, grpc_port=0, store="memory:"), auth={"robots": tokens}
    )
    app = App(agent, engine_for(agent, settings), settings, Log("error"), "http://127.0.0.1:1")
    await app.start()
    try:
        for shown in ((), (("authorization", "Bearer wrong"),)):
            async with dialed(app) as peer:
                path = f"/lf.a2a.v1.A2AService/{rpc}"
                asked = head(app.ports["grpc"], "POST", path, *CALLED, *shown)
                # Of a message of 3 MB there are ten bytes.
                said = b"\0" + struct.pack(">I", 3_000_000) + b"x" * 10
                whole = request(1, asked, said)
                half = whole.removesuffix(frame(DATA, END_STREAM, 1, said))
                peer.writer.write(greeting() + half + frame(DATA, 0, 1, said))
                told = await refusal(peer)
                assert told["grpc-status"] == str(grpc.StatusCode.UNAUTHENTICATED.value[0])
        async with grpc.aio.insecure_channel(f"127.0.0.1:{app.ports['grpc']}") as channel:
            caller = Caller(channel, "1.0")
            large = caller.request(caller.message("x" * 1_500_000))
            known = (("authorization", "Bearer a-token-of-ann-0123456789"),)
            answer = await caller.method("SendMessage")(large, metadata=known)
            assert state(answer.task) == "COMPLETED"
    finally:
        await app.stop()


@pytest.mark.parametrize("limits", [Limits(body_time=1.0)])
async def test_a_message_has_the_time_of_a_body(app: App) -> None:
    async with dialed(app) as peer:
        peer.writer.write(half_message(app))
        # Its connection would have ten seconds for its first call.
        assert (await refusal(peer))["grpc-status"] == str(
            grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
        )


@pytest.mark.parametrize("rpc", ["SendMessage", "SendStreamingMessage"])
async def test_a_call_without_a_message_is_refused(app: App, rpc: str) -> None:
    async with dialed(app) as peer:
        asked = head(app.ports["grpc"], "POST", f"/lf.a2a.v1.A2AService/{rpc}", *CALLED)
        peer.writer.write(greeting() + request(1, asked))
        assert (await refusal(peer))["grpc-status"] not in ("0", "13")  # INTERNAL


@pytest.mark.slow  # takes two seconds
@NEEDS_IPV6
@pytest.mark.parametrize(
    ("host", "called"), [("::1", "[::1]"), ("::", "[::1]"), ("::", "127.0.0.1")]
)
async def test_the_limits_hold_over_ipv6(
    host: str, called: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is known again by the address that gRPC tells of it, or its call would count as
    silence; and one that is silent is closed."""
    monkeypatch.setattr("dragoman.server.app.GRACE", 0.2)  # its run need not be waited for
    settings = Settings(
        server=Server(host=host, grpc=True, grpc_port=0, store="memory:", insecure=True),
        limits=Limits(hello_time=0.5, head_time=0.5),
    )
    app = App(agent, engine_for(agent, settings), settings, Log("error"), "http://127.0.0.1:1")
    await app.start()
    try:
        reader, writer = await asyncio.open_connection(called.strip("[]"), app.ports["grpc"])
        async with grpc.aio.insecure_channel(f"{called}:{app.ports['grpc']}") as channel:
            stream = Caller(channel, "1.0").stream("go", "slow")
            began = time.monotonic()
            while time.monotonic() < began + 2:
                assert await stream.read() is not grpc.aio.EOF
            stream.cancel()
        async with asyncio.timeout(HANG):
            with suppress(ConnectionError):
                while await reader.read(1000):
                    pass
        writer.close()
    finally:
        await app.stop()
