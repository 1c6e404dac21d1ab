"""jiuwenclaw, a client of others, dials our server over two links, and sends every frame over both
of them, with ids of its own."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from dragoman import State, Task
from dragoman.client import connect
from dragoman.core.model import Blob
from interop.peers import JIUWENCLAW
from security.certs import Authority
from waiting import until
from xiaoyi.links import AGENT, PATH, Gateway, gateway

SCRIPT = Path(__file__).parent / "peers" / "jiuwenclaw_agent.py"


@asynccontextmanager
async def with_tls(port: int, folder: Path) -> AsyncIterator[int]:
    """A port with TLS in front of another one: the client speaks nothing else."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*Authority(folder).issue("127.0.0.1"))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ssl.SSLError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(pipe, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def jiuwenclaw(door: Gateway, folder: Path) -> AsyncIterator[None]:
    """jiuwenclaw in a process of its own, once both its links are open."""
    python, *flags = JIUWENCLAW.start(await asyncio.to_thread(JIUWENCLAW.ready))
    async with with_tls(int(door.url.rpartition(":")[2]), folder) as port:
        said = (f"wss://127.0.0.1:{port}{PATH}", door.ak, door.sk, AGENT)
        with (folder / "jiuwenclaw.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(python, *flags, str(SCRIPT), *said),
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(folder)},
            )
        try:
            await until(lambda: len(door.service.links.open) == 2)
            await door.appears()
            yield
        finally:
            process.kill()
            await process.wait()


@pytest.mark.slow  # starts a process
async def test_jiuwenclaw_on_two_links_is_heard_once_and_reads_files_by_their_address(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(300),
        gateway() as door,
        jiuwenclaw(door, tmp_path),
        connect(f"{door.url}/agents/{AGENT}") as caller,
    ):
        for _ in range(3):
            task = await caller.send("ha ha ho ha ha")
            assert isinstance(task, Task)
            assert (task.state, task.text) == (State.COMPLETED, "ha ha ho ha ha ")

        # It waits a minute for an answer to its command.
        async with asyncio.timeout(30):
            assert (await caller.send("where")).text == "GetCurrentLocation 1 "

        note = Blob(b"from the file", filename="note.txt", media_type="text/plain")
        assert "from the file" in (await caller.send("read", note)).text

        first = await caller.send("one", context_id="talk")
        await caller.invoke("xiaoyi.link/clearContext", contextId="talk")
        second = await caller.send("two", context_id="talk")
        assert (first.text, second.text) == ("one ", "two ")
