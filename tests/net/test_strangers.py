"""WebSockets whose peer has not said who it is: little time, little room, few places."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dragoman.net.strangers import BARRED, Slots
from hostile.frames import fragment, upgrade
from net.iat.sub_agent import SECRET, open_server
from net.served_peer import RunningServer
from net.served_peer import open_server as open_plain_server
from waiting import pace, until

HANG = 60.0


def at(home: RunningServer) -> str:
    return f"ws://127.0.0.1:{home.port}/iat/ws"


async def closed(socket: ClientConnection) -> None:
    async with asyncio.timeout(HANG):
        with suppress(ConnectionClosed):
            while True:
                await socket.recv()


async def test_who_says_nothing_is_closed() -> None:
    async with open_plain_server(hello_time=0.4) as home, connect(at(home)) as socket:
        await closed(socket)


@pytest.mark.parametrize("frame", ["{", '{"header": {"msg_id": "1", "type": "request"}}'])
async def test_bad_frames_are_no_sign_of_life(frame: str) -> None:
    async with open_plain_server(hello_time=0.6) as home, connect(at(home)) as socket:

        async def say() -> None:
            while True:
                await socket.send(frame)
                await pace(0.1)

        saying = asyncio.create_task(say())
        await closed(socket)
        saying.cancel()


async def test_bad_frames_do_not_keep_a_socket_that_was_good_once() -> None:
    async with open_server(idle=0.8) as home, connect(home.ws) as socket:
        home.app.server.deadlines._tick = 0.1
        hello = home.envelope("register", agent_id="host-1", token=SECRET)
        await socket.send(json.dumps(hello))
        assert "session_token" in json.loads(await socket.recv())["payload"]

        async def say() -> None:
            while True:
                await socket.send("{")
                await pace(0.1)

        saying = asyncio.create_task(say())
        await closed(socket)
        saying.cancel()


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("piece", [4_096, 1_000_000], ids=["small pieces", "large pieces"])
async def test_unfinished_messages_of_strangers_hold_no_memory(piece: int) -> None:
    most, before, peak = 200_000_000, rss(), 0
    async with open_plain_server() as home:

        async def dial() -> asyncio.StreamWriter:
            reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
            writer.write(upgrade(home.port))
            assert b"101" in await reader.readuntil(b"\r\n\r\n")
            return writer

        async def pump(writer: asyncio.StreamWriter) -> int:
            nonlocal peak
            sent = 0
            with suppress(ConnectionError):
                while sent < most:
                    writer.write(fragment(piece, first=sent == 0))
                    sent += piece
                    await writer.drain()
                    if sent % 1_000_000 < piece:
                        peak = max(peak, rss())
                        await asyncio.sleep(0.01)  # the server's turn: it is in our own loop
            writer.transport.abort()
            return sent

        async with asyncio.timeout(HANG):
            # All of them dial first: when one is cut off, others at its address get no slot.
            writers = await asyncio.gather(*(dial() for _ in range(20)))
            sent = await asyncio.gather(*map(pump, writers))
        assert max(sent) < most  # cut off before
        assert peak - before < 300_000_000  # 1.3 GB and for good when only whole ones counted
        assert home.listener.connections.shut["message"] == 20
        await until(lambda: not home.app.server.sockets)


async def test_known_callers_may_send_messages_up_to_their_limit() -> None:
    async with open_server(message_size=300_000) as home, connect(home.ws) as socket:
        await socket.send(json.dumps(home.envelope("register", agent_id="host-1", token=SECRET)))
        home.token = json.loads(await socket.recv())["payload"]["session_token"]
        for _ in range(5):
            await socket.send(json.dumps(home.envelope("pulse", padding="x" * 290_000)))
            assert json.loads(await socket.recv())["payload"]["ok"] is True
            await asyncio.sleep(0.15)  # measured in between


@pytest.mark.parametrize(
    "headers", [{"Authorization": "Bearer wrong"}, {"X-IAT-Token": "iat_wrong"}], ids=str
)
async def test_wrong_credentials_are_refused_at_the_handshake(headers: dict[str, str]) -> None:
    async with open_server() as home:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(home.ws, additional_headers=headers):
                pass
        assert refused.value.response.status_code == 403


async def test_right_credentials_at_the_handshake_give_the_full_limits() -> None:
    async with open_server() as home:
        for given in (SECRET, await token(home)):
            headers = {"Authorization": f"Bearer {given}"}
            async with connect(home.ws, additional_headers=headers) as socket:
                assert not home.app.routes["/iat/ws"]["websocket"]._slots.strangers  # type: ignore[attr-defined]
                await socket.send(json.dumps(home.envelope("pulse", token=await token(home))))
                assert json.loads(await socket.recv())["payload"]["ok"] is True


async def token(home: Any) -> str:
    reply = await home.post(home.envelope("register", agent_id="host-1", token=SECRET))
    return str(reply.json()["payload"]["session_token"])


async def test_strangers_of_one_address_have_a_tenth_of_the_sockets() -> None:
    async with open_server(sockets=20) as home, AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(connect(home.ws, local_addr=("127.0.0.2", 0)))
        with pytest.raises(InvalidStatus):
            await stack.enter_async_context(connect(home.ws, local_addr=("127.0.0.2", 0)))
        # Another address has its own share; and whoever says who it is needs none.
        for _ in range(4):
            socket = await stack.enter_async_context(connect(home.ws))
            hello = home.envelope("register", agent_id="host-1", token=SECRET)
            await socket.send(json.dumps(hello))
            assert "session_token" in json.loads(await socket.recv())["payload"]


def test_strangers_of_one_ipv6_network_share_its_slots() -> None:
    slots = Slots(40, 10)
    taken = [slots.take(f"2001:db8::{n:x}", known=False) for n in range(1, 6)]
    assert [slot is not None for slot in taken] == [True] * 4 + [False]
    assert slots.take("2001:db8:0:1::1", known=False) is not None
    assert taken[0] is not None
    taken[0].recognize()  # the place is taken still, but no longer by a stranger
    assert slots.take("2001:db8::9", known=False) is not None
    for slot in taken:
        if slot is not None:
            slot.release()
    assert slots.taken == 2


def test_half_of_the_slots_are_for_callers_that_are_known() -> None:
    slots = Slots(40, 10)
    assert sum(slots.take("", known=False) is not None for _ in range(50)) == 20
    assert sum(slots.take("", known=True) is not None for _ in range(50)) == 20


def test_strangers_of_an_address_that_sent_too_much_have_to_wait() -> None:
    now = 0.0
    slots = Slots(40, 10, lambda: now)
    one, other = slots.take("192.0.2.1", known=False), slots.take("192.0.2.1", known=True)
    assert one is not None
    assert other is not None
    other.bar()  # its caller is known, so nobody else has to wait for it
    assert slots.take("192.0.2.1", known=False) is not None
    one.bar()
    one.release()
    assert slots.take("192.0.2.1", known=False) is None
    assert slots.take("192.0.2.1", known=True) is not None
    assert slots.take("192.0.2.2", known=False) is not None
    now = BARRED + 0.1
    assert slots.take("192.0.2.1", known=False) is not None


async def test_a_stranger_that_is_cut_off_cannot_dial_again_at_once() -> None:
    async with open_server() as home:
        slots = home.app.routes["/iat/ws"]["websocket"]._slots  # type: ignore[attr-defined]
        slots.barred._seconds = HANG  # so that no slow machine lets it pass meanwhile
        port = urlsplit(home.ws).port or 0
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=("127.0.0.2", 0)
        )
        writer.write(upgrade(port))
        await reader.readuntil(b"\r\n\r\n")

        async def flood() -> None:
            first = True
            while True:
                writer.write(fragment(65_536, first=first))
                await writer.drain()
                first = False

        async with asyncio.timeout(HANG):
            with suppress(OSError):
                await flood()
        writer.close()
        await until(lambda: not home.app.server.sockets)
        with pytest.raises(InvalidStatus):
            await connect(home.ws, local_addr=("127.0.0.2", 0))
        async with connect(home.ws) as socket:
            hello = home.envelope("register", agent_id="host-1", token=SECRET)
            await socket.send(json.dumps(hello))
            assert "session_token" in json.loads(await socket.recv())["payload"]
