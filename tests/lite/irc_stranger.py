"""A member of an IRC room that nobody here wrote: raw lines over a socket, and a reader of A2A-Lite
made from the source text alone. It imports nothing of Dragoman."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

TYPES = ("discover", "card", "task", "status", "result", "cancel", "ack")
_marker = re.compile(r"\[A2A:([a-z]+)((?: [a-z0-9_-]+=[^ \]]+)*)\]")


class Read(NamedTuple):
    """A message as the source text describes it: a type, parameters, and a body."""

    sender: str
    type: str
    params: dict[str, str]
    body: list[str]


class Stranger:
    """One nick in one room."""

    def __init__(self, nick: str, room: str) -> None:
        self.nick, self.room = nick, room
        self.lines: list[tuple[str, str, str]] = []
        """Everything that was heard: who said it, where, and what."""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._joined = asyncio.Event()
        self.on_line: Callable[[str, str, str], Awaitable[None]] | None = None

    async def enter(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._send(f"NICK {self.nick}")
        self._send(f"USER {self.nick} 0 * :{self.nick}")

    def _send(self, line: str) -> None:
        self._writer.write(line.encode() + b"\r\n")

    async def read(self) -> None:
        while line := await self._reader.readline():
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            words = text.split(" ", 3)
            if words[0] == "PING":
                self._send(f"PONG {words[1]}")
            elif words[1] == "001":
                self._send(f"JOIN {self.room}")
            elif words[1] == "366":
                self._joined.set()
            elif words[1] == "PRIVMSG":
                heard = (words[0][1:].partition("!")[0], words[2], words[3][1:])
                self.lines.append(heard)
                if self.on_line is not None:
                    await self.on_line(*heard)

    async def say(self, *lines: str, to: str = "") -> None:
        for line in lines:
            self._send(f"PRIVMSG {to or self.room} :{line}")
        await self._writer.drain()

    async def joined(self) -> None:
        await self._joined.wait()

    def close(self) -> None:
        self._writer.close()

    def messages(self, sender: str = "") -> list[Read]:
        """What was said with a marker. A marker is a line of its own, at its very beginning; the
        next lines of the same sender are its body."""
        found: list[Read] = []
        last: dict[str, Read] = {}
        for who, _, text in self.lines:
            if sender not in ("", who):
                continue
            marker = _marker.fullmatch(text)
            if marker is not None and marker[1] in TYPES:
                pairs = (each.split("=", 1) for each in marker[2].split())
                last[who] = Read(who, marker[1], dict(pairs), [])
                found.append(last[who])
            elif who in last:
                last[who].body.append(text)
        return found

    def of_type(self, type: str, sender: str = "") -> list[Read]:
        return [each for each in self.messages(sender) if each.type == type]


@asynccontextmanager
async def stranger(port: int, nick: str, room: str) -> AsyncIterator[Stranger]:
    """Somebody in the room, until the block ends."""
    found = Stranger(nick, room)
    await found.enter(port)
    reading = asyncio.create_task(found.read())
    try:
        await found.joined()
        yield found
    finally:
        found.close()
        reading.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await reading
