"""A host that stops says so: every socket is closed with 1001, and agents dial again at once."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from cli.run import ENVIRON
from dragoman import Message, Role, Text, Turn
from dragoman.core.operations import SendMessage
from dragoman.dialects.iat.wire import Envelope, Kind, envelope_in, envelope_out
from dragoman.iat import Host
from dragoman.iat.host import OPERATOR
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App, engine_for
from dragoman.server.serve import address, wind_down
from dragoman.testing.served import served
from iat.team import SECRET, at, engine_host, joining, settings, worker
from waiting import forever

AGENTS = ("one", "two", "three")
SOON = 20.0
"""Seconds. Without a word agents would notice after two heartbeats, 40."""


async def _busy(turn: Turn) -> str:
    """Works longer than any grace."""
    await forever()
    return turn.text


async def registered(socket: ClientConnection, name: str) -> None:
    """Introduces an agent by hand."""
    hello = Envelope(
        kind=Kind.REQUEST,
        action="register",
        payload={"agent_id": name, "tools": []},
        id="r1",
        sender=name,
        token=SECRET,
    )
    await socket.send(envelope_out(hello).decode())
    told = envelope_in(str(await socket.recv()).encode())
    assert told.payload["session_token"]


async def last_word(socket: ClientConnection) -> tuple[int, float]:
    """The code a socket was closed with, and when."""
    try:
        while True:
            await socket.recv()
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd is not None else 1006, time.monotonic()


@asynccontextmanager
async def dialed_in(url: str) -> AsyncIterator[list[asyncio.Task[tuple[int, float]]]]:
    """Three agents by hand on a host; what each of them hears last."""
    async with AsyncExitStack() as stack:
        heard = []
        for name in AGENTS:
            opened = await stack.enter_async_context(connect(f"{at(url, 'ws')}/iat/ws"))
            await registered(opened, name)
            heard.append(asyncio.create_task(last_word(opened)))
        yield heard


def told_soon(heard: list[tuple[int, float]], began: float) -> None:
    assert [code for code, _ in heard] == [1001] * len(AGENTS)
    assert max(when for _, when in heard) - began < SOON


async def redials(port: int, wanted: int, seconds: float = 120) -> None:
    """Takes the place of the host, until so many agents came back to it."""
    back: set[str] = set()
    enough = asyncio.Event()

    async def met(socket: Any) -> None:
        said = envelope_in(str(await socket.recv()).encode())
        assert said.action == "register"
        back.add(said.sender)
        if len(back) >= wanted:
            enough.set()
        await socket.wait_closed()

    async with asyncio.timeout(seconds), serve(met, "127.0.0.1", port):
        await enough.wait()


class StoppableHost:
    """A host that the test stops itself, in the order in which `dragoman` does it."""

    def __init__(self, folder: Path, host: Host) -> None:
        sock = bind("127.0.0.1", 0)
        own = settings(folder, host.name)
        self.url = address(sock)
        self.port = int(self.url.rpartition(":")[2])
        self.app = App(host, engine_for(host, own), own, Log("error"), self.url)
        self.listener = GranianServer(self.app.route, sock, own.limits)

    async def __aenter__(self) -> StoppableHost:
        await self.app.start()
        self.listener.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await wind_down(self.app, self.listener)


async def test_every_agent_hears_that_the_host_goes(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with StoppableHost(tmp_path, engine_host()) as server:
            heard = await stack.enter_async_context(dialed_in(server.url))
            began = time.monotonic()
        told_soon(await asyncio.wait_for(asyncio.gather(*heard), 60), began)


@pytest.mark.slow  # takes three seconds
async def test_a_host_with_work_under_way_does_not_keep_its_agents_waiting(tmp_path: Path) -> None:
    """The run gets its grace, three seconds; the agents are told before that."""
    host = engine_host()
    host.skill("busy")(_busy)
    said = Message(message_id="m", role=Role.USER, parts=(Text("go"),))
    op = SendMessage(message=said, metadata={"skillId": "busy"}, wait=False)
    async with AsyncExitStack() as stack:
        async with StoppableHost(tmp_path, host) as server:
            heard = await stack.enter_async_context(dialed_in(server.url))
            assert host.peer is not None
            await host.peer.call(op, OPERATOR)
            began = time.monotonic()
        took = time.monotonic() - began
        told_soon(await asyncio.wait_for(asyncio.gather(*heard), 60), began)
        assert took > 2, "it was meant to be busy"


async def test_agents_of_ours_begin_to_dial_again(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with StoppableHost(tmp_path, host := engine_host()) as server:
            for name in AGENTS:
                own = settings(tmp_path, name, host=joining(server.url, "ws"))
                await stack.enter_async_context(served(worker(), own))
            for name in AGENTS:
                await host.find(name, 15)
        await redials(server.port, len(AGENTS))


async def test_nobody_comes_in_while_it_goes(tmp_path: Path) -> None:
    """A socket taken after the others were closed would be dropped without a word."""
    async with StoppableHost(tmp_path, engine_host()) as server:
        await server.app.drain()
        with pytest.raises(InvalidHandshake):
            await connect(f"{at(server.url, 'ws')}/iat/ws")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
async def test_the_command_tells_its_agents(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "dragoman", "iat", "host", "--port", "0", "--store", "memory:"]
    process = subprocess.Popen(  # noqa: ASYNC220  its output is read in threads
        command,
        cwd=tmp_path,
        env={**ENVIRON, "IAT_SECRET": SECRET},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = await asyncio.to_thread(process.stdout.readline)
        found = re.search(r"http://[^\s/]+:(\d+)", first)
        assert found, first
        async with AsyncExitStack() as stack:
            heard = await stack.enter_async_context(dialed_in(found[0]))
            ours = settings(tmp_path, "ours", host=at(found[0], "ws"))
            await stack.enter_async_context(served(worker(), ours))
            while "+ ours" not in await asyncio.to_thread(process.stdout.readline):
                assert process.poll() is None
            began = time.monotonic()
            process.send_signal(number)
            told_soon(await asyncio.wait_for(asyncio.gather(*heard), 60), began)
            assert await asyncio.to_thread(process.wait, 20) == 0
            await redials(int(found[1]), 1)
    finally:
        process.kill()
        process.communicate()
