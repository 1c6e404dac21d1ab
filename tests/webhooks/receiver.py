"""A webhook receiver on a loopback port that remembers everything and answers as it is told."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from waiting import LIMIT, until


@dataclass
class Heard:
    """One call."""

    path: str
    headers: dict[str, str]
    body: bytes
    port: int = 0

    @property
    def id(self) -> str:
        """The name of the delivery, the same in every attempt."""
        return self.headers["webhook-id"]

    @property
    def seq(self) -> int:
        """Its place in the log."""
        return int(self.id.rpartition(".")[2])

    @property
    def json(self) -> Any:
        """What it says."""
        return msgspec.json.decode(self.body)


Answer = Callable[[Heard], "tuple[int, dict[str, str]] | Awaitable[tuple[int, dict[str, str]]]"]


def ok(heard: Heard) -> tuple[int, dict[str, str]]:
    """Says thanks."""
    return 204, {}


class Moody:
    """Refuses 20 % of the calls, and of the rest stores 5 % without ever answering."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.stored: dict[str, list[Heard]] = defaultdict(list)
        self.calls = self.failed = self.unanswered = 0

    def __call__(self, heard: Heard) -> tuple[int, dict[str, str]]:
        self.calls += 1
        lot = self.dice.random()
        if lot < 0.20:
            self.failed += 1
            return self.dice.choice((500, 503, 429, 404, 0)), {}
        self.stored[heard.path].append(heard)
        if lot < 0.24:
            self.unanswered += 1
            return 0, {}
        return 200, {}


@dataclass
class Receiver:
    """Listens while it is entered. `answer` gives status and headers; status 0 hangs up."""

    answer: Answer = ok
    heard: list[Heard] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _serving: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def __aenter__(self) -> Receiver:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    async def up(self) -> None:
        """Begins to listen, on the port it had before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Refuses connections, and cuts those it has."""
        if self._server is not None:
            self._server.close()
            self._server = None
            serving = list(self._serving.items())
            for task, writer in serving:
                writer.transport.abort()
                task.cancel()
            if serving:
                await asyncio.wait([task for task, _ in serving], timeout=1)

    async def until(self, count: int, seconds: float = LIMIT) -> list[Heard]:
        """Waits for so many calls."""
        await until(lambda: len(self.heard) >= count, seconds)
        return self.heard

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
            pass  # cancelled by `down`: asyncio would complain loudly if this task were
        finally:
            del self._serving[task]
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = await reader.readline()
        if not line:
            return False
        headers: dict[str, str] = {}
        while (field_line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = field_line.decode("latin-1").partition(":")
            assert name.lower() not in headers, f"{name} came twice"
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        heard = Heard(line.decode().split()[1], headers, body, self.port)
        said = self.answer(heard)
        status, extra = said if isinstance(said, tuple) else await said
        self.heard.append(heard)
        if status == 0:
            return False
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in extra.items())]
        if "content-length" not in extra and status != 204:
            lines.append("content-length: 0")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await writer.drain()
        return True
