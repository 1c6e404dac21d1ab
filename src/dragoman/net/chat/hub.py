"""The rooms of one machine: a log of what was said, which every member reads at its own speed.

A hub lives in one process. `loopback_socket.py` lets other processes of the same user take part.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque

from msgspec import Struct

from dragoman.core.errors import Conflict, PeerRefused, TooLarge

MOST_SAID = 10_000
"""The messages that a hub keeps. A member that lags further behind misses the oldest."""
MOST_FILES = 64 * 1024 * 1024
"""The bytes of files that a hub keeps; the oldest are forgotten."""
FILE_SIZE = 16 * 1024 * 1024
TEXT = 64 * 1024


class PostedFile(Struct, frozen=True):
    """A file in a room. Its content is kept apart from the log."""

    id: str
    name: str
    media_type: str
    size: int


class Said(Struct, frozen=True, kw_only=True):
    """One entry of the log."""

    seq: int
    room: str
    sender: str
    text: str
    person: bool
    members: tuple[str, ...]
    """Everybody who was in the room then."""
    reply_to: str = ""
    reply_sender: str = ""
    """The author of the message that this one replies to, if the log still has it."""
    file: PostedFile | None = None
    at: int = 0


class Reading(Struct, frozen=True):
    """What a member has not read yet, and the position behind it."""

    said: tuple[Said, ...]
    seq: int


class Hub:
    """Rooms in which the members of one hub meet."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(8)
        """Tells positions in this log from those in the log of another hub."""
        self._log: deque[Said] = deque(maxlen=MOST_SAID)
        self._seq = 0
        self._news = asyncio.Event()
        self._members: dict[str, bool] = {}
        self._rooms: dict[str, dict[str, None]] = {}
        self._keys: dict[tuple[str, str], int] = {}
        self._files: dict[str, bytes] = {}

    async def enter(self, name: str, *, person: bool) -> tuple[str, int]:
        """Adds a member. Returns the epoch of the hub and the end of its log."""
        if name in self._members:
            raise Conflict(f"Somebody else is called {name} here")
        self._members[name] = person
        return self.epoch, self._seq

    def leave(self, name: str) -> None:
        """Removes a member."""
        self._members.pop(name, None)
        for members in self._rooms.values():
            members.pop(name, None)
        self._ring()

    async def join(self, name: str, room: str) -> str:
        """Adds a member to a room, which is created if there is none."""
        self._rooms.setdefault(room, {})[name] = None
        return room

    async def say(
        self,
        name: str,
        room: str,
        text: str,
        *,
        reply_to: str = "",
        key: str = "",
        file: PostedFile | None = None,
        body: bytes = b"",
    ) -> str:
        """Adds to the log, and returns the id of the message."""
        members = self._rooms.get(room, {})
        if name not in members:
            raise PeerRefused(f"{name} is not in the room {room}")
        if key and (name, key) in self._keys:
            return str(self._keys[name, key])
        if file is not None:
            if len(body) > FILE_SIZE:
                raise TooLarge(f"A file here has at most {FILE_SIZE} bytes")
            self._keep(file.id, body)
        self._seq += 1
        said = Said(
            seq=self._seq,
            room=room,
            sender=name,
            text=text,
            person=self._members[name],
            members=tuple(members),
            reply_to=reply_to,
            reply_sender=next(
                (each.sender for each in self._log if reply_to and str(each.seq) == reply_to), ""
            ),
            file=file,
            at=time.time_ns() // 1_000_000,
        )
        self._log.append(said)
        if key:
            self._keys[name, key] = self._seq
            while len(self._keys) > MOST_SAID:
                del self._keys[next(iter(self._keys))]
        self._ring()
        return str(self._seq)

    async def read(self, name: str, after: int, seconds: float) -> Reading:
        """Returns what others said in the rooms of a member; if there is nothing yet, then as soon
        as there is, or after so many seconds."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            news = self._news
            found: list[Said] = []
            for each in reversed(self._log):
                if each.seq <= after:
                    break
                if each.sender != name and name in self._rooms.get(each.room, {}):
                    found.insert(0, each)
            if found or name not in self._members:
                return Reading(tuple(found[:100]), found[99].seq if len(found) > 99 else self._seq)
            after = max(after, self._seq)
            try:
                async with asyncio.timeout_at(deadline):
                    await news.wait()
            except TimeoutError:
                return Reading((), after)

    async def fetch(self, file_id: str) -> bytes:
        """Returns the content of a file."""
        if file_id not in self._files:
            raise PeerRefused("The file is no longer here")
        return self._files[file_id]

    def _ring(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _keep(self, file_id: str, body: bytes) -> None:
        self._files[file_id] = body
        while sum(map(len, self._files.values())) > MOST_FILES:
            del self._files[next(iter(self._files))]
