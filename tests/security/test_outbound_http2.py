"""HTTP/2 of the one HTTP client: one connection for all requests, as long as it lasts."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import h2.config
import h2.connection
import h2.events

from security.certs import Authority
from security.raw_server import LIMIT, Peer, Server, client, get, on_both_loops, polite


class Http2Peer:
    """Answers requests over HTTP/2, each with `hi`."""

    def __init__(self, peer: Peer, *, last: int = 0) -> None:
        """`last` is the number of requests after which the server leaves."""
        self._peer, self._last = peer, last
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))

    async def serve(self) -> None:
        self._h2.initiate_connection()
        count = 0
        while data := await self._peer.reader.read(65536):
            for event in self._h2.receive_data(data):
                if isinstance(event, h2.events.StreamEnded):
                    count += 1
                    headers = [(":status", "200"), ("content-length", "2")]
                    self._h2.send_headers(event.stream_id, headers)
                    self._h2.send_data(event.stream_id, b"hi", end_stream=True)
            leaves = count == self._last > 0
            if leaves:
                self._h2.close_connection()
            await self._peer.answer(self._h2.data_to_send())
            if leaves:
                return


async def multiplexing(peer: Peer) -> None:
    await Http2Peer(peer).serve()


async def leaving(peer: Peer) -> None:
    await Http2Peer(peer, last=1).serve()


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
