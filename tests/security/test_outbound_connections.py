"""The connections of the one HTTP client: when they are used again, when not, and how many."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from dragoman.security.outbound import connection_pool
from dragoman.security.outbound.failures import was_sent
from dragoman.security.outbound.guarded_http import Unreachable
from security.raw_server import LIMIT, OK, Peer, Server, client, get, on_both_loops, polite, says
from waiting import turns, until


@on_both_loops
async def test_one_connection_carries_requests_one_after_the_other() -> None:
    async with Server(polite) as server, client() as http:
        for _ in range(5):
            assert (await get(http, server.url)).body == b"hi"
        assert len(server.peers) == 1


@on_both_loops
async def test_requests_at_once_have_a_connection_each_and_leave_them_for_the_next() -> None:
    async with Server(polite) as server, client() as http:
        for _ in range(3):
            await asyncio.gather(*(get(http, server.url) for _ in range(8)))
        assert 1 < len(server.peers) <= 8


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfalse",
    ],
    ids=["close", "1.0", "more than was asked"],
)
@on_both_loops
async def test_a_connection_that_is_not_to_be_used_again_is_not(answer: bytes) -> None:
    async with Server(says(answer)) as server, client() as http:
        for _ in range(3):
            assert (await get(http, server.url)).body == b"hi"
        assert len(server.peers) == 3


@on_both_loops
async def test_an_answer_nobody_asked_for_is_not_taken_for_the_next() -> None:
    """It comes when the connection is unused, so it ends the connection."""
    late, came = asyncio.Event(), asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await late.wait()
        await peer.answer(OK.replace(b"hi", b"no"))
        came.set()
        await polite(peer)

    async with Server(talk) as server, client() as http:
        assert (await get(http, server.url)).body == b"hi"
        late.set()
        await asyncio.wait_for(came.wait(), LIMIT)  # seen by the event loop or not
        assert (await get(http, server.url)).body == b"hi"
        assert len(server.peers) == 2


@on_both_loops
async def test_a_body_may_end_with_the_connection() -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\n\r\nall ", b"of it")

    async with Server(talk) as server, client() as http:
        assert (await get(http, server.url)).body == b"all of it"


@on_both_loops
async def test_a_body_that_ends_too_early_is_broken() -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")

    async with Server(talk) as server, client() as http:
        with pytest.raises(Unreachable, match="broken") as caught:
            await get(http, server.url)
        assert was_sent(caught.value)


@on_both_loops
async def test_interim_answers_are_passed_by() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    async with Server(says(interim, OK)) as server, client() as http:
        assert (await get(http, server.url)).status == 200


@on_both_loops
async def test_a_response_that_is_left_early_costs_its_connection() -> None:
    gone = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await peer.request()
        gone.set()

    async with Server(talk) as server, client() as http:
        async with http.open("GET", http.target(server.url)) as stream:
            assert await anext(stream.chunks) == b"half"
        await asyncio.wait_for(gone.wait(), LIMIT)


@on_both_loops
async def test_a_connection_the_server_has_closed_is_not_used_again() -> None:
    """Even if the event loop had no time to see that: a send would fail without reason."""
    listener = socket.create_server(("127.0.0.1", 0))
    served: list[int] = []
    closed = threading.Event()

    def serve() -> None:
        for _ in range(2):
            found, _ = listener.accept()
            with found:
                served.append(len(found.recv(65536)))
                found.sendall(OK)
            closed.set()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        async with client() as http:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            assert (await get(http, url)).body == b"hi"
            assert closed.wait(LIMIT)
            assert (await get(http, url)).body == b"hi"
    finally:
        thread.join(LIMIT)
        listener.close()
    assert len(served) == 2


@on_both_loops
async def test_no_more_connections_than_allowed_and_the_rest_waits_its_turn() -> None:
    going, most = 0, 0

    def both() -> bool:
        return most == 2

    async def talk(peer: Peer) -> None:
        nonlocal going, most
        while await peer.request():
            going += 1
            most = max(most, going)
            await until(both)
            going -= 1
            await peer.answer(OK)

    async with Server(talk) as server, client(connections=2) as http:
        replies = await asyncio.gather(*(get(http, server.url) for _ in range(9)))
        assert [reply.body for reply in replies] == [b"hi"] * 9
        assert most == 2
        assert len(server.peers) == 2


@on_both_loops
async def test_waiting_for_a_connection_ends_in_time_and_nothing_was_sent() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.request()

    async with Server(silent) as server, client(connections=1) as http:
        target = http.target(server.url)
        first = asyncio.ensure_future(get(http, server.url))
        await server.connected(1)
        with pytest.raises(Unreachable, match="timeout") as caught:
            async with http.open("GET", target, connect=0.02):
                pass
        assert not was_sent(caught.value)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        # What was cancelled holds no connection.
        second = asyncio.ensure_future(get(http, server.url))
        await server.connected(2)
        second.cancel()


@on_both_loops
async def test_a_permit_for_a_request_that_was_cancelled_goes_to_the_next() -> None:
    async with Server(polite) as server, client(connections=1) as http:
        first = await http.begin("GET", http.target(server.url))
        second, third = (asyncio.ensure_future(get(http, server.url)) for _ in range(2))
        await asyncio.sleep(0)  # both wait now
        await first.close()
        second.cancel()  # the permit is its own already, but it has not run since
        assert (await third).body == b"hi"
        assert second.cancelled()


@on_both_loops
async def test_an_unused_connection_makes_room_for_one_to_another_server() -> None:
    async with Server(polite) as one, Server(polite) as two, client(connections=1) as http:
        for _ in range(2):
            for server in (one, two):
                assert (await get(http, server.url)).body == b"hi"
        assert len(one.peers) == len(two.peers) == 2


@on_both_loops
async def test_unused_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "KEEP", 0.02)
    gone = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await polite(peer)
        gone.set()

    async with Server(talk) as server, client() as http:
        await get(http, server.url)
        await asyncio.wait_for(gone.wait(), LIMIT)


@pytest.mark.slow  # takes four seconds
@on_both_loops
async def test_silence_breaks_a_response_and_slowness_does_not() -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
        for _ in range(22):  # longer than it may be silent
            await asyncio.sleep(0.1)  # the pace of the server
            await peer.answer(b"x")
        await peer.request()

    async with Server(talk) as server, client() as http:
        got = b""

        async def read() -> None:
            nonlocal got
            async with http.open("GET", http.target(server.url), idle=2.0) as stream:
                async for chunk in stream.chunks:
                    got += chunk

        began = time.monotonic()
        with pytest.raises(Unreachable, match="timeout"):
            await read()
        assert got == b"x" * 22
        assert time.monotonic() - began > 4.0


@on_both_loops
async def test_a_server_that_sends_more_than_is_read_has_to_wait() -> None:
    sent = 0

    async def talk(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        while True:
            await peer.answer(bytes(100_000))
            sent += 100_000

    async with (
        Server(talk) as server,
        client() as http,
        http.open("GET", http.target(server.url)) as stream,
    ):
        await anext(stream.chunks)
        before = -1
        while before < sent:  # until it is held up
            before = sent
            await asyncio.sleep(0.3)  # and looks again
        assert sent < 50_000_000
        held = sent
        while sent == held:  # and goes on when it is read again
            await anext(stream.chunks)


@on_both_loops
async def test_an_answer_that_comes_before_the_request_is_whole_is_taken() -> None:
    async def talk(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await taken.wait()

    taken = asyncio.Event()
    async with Server(talk) as server, client() as http:
        try:
            reply = await http.request("POST", server.url, body=bytes(64 << 20), seconds=LIMIT)
        finally:
            taken.set()
        assert reply.status == 413


@pytest.mark.slow  # takes three seconds
@on_both_loops
async def test_an_upload_that_goes_on_is_not_silence() -> None:
    async def talk(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        left = len(body)
        while left:
            left -= len(await peer.reader.readexactly(4 << 20))
            await asyncio.sleep(0.05)  # the pace of the server
        await peer.answer(OK)

    # Much more than the system holds, since nothing is seen of how that is read.
    body, began = bytes(256 << 20), time.monotonic()
    async with Server(talk) as server, client() as http:
        target = http.target(server.url)
        async with http.open("POST", target, body=body, idle=3.0) as stream:
            assert stream.status == 200
        assert time.monotonic() - began > 3.0


@on_both_loops
async def test_closing_ends_what_is_open() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.request()

    async with Server(silent) as server, client() as http:
        asked = asyncio.ensure_future(get(http, server.url))
        await server.connected(1)
        await turns(3)  # before or after its request, both must end
        await http.close()
        with pytest.raises(Unreachable):
            await asyncio.wait_for(asked, LIMIT)
