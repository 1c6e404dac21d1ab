"""The rooms of one machine: a log of what was said, which every member reads at its own speed.

A hub lives in one process. What its members ask are values, so that `shared_hub.py` can carry them
from other processes of the same user.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from dragoman.core.errors import Conflict, PeerRefused, TooLarge

MOST_SAID = 10_000
"""The messages that a hub keeps. A member that lags further behind misses the oldest."""
MOST_READ = 100
"""The messages that one read returns."""
MOST_FILES = 64 * 1024 * 1024
"""The bytes of files that a hub keeps; the oldest are forgotten."""
FILE_SIZE = 16 * 1024 * 1024
TEXT = 64 * 1024

T = TypeVar("T")


class PostedFile(Struct, frozen=True):
    """A file in a room. Its content is kept apart from the log."""

    id: str
    name: str
    media_type: str
    size: int


class Said(Struct, frozen=True, kw_only=True):
    """One entry of the log."""

    id: str
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


class HubCall(Struct, frozen=True, tag_field="call"):
    """Something that a member asks of the hub."""

    name: str


class Enter(HubCall, frozen=True, tag="enter"):
    """The member enters the hub. The answer is the epoch of the hub and the end of its log."""

    person: bool


class Join(HubCall, frozen=True, tag="join"):
    """The member enters a room, which is created if there is none."""

    room: str


class Say(HubCall, frozen=True, tag="say"):
    """The member says something, or posts a file. The answer is the id of the message."""

    room: str
    text: str = ""
    reply_to: str = ""
    key: str = ""
    file: PostedFile | None = None
    body: bytes = b""


class Read(HubCall, frozen=True, tag="read"):
    """The member asks what others said. If there is nothing yet, the answer comes as soon as there
    is something, or after so many seconds."""

    after: int
    seconds: float


class Fetch(HubCall, frozen=True, tag="fetch"):
    """The member asks for the content of a file."""

    file_id: str


AnyHubCall = Enter | Join | Say | Read | Fetch


class HubEntry(Struct, frozen=True):
    """The answer to `Enter`."""

    epoch: str
    seq: int


class Reading(Struct, frozen=True):
    """The answer to `Read`: what was said, and the position behind it."""

    said: tuple[Said, ...]
    seq: int


class HubLink(Protocol):
    """A hub in this process or in another one."""

    async def ask(self, call: AnyHubCall, answer: type[T]) -> T:
        """Asks the hub something."""
        ...

    def leave(self, name: str) -> None:
        """Removes a member from the hub and its rooms."""
        ...


class Hub:
    """Rooms in which the members of one hub meet."""

    def __init__(self) -> None:
        self._epoch = secrets.token_hex(8)
        """Tells positions in this log from those in the log of another hub."""
        self._log: deque[Said] = deque(maxlen=MOST_SAID)
        self._seq = 0
        self._news = asyncio.Event()
        self._members: dict[str, bool] = {}
        self._rooms: dict[str, dict[str, None]] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._files: dict[str, bytes] = {}

    async def ask(self, call: AnyHubCall, answer: type[T]) -> T:
        """Answers a call. Raises `Conflict`, `PeerRefused` or `TooLarge` if it cannot."""
        found = await self.answer(call)
        assert isinstance(found, answer)  # noqa: S101  each call has one type of answer
        return found

    async def answer(self, call: AnyHubCall) -> Any:
        """Returns the answer to a call, of whichever type it is."""
        match call:
            case Enter():
                return self._enter(call)
            case Join():
                self._rooms.setdefault(call.room, {})[call.name] = None
                return call.room
            case Say():
                return self._say(call)
            case Read():
                return await self._read(call)
            case Fetch():
                if call.file_id not in self._files:
                    raise PeerRefused("The file is no longer here")
                return self._files[call.file_id]

    def leave(self, name: str) -> None:
        """Removes a member from the hub and its rooms."""
        self._members.pop(name, None)
        for members in self._rooms.values():
            members.pop(name, None)
        self._ring()

    def _enter(self, call: Enter) -> HubEntry:
        if call.name in self._members:
            raise Conflict(f"Somebody else is called {call.name} here")
        self._members[call.name] = call.person
        return HubEntry(self._epoch, self._seq)

    def _say(self, call: Say) -> str:
        members = self._rooms.get(call.room, {})
        if call.name not in members:
            raise PeerRefused(f"{call.name} is not in the room {call.room}")
        if call.key and (call.name, call.key) in self._keys:
            return self._keys[call.name, call.key]
        if len(call.text.encode("utf-8", "surrogatepass")) > TEXT:
            raise TooLarge(f"A message here has at most {TEXT} bytes")
        if call.file is not None:
            if len(call.body) > FILE_SIZE:
                raise TooLarge(f"A file here has at most {FILE_SIZE} bytes")
            self._keep(call.file.id, call.body)
        self._seq += 1
        id = f"{self._epoch}:{self._seq}"
        self._log.append(
            Said(
                id=id,
                seq=self._seq,
                room=call.room,
                sender=call.name,
                text=call.text,
                person=self._members[call.name],
                members=tuple(members),
                reply_to=call.reply_to,
                reply_sender=self._author(call.reply_to),
                file=call.file,
                at=time.time_ns() // 1_000_000,
            )
        )
        if call.key:
            self._keys[call.name, call.key] = id
            if len(self._keys) > MOST_SAID:
                del self._keys[next(iter(self._keys))]
        self._ring()
        return id

    async def _read(self, call: Read) -> Reading:
        deadline = asyncio.get_running_loop().time() + call.seconds
        name, after = call.name, call.after
        while True:
            news = self._news
            found = []
            for each in reversed(self._log):
                if each.seq <= after:
                    break
                if each.sender != name and name in self._rooms.get(each.room, {}):
                    found.append(each)
            if len(found) > MOST_READ:
                found = found[-MOST_READ:]
                return Reading(tuple(reversed(found)), found[0].seq)
            if found or name not in self._members:
                return Reading(tuple(reversed(found)), self._seq)
            after = max(after, self._seq)
            try:
                async with asyncio.timeout_at(deadline):
                    await news.wait()
            except TimeoutError:
                return Reading((), after)

    def _author(self, reply_to: str) -> str:
        if not reply_to:
            return ""
        return next((each.sender for each in self._log if each.id == reply_to), "")

    def _ring(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _keep(self, file_id: str, body: bytes) -> None:
        self._files[file_id] = body
        while sum(map(len, self._files.values())) > MOST_FILES:
            del self._files[next(iter(self._files))]
