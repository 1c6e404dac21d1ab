"""Says things in the rooms of a channel: in pieces that fit, with files as the channel carries
them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import DragomanError, PeerUnreachable, TooLarge
from dragoman.core.log import Logger
from dragoman.core.model import Blob
from dragoman.dialects.lite.parts import name_of
from dragoman.dialects.lite.splitting import TextLimit, split, split_text
from dragoman.dialects.lite.wire import TO, LiteMessage
from dragoman.files import FileDoor
from dragoman.net.chat import Channel

log = Logger("lite")

MAX_PIECES, MAX_LINES = 100, 60
"""The chat messages that one message may take, and the lines where every line is one: a room is for
all of its members, and the pieces of others wait meanwhile."""
MAX_CHARACTERS = 200_000
"""The characters of one message, however many fit into a chat message."""
WHOLE_TEXT = "message.txt"
"""The name of the file that holds a text which is too long for the room."""


class Addressee(Struct, frozen=True):
    """The agent that a message is for."""

    name: str
    """The name in its marker."""
    mention: str = ""
    """How its account is named at the beginning of the body, for agents that do not read the
    marker; empty if nobody else is there."""


class RoomSpeaker:
    """The voice of one account."""

    def __init__(self, channel: Channel, files: FileDoor | None = None) -> None:
        """Files that the channel cannot carry are offered at the door of the server, if it has
        an address; otherwise the text says that they are missing."""
        self._channel, self._files = channel, files
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """The lock of each room that the one who speaks there holds."""

    @property
    def multiline(self) -> bool:
        """Whether a chat message may have several lines."""
        return self._channel.limits.multiline

    async def say(
        self,
        room: str,
        said: LiteMessage | str,
        *,
        files: Sequence[Blob] = (),
        task_id: str = "",
        to: Addressee | None = None,
        reply_to: str = "",
        key: str = "",
    ) -> list[str]:
        """Says a message, or a text in which nothing is a marker. Returns the ids of its pieces.
        The files are posted first, so that a reader of the text has them. Where the channel can
        tell, two calls with the same `key` say it once.

        Raises `PeerUnreachable` if it can be said later, and another `DragomanError` if never."""
        posted: set[str] = set()
        notes: list[str] = []
        for number, file in enumerate(files):
            if await self._post(room, file, f"{key}/{number}" if key else ""):
                posted.add(name_of(file))
            else:
                notes.append(await self._elsewhere(file, task_id))
        if isinstance(said, str):
            said = "\n".join((said, *notes))
        else:
            body = "\n".join(filter(None, (said.body, *notes)))
            names = tuple(name for name in said.attachments if name in posted)
            said = _addressed(replace(said, body=body, attachments=names), to)
        try:
            pieces = self._pieces(said)
        except TooLarge:
            pieces = await self._shortened(room, said, task_id, key)
        # The pieces of a message are said one behind the other, whatever else is being said:
        # where every line is a message, a reader takes the next lines for the body.
        turn = self._turns.setdefault(room, asyncio.Lock())
        async with turn:
            ids = []
            for number, piece in enumerate(pieces):
                numbered = f"{key}.{number}" if key else ""
                ids.append(await self._channel.say(room, piece, reply_to=reply_to, key=numbered))
        return ids

    async def _post(self, room: str, file: Blob, key: str) -> bool:
        limits = self._channel.limits
        if not limits.files or (limits.file_size and len(file.content) > limits.file_size):
            return False
        try:
            media = file.media_type or "application/octet-stream"
            await self._channel.send_file(room, name_of(file), media, file.content, key=key)
        except PeerUnreachable:
            raise
        except DragomanError as exc:
            log.warning("A file could not be posted", room=room, why=exc.reason)
            return False
        return True

    async def _elsewhere(self, file: Blob, task_id: str) -> str:
        """Returns the line that stands for a file that was not posted."""
        name = name_of(file)
        if self._files is not None and self._files.offers and task_id:
            try:
                return f"{name}: {(await self._files.offer(file, task_id=task_id)).url}"
            except (DragomanError, OSError) as exc:
                log.warning("A file could not be offered", task=task_id, why=exc)
        return f"(The file {name}, {len(file.content)} bytes, cannot be posted here.)"

    def _pieces(self, said: LiteMessage | str) -> list[str]:
        limits = self._channel.limits
        if len(said if isinstance(said, str) else said.body) > MAX_CHARACTERS:
            raise TooLarge(f"A message has at most {MAX_CHARACTERS} characters.")
        limit = TextLimit(limits.text, limits.unit, limits.multiline)
        most = MAX_PIECES if limits.multiline else MAX_LINES
        if isinstance(said, str):
            return split_text(said, limit, most)
        return split(said, limit, most)

    async def _shortened(
        self, room: str, said: LiteMessage | str, task_id: str, key: str
    ) -> list[str]:
        """Returns the pieces of the beginning of a text that is too long for the room. The whole
        text becomes a file, where there are files."""
        text = said if isinstance(said, str) else said.body
        whole = Blob(text.encode("utf-8", "replace"), filename=WHOLE_TEXT, media_type="text/plain")
        if await self._post(room, whole, f"{key}/whole" if key else ""):
            note = f"(This is the beginning; {WHOLE_TEXT} has all of it.)"
        else:
            where = await self._elsewhere(whole, task_id)
            note = where if where.startswith(WHOLE_TEXT) else ""
            note = note or f"(The rest of {len(text)} characters is too long for this room.)"
        limits = self._channel.limits
        most = limits.text * (MAX_PIECES if limits.multiline else MAX_LINES)
        length = min(len(text), most, 2 * MAX_CHARACTERS - 2_000)  # with room for the note
        while True:
            length //= 2
            short = f"{text[:length].rstrip()}\n{note}"
            try:
                return self._pieces(short if isinstance(said, str) else replace(said, body=short))
            except TooLarge:
                if not length:
                    raise


def _addressed(said: LiteMessage, to: Addressee | None) -> LiteMessage:
    """Returns a message that names its reader. The marker stays first: behind a mention, it is
    plain text for other parsers."""
    if to is None:
        return said
    body = f"{to.mention} {said.body}" if to.mention and said.body else said.body or to.mention
    return replace(said, params={**said.params, TO: to.name}, body=body)
