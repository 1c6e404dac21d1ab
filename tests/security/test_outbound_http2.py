"""HTTP/2 of the one HTTP client: one connection for all requests, as long as it lasts."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from dragoman.security.outbound.failures import explained, was_sent
from dragoman.security.outbound.guarded_http import HttpStream, Unreachable
from security.certs import Authority
from security.raw_server import (
    LIMIT,
    Peer,
    Server,
    Talk,
    client,
    get,
    on_both_loops,
    polite,
)
from waiting import until


class Http2Peer:
    """Answers requests over HTTP/2, each with `hi`; those to `/wait` when it is told to."""

    def __init__(
        self, peer: Peer, *, last: int = 0, streams: int | None = None, refuses: int = 0
    ) -> None:
        """`last` is the number of requests after which the server leaves, `streams` the limit that
        it announces, and `refuses` the number of requests that it does not process."""
        self._peer, self._last, self._refuses = peer, last, refuses
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        del self._h2.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS]
        self._h2.local_settings.acknowledge()
        if streams is not None:
            self._h2.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = streams
            self._h2.local_settings.acknowledge()
        self.waiting: list[int] = []
        self.reset: list[int] = []
        self.sizes: list[int] = []

    async def serve(self) -> None:
        self._h2.initiate_connection()
        await self._peer.answer(self._h2.data_to_send())
        count = 0
        paths: dict[int, bytes] = {}
        sizes: dict[int, int] = {}
        while data := await self._peer.reader.read(65536):
            for event in self._h2.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    paths[event.stream_id] = dict(event.headers)[b":path"]
                    sizes[event.stream_id] = 0
                elif isinstance(event, h2.events.DataReceived):
                    sizes[event.stream_id] += len(event.data)
                    length = event.flow_controlled_length
                    self._h2.acknowledge_received_data(length, event.stream_id)
                elif isinstance(event, h2.events.StreamReset):
                    self.reset.append(event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    count += 1
                    self.sizes.append(sizes[event.stream_id])
                    self._answer(event.stream_id, paths[event.stream_id])
            leaves = count == self._last > 0
            if leaves:
                self._h2.close_connection()
            await self._peer.answer(self._h2.data_to_send())
            if leaves:
                return

    def _answer(self, stream: int, path: bytes) -> None:
        if self._refuses:
            self._refuses -= 1
            self._h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
        elif path == b"/wait":
            self._h2.send_headers(stream, [(":status", "200")])
            self.waiting.append(stream)
        elif path != b"/silent":
            self._h2.send_headers(stream, [(":status", "200"), ("content-length", "2")])
            self._h2.send_data(stream, b"hi", end_stream=True)

    async def end(self) -> None:
        """Ends what waits."""
        for stream in self.waiting:
            self._h2.send_data(stream, b"at last", end_stream=True)
        self.waiting.clear()
        await self._peer.answer(self._h2.data_to_send())

    async def send(self, stream: int, data: bytes) -> None:
        """Sends so much of an answer that waits, as the windows allow."""
        while data and (size := min(self._h2.local_flow_control_window(stream), 16_384)):
            self._h2.send_data(stream, data[:size])
            data = data[size:]
        await self._peer.answer(self._h2.data_to_send())


async def multiplexing(peer: Peer) -> None:
    await Http2Peer(peer).serve()


async def leaving(peer: Peer) -> None:
    await Http2Peer(peer, last=1).serve()


def serving(peers: list[Http2Peer], **about: Any) -> Talk:
    """A server whose connections are kept in `peers`."""

    async def talk(peer: Peer) -> None:
        peers.append(Http2Peer(peer, **about))
        await peers[-1].serve()

    return talk


async def read_all(stream: HttpStream) -> bytes:
    return b"".join([chunk async for chunk in stream.chunks])


@on_both_loops
async def test_requests_at_once_share_one_connection() -> None:
    async with Server(multiplexing) as server, client(prior_knowledge=True) as http:
        for _ in range(2):
            replies = await asyncio.gather(*(get(http, server.url) for _ in range(8)))
            assert [reply.body for reply in replies] == [b"hi"] * 8
        assert len(server.peers) == 1


@on_both_loops
async def test_two_servers_do_not_share_one() -> None:
    async with (
        Server(multiplexing) as one,
        Server(multiplexing) as two,
        client(prior_knowledge=True) as http,
    ):
        for server in (one, two, one, two):
            assert (await get(http, server.url)).body == b"hi"
        assert len(one.peers) == len(two.peers) == 1


@on_both_loops
async def test_a_server_that_leaves_with_its_answer_has_answered() -> None:
    """And the next request goes over a new connection, not into the void."""
    async with Server(leaving) as server, client(prior_knowledge=True) as http:
        for count in range(1, 5):
            assert (await get(http, server.url)).body == b"hi"
            async with asyncio.timeout(LIMIT):
                await server.peers[-1].writer.wait_closed()
            assert len(server.peers) == count


@on_both_loops
async def test_a_server_that_only_speaks_http1_is_asked_once(tmp_path: Path) -> None:
    """Requests that come together wait for the first connection, and for no more than that."""
    ours = Authority(tmp_path, "ours")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*ours.issue("localhost"))
    context.set_alpn_protocols(["http/1.1"])
    trust = ssl.create_default_context(cafile=ours.ca)
    async with (
        Server(polite, context) as server,
        client(http2=True, tls=lambda origin: trust) as http,
    ):
        for _ in range(2):
            replies = await asyncio.gather(*(get(http, server.url) for _ in range(8)))
            assert [reply.body for reply in replies] == [b"hi"] * 8
        assert 1 < len(server.peers) <= 8


@on_both_loops
async def test_a_server_without_a_limit_has_none() -> None:
    peers: list[Http2Peer] = []
    async with Server(serving(peers)) as server, client(prior_knowledge=True) as http:
        target = http.target(f"{server.url}wait")
        waiting = [await http.begin("GET", target, idle=LIMIT) for _ in range(150)]
        assert (await get(http, server.url)).body == b"hi"
        assert len(peers) == 1
        await peers[0].end()
        assert [await read_all(each) for each in waiting] == [b"at last"] * 150


@on_both_loops
async def test_when_no_stream_is_free_another_connection_is_opened() -> None:
    peers: list[Http2Peer] = []
    talk = serving(peers, streams=2)
    async with Server(talk) as server, client(prior_knowledge=True) as http:
        target = http.target(f"{server.url}wait")
        waiting = await asyncio.gather(
            *(http.begin("GET", target, idle=LIMIT, connect=LIMIT) for _ in range(7))
        )
        assert (await get(http, server.url)).body == b"hi"
        assert len(peers) == 4
        for peer in peers:
            await peer.end()
        assert [await read_all(each) for each in waiting] == [b"at last"] * 7
        for each in waiting:
            await each.close()
        for _ in range(10):
            assert (await get(http, server.url)).body == b"hi"
        assert len(peers) == 4  # those that are there are used again


@on_both_loops
async def test_waiting_for_a_stream_has_a_deadline() -> None:
    peers: list[Http2Peer] = []
    talk = serving(peers, streams=1)
    async with Server(talk) as server, client(prior_knowledge=True, connections=1) as http:
        target = http.target(f"{server.url}wait")
        first = await http.begin("GET", target, idle=LIMIT)
        with pytest.raises(Unreachable) as caught:
            await http.begin("GET", target, idle=LIMIT, connect=0.2)
        assert not was_sent(caught.value)
        assert explained(caught.value, "http://a.example").endswith(
            "all 1 streams that it allows at once are in use, and none became free in 0.2 s"
        )
        second = asyncio.ensure_future(http.begin("GET", target, idle=LIMIT, connect=LIMIT))
        await first.close()  # makes room for the second
        await (await second).close()
        assert len(peers) == 1


@on_both_loops
async def test_a_response_that_is_given_up_is_reset() -> None:
    peers: list[Http2Peer] = []
    async with Server(serving(peers)) as server, client(prior_knowledge=True) as http:
        stream = await http.begin("GET", http.target(f"{server.url}wait"), idle=LIMIT)
        await stream.close()
        await until(lambda: peers[0].reset == peers[0].waiting)


@on_both_loops
async def test_a_silent_stream_ends_alone() -> None:
    peers: list[Http2Peer] = []
    async with Server(serving(peers)) as server, client(prior_knowledge=True) as http:
        other = await http.begin("GET", http.target(f"{server.url}wait"), idle=LIMIT)
        with pytest.raises(Unreachable, match="timeout"):
            await http.begin("GET", http.target(f"{server.url}silent"), idle=0.1)
        await peers[0].end()
        assert await read_all(other) == b"at last"
        assert len(peers) == 1


@on_both_loops
async def test_a_stream_that_nobody_reads_holds_up_no_other() -> None:
    peers: list[Http2Peer] = []
    async with Server(serving(peers)) as server, client(prior_knowledge=True) as http:
        target = http.target(f"{server.url}wait")
        unread = [await http.begin("GET", target, idle=LIMIT) for _ in range(20)]
        for stream in peers[0].waiting:
            await peers[0].send(stream, bytes(4 << 20))
        other = await http.begin("GET", target, idle=LIMIT)
        await peers[0].send(peers[0].waiting[-1], b"x" * 100_000)
        assert len(await anext(aiter(other.chunks))) > 0
        assert (await get(http, server.url)).body == b"hi"
        for each in (*unread, other):
            await each.close()


@on_both_loops
async def test_a_large_body_goes_at_the_pace_of_the_server() -> None:
    peers: list[Http2Peer] = []
    async with Server(serving(peers)) as server, client(prior_knowledge=True) as http:
        body = bytes(3 << 20)  # many windows
        replies = await asyncio.gather(
            *(http.request("POST", server.url, body=body, seconds=LIMIT) for _ in range(3)),
            get(http, server.url),
        )
        assert [reply.body for reply in replies] == [b"hi"] * 4
        assert sorted(peers[0].sizes) == [0, *[len(body)] * 3]


@on_both_loops
async def test_a_refused_stream_is_tried_again_a_few_times() -> None:
    peers: list[Http2Peer] = []
    async with (
        Server(serving(peers, refuses=2)) as server,
        client(prior_knowledge=True) as http,
    ):
        assert (await get(http, server.url)).body == b"hi"
    async with (
        Server(serving(peers, refuses=1000)) as server,
        client(prior_knowledge=True) as http,
    ):
        with pytest.raises(Unreachable) as caught:
            await get(http, server.url)
        assert not was_sent(caught.value)


@on_both_loops
async def test_a_header_that_http_cannot_carry_breaks_nothing_else() -> None:
    peers: list[Http2Peer] = []
    async with Server(serving(peers)) as server, client(prior_knowledge=True) as http:
        target = http.target(f"{server.url}wait")
        other = await http.begin("GET", target, idle=LIMIT)
        with pytest.raises(Unreachable):
            await http.begin("GET", target, headers={"x-bad": "a\r\nb: c"}, idle=LIMIT)
        await peers[0].end()
        assert await read_all(other) == b"at last"
