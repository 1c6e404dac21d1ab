"""Says things in the rooms of a channel: in pieces that fit, with files as the channel carries
them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.core.errors import DragomanError, PeerUnreachable
from dragoman.core.log import Logger
from dragoman.core.model import Blob
from dragoman.dialects.lite.parts import name_of
from dragoman.dialects.lite.splitting import TextLimit, split, split_text
from dragoman.dialects.lite.wire import LiteMessage
from dragoman.files import FileDoor
from dragoman.net.chat import Channel

log = Logger("lite")


class RoomSpeaker:
    """The voice of one account."""

    def __init__(self, channel: Channel, files: FileDoor | None = None) -> None:
        """Files that the channel cannot carry are offered at the door of the server, if it has
        an address; otherwise the text says that they are missing."""
        self._channel, self._files = channel, files

    async def say(
        self,
        room: str,
        said: LiteMessage | str,
        *,
        files: Sequence[Blob] = (),
        task_id: str = "",
        mention: str = "",
        reply_to: str = "",
        key: str = "",
    ) -> str:
        """Says a message, or a text in which nothing is a marker. Returns the id of its last piece.
        The files are posted first, so that a reader of the text has them. Where the channel can
        tell, two calls with the same `key` say it once.

        Raises `PeerUnreachable` if it can be said later, and another `DragomanError` if never."""
        posted: set[str] = set()
        notes: list[str] = []
        for number, file in enumerate(files):
            name = name_of(file)
            if await self._post(room, file, f"{key}/{number}" if key else ""):
                posted.add(name)
            else:
                notes.append(await self._elsewhere(file, task_id))
        last = ""
        for number, piece in enumerate(self._pieces(said, notes, posted, mention)):
            numbered = f"{key}.{number}" if key else ""
            last = await self._channel.say(room, piece, reply_to=reply_to, key=numbered)
        return last

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

    def _pieces(
        self, said: LiteMessage | str, notes: Sequence[str], posted: set[str], mention: str
    ) -> list[str]:
        before = f"{mention} " if mention else ""
        limit = _limit_of(self._channel, before)
        if isinstance(said, str):
            texts = split_text("\n".join((said, *notes)), limit)
        else:
            body = "\n".join(filter(None, (said.body, *notes)))
            names = tuple(name for name in said.attachments if name in posted)
            texts = split(replace(said, body=body, attachments=names), limit)
        # Only the first piece names its reader: the others are recognised by their sender.
        return [before + text if number == 0 else text for number, text in enumerate(texts)]


def _limit_of(channel: Channel, before: str) -> TextLimit:
    """Returns how much may stand in one message behind a mention."""
    limits = channel.limits
    return TextLimit(limits.text - limits.size(before), limits.unit, limits.multiline)
