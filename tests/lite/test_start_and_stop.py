"""A chat service that hangs, or that asks for patience, holds up neither the start nor the stop of
a server. The services here are a few lines of HTTP over a socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from cli.run import ENVIRON
from ports import own_port
from waiting import until

pytestmark = pytest.mark.slow  # starts processes
SOURCE = """
from dragoman import Agent, Turn

agent = Agent("Desk", description="Answers.")

@agent.skill("talk")
async def talk(turn: Turn) -> str:
    return turn.text.upper()
"""
AN_HOUR = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too fast", "retry_after_ms": 3_600_000}
AT_ONCE = {**AN_HOUR, "retry_after_ms": 0}


class Homeserver:
    """Answers every request with the same refusal, or not at all."""

    def __init__(self, answer: dict[str, object] | None) -> None:
        self._answer, self.asked = answer, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
            await reader.readexactly(int(length[0].split(b":")[1]) if length else 0)
            self.asked += 1
            if self._answer is None:
                await asyncio.Event().wait()
            body = json.dumps(self._answer).encode()
            writer.write(
                b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )


@asynccontextmanager
async def homeserver(answer: dict[str, object] | None) -> AsyncIterator[tuple[Homeserver, int]]:
    found = Homeserver(answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await found.serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    try:
        yield found, server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("answer", [None, AN_HOUR, AT_ONCE], ids=["silent", "an hour", "at once"])
async def test_a_server_starts_and_stops_whatever_its_homeserver_does(
    answer: dict[str, object] | None, tmp_path: Path
) -> None:
    async with homeserver(answer) as (service, port):
        http = own_port()
        (tmp_path / "desk.py").write_text(SOURCE)
        (tmp_path / "dragoman.toml").write_text(
            f"""
[channels.team]
kind = "matrix"
homeserver = "http://127.0.0.1:{port}"
token = {{ env = "TOKEN" }}
rooms = ["#team:example.org"]
"""
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "serve", "desk.py", "--port", str(http)),
            *("--store", "memory:"),
            cwd=tmp_path,
            env={**ENVIRON, "PATH": os.environ["PATH"], "TOKEN": "x"},
        )
        try:

            async def healthy() -> bool:
                try:
                    async with httpx2.AsyncClient(timeout=5) as client:
                        return (await client.get(f"http://127.0.0.1:{http}/healthz")).is_success
                except httpx2.HTTPError:
                    return False

            await until(healthy, 60)
            await until(lambda: service.asked)
            asked, since = service.asked, time.monotonic()
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                assert await process.wait() == 0
            pauses = (time.monotonic() - since) / 0.5
            assert service.asked - asked <= pauses + 5, "it is asked without any pause"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
