"""Files that were posted in rooms, until the message that they belong to names them.

Many channels carry a file in a message of its own, which comes before or after the text. So every
posted file is put on the shelf of its sender, and taken from there by its name.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from dragoman.core.errors import DragomanError, TooLarge
from dragoman.core.log import Logger
from dragoman.core.model import AnyPart, Blob, Text
from dragoman.files import safe_name
from dragoman.net.chat import Channel, ChatFile, ChatMessage

log = Logger("lite")

KEPT = 300.0
"""The seconds for which a file waits for the message that names it."""
LATE = 20.0
"""The seconds for which a message waits for the files that it names."""
MOST_FILES = 16
"""The files of one sender that wait in one room, and that one message may have."""
MOST_SENDERS = 1_000


class FileShelf:
    """The posted files of one channel."""

    def __init__(self, channel: Channel, *, late: float = LATE) -> None:
        self._channel, self._late = channel, late
        self._files: OrderedDict[tuple[str, str], list[tuple[float, ChatFile]]] = OrderedDict()
        self._news = asyncio.Event()

    def add(self, chat: ChatMessage) -> None:
        """Puts the files of a message on the shelf of its sender."""
        if not chat.files:
            return
        whose = (chat.room, chat.sender)
        now = asyncio.get_running_loop().time()
        found = self._fresh(whose, now)
        found += [(now, file) for file in chat.files]
        del found[:-MOST_FILES]
        self._files[whose] = found
        self._files.move_to_end(whose)
        if len(self._files) > MOST_SENDERS:
            self._files.popitem(last=False)
        self._news.set()
        self._news = asyncio.Event()

    def has(self, chat: ChatMessage, names: Sequence[str] | None) -> bool:
        """Returns whether all files that a message names have been posted."""
        found = self._fresh((chat.room, chat.sender), asyncio.get_running_loop().time())
        return not _absent(names or (), [file for _, file in found])

    async def parts(
        self, chat: ChatMessage, names: Sequence[str] | None, limit: int
    ) -> list[AnyPart]:
        """Returns the files of a message: those that it carries or names, and waits a while for
        those that come after it. With None in place of names, they are all that its sender has
        posted before. Raises `TooLarge` for one above the limit. A file that is missing is replaced
        by a text that says so, because the rest of the message still counts."""
        missing: list[str] = []
        if names is None:
            files = self._take_all(chat)
        else:
            files, missing = await self._take(chat, names)
        parts: list[AnyPart] = []
        for file in files[:MOST_FILES]:
            name = safe_name(file.name)
            try:
                body = await self._channel.fetch_file(file, limit)
            except TooLarge:
                raise TooLarge(f"The file {name} is larger than {limit} bytes.") from None
            except DragomanError as exc:
                log.warning("A file could not be fetched", room=chat.room, why=exc.reason)
                missing.append(name)
                continue
            parts.append(Blob(body, filename=name, media_type=file.media_type))
        return [
            *parts,
            *(Text(f"(The file {safe_name(name)} did not arrive.)") for name in missing),
        ]

    def _take_all(self, chat: ChatMessage) -> list[ChatFile]:
        found = self._fresh((chat.room, chat.sender), asyncio.get_running_loop().time())
        self._files.pop((chat.room, chat.sender), None)
        return [file for _, file in found]

    async def _take(
        self, chat: ChatMessage, names: Sequence[str]
    ) -> tuple[list[ChatFile], list[str]]:
        """Returns the files that a message names or carries, and the names of missing ones."""
        whose = (chat.room, chat.sender)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._late
        while True:
            news = self._news
            if self.has(chat, names):
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await news.wait()
            except TimeoutError:
                break
        rest = self._fresh(whose, loop.time())
        taken: list[ChatFile] = []
        missing: list[str] = []
        wanted = dict.fromkeys((*names, *(file.name for file in chat.files)))
        for name in wanted:
            found = next((each for each in reversed(rest) if same_name(each[1].name, name)), None)
            if found is None:
                missing.append(name)
            else:
                rest.remove(found)
                taken.append(found[1])
        self._files[whose] = rest
        return taken, missing

    def _fresh(self, whose: tuple[str, str], now: float) -> list[tuple[float, ChatFile]]:
        return [each for each in self._files.get(whose, []) if now - each[0] <= KEPT]


def same_name(posted: str, named: str) -> bool:
    """Returns whether a posted file is the one that a text names. Channels change names a little,
    for example the spaces in them."""
    return _plain(posted) == _plain(named)


def _plain(name: str) -> str:
    return "".join(each for each in name.casefold() if each.isalnum())


def _absent(names: Sequence[str], files: Sequence[ChatFile]) -> list[str]:
    posted = {_plain(each.name) for each in files}
    return [name for name in names if _plain(name) not in posted]
