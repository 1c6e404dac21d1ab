"""Long messages: split so that a channel takes them, and joined again.

Where a message may have several lines, each piece of a long one repeats the marker with a parameter
`part=2/3`; `cut` tells what stood between it and the piece before it. Where every line is a message
of its own, as in IRC, the marker has a parameter `lines=5`, and the next five lines of the same
sender are its body: a line that ends with an odd number of backslashes continues on the next one.
Readers that know neither see the same text in several messages.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import TooLarge

from .wire import REQUIRED, LiteMessage, escape, parse, render, take_attachments, unescape

PART, CUT, LINES = "part", "cut", "lines"
"""Our own parameters, which others ignore."""
MOST_PIECES = 999
"""The number of chat messages that one message may be split into."""
EXPIRES = 10 * 60 * 1000
"""How long, in milliseconds, the missing pieces of a message are awaited."""
MOST_OPEN = 256
"""The number of messages of which pieces are awaited at once."""
_SEAMS = {"line": "\n", "space": " "}
_SEAM_NAMES = {"\n": "line", " ": "space"}


class TextLimit(Struct, frozen=True):
    """How much text one message of a channel may hold."""

    most: int
    unit: Literal["bytes", "characters", "utf-16"] = "characters"
    multiline: bool = True
    """Whether a message may have several lines."""

    def fits(self, text: str) -> bool:
        """Returns whether one message may hold this text."""
        return self._size(text) <= self.most and (self.multiline or "\n" not in text)

    def room(self, taken: str) -> TextLimit:
        """Returns the limit of what may stand behind a text, and a line end."""
        return replace(self, most=max(8, self.most - self._size(taken) - 1))

    def _size(self, text: str) -> int:
        match self.unit:
            case "bytes":
                return len(text.encode("utf-8", "replace"))
            case "utf-16":
                return len(text) + sum(each > "\uffff" for each in text)
            case _:
                return len(text)


def split(message: LiteMessage, limit: TextLimit) -> list[str]:
    """Returns the texts that say a message, each within the limit. Raises `TooLarge` if they are
    more than `MOST_PIECES`."""
    whole = render(message)
    if limit.fits(whole):
        return [whole]
    _check(len(whole) // limit.most)
    marker = _short_marker(message, limit)
    if not limit.multiline:
        lines = list(_wrapped(whole.partition("\n")[2], limit))
        _check(len(lines))
        counted = {**marker.params, LINES: str(len(lines))}
        return [render(replace(marker, params=counted)), *lines]
    # As long as the longest marker of a piece can be.
    room = limit.room(
        render(replace(marker, params={**marker.params, PART: "999/999", CUT: "space"}))
    )
    pieces = list(_pieces(message.body, room))
    names = render(replace(marker, attachments=message.attachments)).partition("\n")[2]
    if names and not room.fits(f"{escape(pieces[-1][1])}\n{names}"):
        pieces.append(("", ""))
    _check(len(pieces))
    texts = []
    for number, (seam, piece) in enumerate(pieces, 1):
        params = {**marker.params, PART: f"{number}/{len(pieces)}"}
        if seam:
            params[CUT] = _SEAM_NAMES[seam]
        texts.append(render(LiteMessage(message.type, params, piece)))
    return [*texts[:-1], f"{texts[-1]}\n{names}" if names else texts[-1]]


def split_text(text: str, limit: TextLimit) -> list[str]:
    """Returns the pieces of a text without a marker, none of which can be read as one."""
    if limit.multiline:
        return [escape(piece) for _, piece in _pieces(text, limit) if piece.strip()]
    lines = escape(text).split("\n")
    return [piece for line in lines for _, piece in _pieces(line, limit) if piece.strip()]


class Joiner:
    """Joins the pieces of messages. Everything is kept per room and sender, so nobody can add to
    the message of another."""

    def __init__(self, *, most_text: int = 1024 * 1024) -> None:
        """`most_text` are the characters of one message. Beyond them, a piece is a message of its
        own, and lines are left out."""
        self._most_text = most_text
        self._open: dict[tuple[str, ...], _Parts | _Lines] = {}

    def hear(
        self, room: str, sender: str, text: str, now: int, *, mentions: Iterable[str] = ()
    ) -> list[LiteMessage | str]:
        """Returns what is whole now: nothing while pieces are missing, a message, or a text without
        a marker. `now` is the time in milliseconds."""
        self._forget(now)
        message = parse(text, mentions=mentions)
        waiting = self._open.get((room, sender))
        if message is None:
            if not isinstance(waiting, _Lines):
                return [text]
            waiting.add(text, self._most_text)
            return self._finish(room, sender) if waiting.missing <= 0 else []
        # A marker is never a line of a body, so the rest of that body is lost.
        heard = self._finish(room, sender) if waiting is not None else []
        count = _count_in(message.params.get(LINES, ""))
        if count and not message.body:
            self._keep((room, sender), _Lines(message, now, count))
            return heard
        joined = self._join(room, sender, message, now)
        return [*heard, joined] if joined is not None else heard

    def _finish(self, room: str, sender: str) -> list[LiteMessage | str]:
        waiting = self._open.pop((room, sender))
        return [waiting.message()] if isinstance(waiting, _Lines) else []

    def _join(self, room: str, sender: str, message: LiteMessage, now: int) -> LiteMessage | None:
        number, total = _part_in(message.params.get(PART, ""))
        if not 1 <= number <= total:
            return message
        key = (room, sender, message.type, message.task, str(total))
        parts = self._open.get(key)
        if not isinstance(parts, _Parts) or number in parts.pieces:
            # The same piece again begins another message: the rest of the first one is lost.
            parts = _Parts(now)
            self._keep(key, parts)
        parts.pieces[number] = message
        parts.size += len(message.body)
        if parts.size > self._most_text or len(parts.pieces) == total:
            del self._open[key]
        if parts.size > self._most_text:
            return message
        whole = len(parts.pieces) == total
        return _joined([parts.pieces[each] for each in range(1, total + 1)]) if whole else None

    def _keep(self, key: tuple[str, ...], waiting: _Parts | _Lines) -> None:
        self._open.pop(key, None)
        self._open[key] = waiting
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    def _forget(self, now: int) -> None:
        while self._open and now - self._open[oldest := next(iter(self._open))].since > EXPIRES:
            del self._open[oldest]


class _Parts(Struct):
    """A message of which parts are missing."""

    since: int
    pieces: dict[int, LiteMessage] = {}
    size: int = 0


class _Lines(Struct):
    """A message of which lines are missing."""

    marker: LiteMessage
    since: int
    missing: int
    lines: list[str] = []
    size: int = 0

    def add(self, line: str, most: int) -> None:
        self.missing -= 1
        self.size += len(line)
        if self.size <= most:
            self.lines.append(line)

    def message(self) -> LiteMessage:
        """Returns the message with the lines that have come."""
        params = {key: value for key, value in self.marker.params.items() if key != LINES}
        body, names = take_attachments(_unwrapped(self.lines))
        return replace(self.marker, params=params, body=unescape(body), attachments=names)


def _short_marker(message: LiteMessage, limit: TextLimit) -> LiteMessage:
    """Returns the message without its body, and without as many of its optional parameters as do
    not fit."""
    params = dict(message.params)
    optional = [key for key in params if key not in REQUIRED.get(message.type, ())]
    most = replace(limit, most=limit.most * 2 // 3 if limit.multiline else limit.most - 10)
    while optional and not most.fits(render(LiteMessage(message.type, params))):
        del params[optional.pop()]
    return LiteMessage(message.type, params)


def _joined(pieces: list[LiteMessage]) -> LiteMessage:
    body = pieces[0].body
    for piece in pieces[1:]:
        body += _SEAMS.get(piece.params.get(CUT, ""), "") + piece.body
    last = pieces[-1]
    params = {key: value for key, value in last.params.items() if key not in (PART, CUT)}
    names = tuple(name for piece in pieces for name in piece.attachments)
    return LiteMessage(last.type, params, body, names, pieces[0].mention)


def _pieces(text: str, limit: TextLimit) -> Iterator[tuple[str, str]]:
    """Yields pieces that fit when they are escaped, each with what stood before it and is left
    out. A piece does not end with whitespace, which channels remove."""
    seam = ""
    while not limit.fits(escape(text)):
        at = _cut(text, _longest(text[: limit.most], limit, escape))
        yield seam, text[:at]
        seam = text[at] if text[at : at + 1] in _SEAM_NAMES else ""
        text = text[at + len(seam) :]
    yield seam, text


def _cut(text: str, most: int) -> int:
    """Returns where to cut a text: at the end of a line, else of a word, else of a character."""
    for wanted in ("\n", " "):
        at = most
        while (at := text.rfind(wanted, most // 2, at + 1)) > 0:
            if not text[at - 1].isspace():
                return at
            at -= 1
    for at in range(most, most // 2, -1):
        joined = at < len(text) and (unicodedata.combining(text[at]) or text[at] in "\u200d\ufe0f")
        if not text[at - 1].isspace() and text[at - 1] != "\u200d" and not joined:
            return at
    return most


def _wrapped(body: str, limit: TextLimit) -> Iterator[str]:
    """Yields the lines of a body, of which each fits in a message."""
    for line in body.split("\n"):
        while not limit.fits(_slashed(line, continues=False)):
            at = _cut(line, _longest(line[: limit.most], limit, partial(_slashed, continues=True)))
            # With fewer backslashes before it, a shorter piece may be longer when it is written.
            while at > 1 and not limit.fits(_slashed(line[:at], continues=True)):
                at -= 1
            yield _slashed(line[:at], continues=True)
            line = line[at:]
        # An empty line cannot be sent.
        yield _slashed(line, continues=False) if line.strip() else " "


def _longest(text: str, limit: TextLimit, written: Callable[[str], str]) -> int:
    """Returns how many characters of a text fit, at least one, when they are written like this."""
    ends = range(1, len(text) + 1)
    return max(1, bisect_right(ends, False, key=lambda end: not limit.fits(written(text[:end]))))


def _slashed(line: str, *, continues: bool) -> str:
    slashes = len(line) - len(line.rstrip("\\"))
    return line + "\\" * (slashes + continues)


def _unwrapped(lines: Iterable[str]) -> str:
    body = ""
    for line in lines:
        bare = line.rstrip("\\")
        slashes = len(line) - len(bare)
        body += bare + "\\" * (slashes // 2) if line.strip() else ""
        body += "" if slashes % 2 else "\n"
    return body.removesuffix("\n")


def _part_in(text: str) -> tuple[int, int]:
    number, _, total = text.partition("/")
    return _count_in(number) or 0, _count_in(total) or 0


def _count_in(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else None


def _check(pieces: int) -> None:
    if pieces > MOST_PIECES:
        raise TooLarge(f"The message would need more than {MOST_PIECES} chat messages.")
