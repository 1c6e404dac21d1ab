"""Long messages: split so that a channel takes them, and joined again.

Where a message may have several lines, each piece of a long one repeats the marker with a parameter
`part=2/3`; `cut` tells what stood between it and the piece before it. Where every line is a message
of its own, as in IRC, the marker has a parameter `lines=5`, and the next five lines of the same
sender are its body: a line that ends with an odd number of backslashes continues on the next one.
Readers that know neither see the same text in several messages. Of agents that do not count their
lines, those that follow a marker shortly are its body.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import TooLarge

from .wire import (
    ACK,
    CANCEL,
    DISCOVER,
    REQUIRED,
    TASK,
    LiteMessage,
    escape,
    find_likenesses,
    parse,
    render,
    take_address,
    take_attachments,
    unescape,
)

PART, CUT, LINES = "part", "cut", "lines"
"""Our own parameters, which others ignore."""
MOST_PIECES = 999
"""The number of chat messages that one message may be split into."""
EXPIRES = 10 * 60 * 1000
"""How long, in milliseconds, the missing pieces of a message are awaited."""
MOST_OPEN = 256
"""The number of messages of which pieces are awaited at once."""
MAX_OPEN_PER_SENDER = 8
"""The number of those that one sender may have."""
PIECE_OVERHEAD = 100
"""The characters that a piece takes of its sender's share, beside its own: empty ones cost memory
too."""
BODY_QUIET_MILLISECONDS = 3_000
"""How long a sender is quiet behind a marker without `lines=` before its body is complete."""
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
        return self.size(text) <= self.most and (self.multiline or "\n" not in text)

    def room(self, taken: str) -> TextLimit:
        """Returns the limit of what may stand behind a text, and a line end."""
        return replace(self, most=max(8, self.most - self.size(taken) - 1))

    def size(self, text: str) -> int:
        """Returns how much of the limit a text takes."""
        match self.unit:
            case "bytes":
                return len(text.encode("utf-8", "replace"))
            case "utf-16":
                return len(text.encode("utf-16-le", "surrogatepass")) // 2
            case _:
                return len(text)


def split(message: LiteMessage, limit: TextLimit, most: int = MOST_PIECES) -> list[str]:
    """Returns the texts that say a message, each within the limit. Raises `TooLarge` if they are
    more than `most`."""
    whole = render(message)
    if limit.fits(whole):
        if limit.multiline:
            return [whole]
        # A reader knows that no body follows, and does not wait for one.
        counted = {**message.params, LINES: "0"}
        return [render(_short_marker(replace(message, params=counted), limit))]
    _check(len(whole) // limit.most, most)
    marker = _short_marker(message, limit)
    if not limit.multiline:
        lines = list(islice(_wrapped(whole.partition("\n")[2], limit), most + 1))
        _check(len(lines), most)
        params = {**marker.params, LINES: str(len(lines))}
        return [render(replace(marker, params=params)), *lines]
    # As long as the longest marker of a piece can be.
    room = limit.room(
        render(replace(marker, params={**marker.params, PART: "999/999", CUT: "space"}))
    )
    pieces = list(islice(_pieces(message.body, room), most + 1))
    names = render(replace(marker, attachments=message.attachments)).partition("\n")[2]
    if names and not room.fits(f"{escape(pieces[-1][1])}\n{names}"):
        pieces.append(("", ""))
    _check(len(pieces), most)
    texts = []
    for number, (seam, piece) in enumerate(pieces, 1):
        params = {**marker.params, PART: f"{number}/{len(pieces)}"}
        if seam:
            params[CUT] = _SEAM_NAMES[seam]
        texts.append(render(LiteMessage(message.type, params, piece)))
    return [*texts[:-1], f"{texts[-1]}\n{names}" if names else texts[-1]]


def split_text(text: str, limit: TextLimit, most: int = MOST_PIECES) -> list[str]:
    """Returns the pieces of a text without a marker, none of which can be read as one. Raises
    `TooLarge` if they are more than `most`."""
    lines = (text,) if limit.multiline else escape(text).split("\n")
    pieces = (piece for line in lines for _, piece in _pieces(line, limit) if piece.strip())
    found = list(islice(pieces, most + 1))
    _check(len(found), most)
    return [escape(piece) for piece in found] if limit.multiline else found


class Joined(Struct, frozen=True):
    """Something that was said, as a whole."""

    said: LiteMessage | str
    """A message, or a text without a marker."""
    first: object = None
    """What came with its first piece."""
    number: int = 0
    """The number of its first piece among all that were heard."""


class Joiner:
    """Joins the pieces of messages. Everything is kept per room and sender, so nobody can add to
    the message of another, and each sender has a share of the memory."""

    def __init__(self, *, most_text: int = 1024 * 1024, lines: bool = False) -> None:
        """`most_text` are the characters of one message, and of all unfinished messages of one
        sender. Beyond them, a message is damaged. With `lines`, every line is a message of its
        own, so a body comes in the lines behind its marker, also from agents that do not count
        them."""
        self._most_text, self._by_line = most_text, lines
        self._open: dict[tuple[str, ...], _Parts | _Lines] = {}
        """The unfinished messages, by their senders and rooms; the oldest comes first."""
        self._shares: dict[str, _Share] = {}
        self._number = 0

    def hear(
        self,
        room: str,
        sender: str,
        text: str,
        now: int,
        *,
        mentions: Iterable[str] = (),
        first: object = None,
    ) -> list[Joined]:
        """Returns what is whole now: nothing while pieces are missing, a message, or a text without
        a marker. `now` is the time in milliseconds; `first` is returned with the message that
        begins with this piece."""
        self._forget(now)
        self._number += 1
        message = parse(text, mentions=mentions)
        waiting = self._open.get((sender, room))
        if message is None:
            if isinstance(waiting, _Lines) and waiting.told and take_address(text, mentions)[0]:
                self._drop((sender, room))  # somebody turns to us with something new
                return [Joined(text, first, self._number)]
            if not isinstance(waiting, _Lines):
                return [Joined(text, first, self._number)]
            share = self._shares[sender]
            share.size += waiting.add(text, self._most_text - share.size, now)
            return self._finish(sender, room) if waiting.missing == 0 else []
        # A marker is never a line of a body, so the rest of that body is lost.
        heard = self._finish(sender, room) if waiting is not None else []
        count = _count_in(message.params.get(LINES, ""))
        if count is not None and not message.body:
            whole = _Lines(message, now, first, self._number, count)
            if count:
                self._keep((sender, room), whole)
                return heard
            return [*heard, Joined(whole.message(), first, self._number)]
        if self._by_line and not message.body and PART not in message.params:
            acts = message.type in (DISCOVER, CANCEL, ACK) or message.missing or not message.known
            waits = _Lines(message, now, first, self._number, None, told=bool(acts))
            self._keep((sender, room), waits)
            return [*heard, Joined(message, first, self._number)] if acts else heard
        joined = self._join(room, sender, message, len(text) + PIECE_OVERHEAD, now, first)
        return [*heard, joined] if joined is not None else heard

    def take_quiet(self, now: int) -> list[Joined]:
        """Returns the messages whose lines nobody has counted, and whose sender has been quiet for
        a while."""
        quiet = [
            key
            for key, each in self._open.items()
            if isinstance(each, _Lines) and each.missing is None and each.due <= now
        ]
        return [found for key in quiet for found in self._finish(*key)]

    @property
    def due(self) -> int | None:
        """The next time at which `take_quiet` has something to return, in milliseconds."""
        open_ended = (each for each in self._open.values() if isinstance(each, _Lines))
        return min((each.due for each in open_ended if each.missing is None), default=None)

    def is_begun(self, room: str, sender: str, task: str, before: int) -> bool:
        """Returns whether somebody else has begun to ask for a task of this id in the room, before
        the piece of this number."""
        return any(
            each.number < before
            and key[0] != sender
            and key[1] == room
            and each.marker.type == TASK
            and each.marker.task == task
            for key, each in self._open.items()
        )

    def _finish(self, sender: str, room: str) -> list[Joined]:
        waiting = self._drop((sender, room))
        if not isinstance(waiting, _Lines) or waiting.told:
            return []
        return [Joined(waiting.message(), waiting.first, waiting.number)]

    def _join(
        self, room: str, sender: str, message: LiteMessage, size: int, now: int, first: object
    ) -> Joined | None:
        number, total = _part_in(message.params.get(PART, ""))
        if not 1 <= number <= total:
            return Joined(message, first, self._number)
        key = (sender, room, message.type, message.task, str(total))
        parts = self._open.get(key)
        if not isinstance(parts, _Parts) or number in parts.pieces:
            # The same piece again begins another message: the rest of the first one is lost.
            parts = _Parts(now, self._number, message)
            self._keep(key, parts)
        parts.pieces[number] = message
        if number == 1:
            parts.first = first
        parts.size += size
        share = self._shares[sender]
        share.size += size
        too_long = share.size > self._most_text
        whole = len(parts.pieces) == total
        if too_long or whole:
            self._drop(key)
        if too_long:
            return Joined(replace(message, damaged=True), first, parts.number)
        if not whole:
            return None
        pieces = [parts.pieces[each] for each in range(1, total + 1)]
        return Joined(_joined(pieces), parts.first, parts.number)

    def _keep(self, key: tuple[str, ...], waiting: _Parts | _Lines) -> None:
        if key in self._open:
            self._drop(key)
        share = self._shares.setdefault(key[0], _Share())
        if share.count >= MAX_OPEN_PER_SENDER:
            self._drop(next(each for each in self._open if each[0] == key[0]))
        elif len(self._open) >= MOST_OPEN:
            greediest = max(self._shares, key=lambda sender: self._shares[sender].count)
            self._drop(next(each for each in self._open if each[0] == greediest))
        self._open[key] = waiting
        share = self._shares.setdefault(key[0], share)
        share.count += 1

    def _drop(self, key: tuple[str, ...]) -> _Parts | _Lines:
        waiting, share = self._open.pop(key), self._shares[key[0]]
        share.count -= 1
        share.size -= waiting.size
        if not share.count:
            del self._shares[key[0]]
        return waiting

    def _forget(self, now: int) -> None:
        while self._open and now - self._open[oldest := next(iter(self._open))].since > EXPIRES:
            self._drop(oldest)


class _Share(Struct):
    """What one sender has unfinished."""

    count: int = 0
    size: int = 0


class _Parts(Struct):
    """A message of which parts are missing."""

    since: int
    number: int
    marker: LiteMessage
    first: object = None
    pieces: dict[int, LiteMessage] = {}
    size: int = 0


class _Lines(Struct):
    """A message of which lines are missing."""

    marker: LiteMessage
    since: int
    first: object
    number: int
    missing: int | None
    """The number of missing lines; None if nobody has counted them."""
    told: bool = False
    """Whether the message needs no body and was returned before its lines, which are left out."""
    lines: list[str] = []
    size: int = 0
    cut: bool = False
    """Whether lines were left out, because there were too many."""
    due: int = 0

    def __post_init__(self) -> None:
        self.due = self.since + BODY_QUIET_MILLISECONDS

    def add(self, line: str, most: int, now: int) -> int:
        """Adds a line, unless it takes more than so many characters. Returns how many it takes."""
        if self.missing is not None:
            self.missing -= 1
        self.due = now + BODY_QUIET_MILLISECONDS
        size = len(line) + PIECE_OVERHEAD
        if size > most:
            self.cut = True
            return 0
        self.lines.append(line)
        self.size += size
        return size

    def message(self) -> LiteMessage:
        """Returns the message with the lines that have come."""
        params = {key: value for key, value in self.marker.params.items() if key != LINES}
        text = "\n".join(self.lines) if self.missing is None else _unwrapped(self.lines)
        body, names = take_attachments(text)
        return replace(
            self.marker,
            params=params,
            body=unescape(body),
            attachments=names,
            damaged=bool(self.missing) or self.cut,
        )


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
    seams = ("", *(_SEAMS.get(piece.params.get(CUT, ""), "") for piece in pieces[1:]))
    body = "".join(f"{seam}{piece.body}" for seam, piece in zip(seams, pieces, strict=True))
    last = pieces[-1]
    params = {key: value for key, value in last.params.items() if key not in (PART, CUT)}
    names = tuple(name for piece in pieces for name in piece.attachments)
    return LiteMessage(last.type, params, body, names, pieces[0].mention)


def _pieces(text: str, limit: TextLimit) -> Iterator[tuple[str, str]]:
    """Yields pieces that fit when they are escaped, each with what stood before it and is left
    out. A piece does not end with whitespace, which channels remove."""
    seam, start = "", 0
    # Only a window of the text is looked at, so that the work grows with the text, not its square.
    while len(text) - start > limit.most or not limit.fits(escape(text[start:])):
        window = text[start : start + limit.most + 1]
        end = start + _cut(window, _longest_escaped(window[: limit.most], limit))
        yield seam, text[start:end]
        seam = text[end] if text[end : end + 1] in _SEAM_NAMES else ""
        start = end + len(seam)
    yield seam, text[start:]


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
    continued = partial(_slashed, continues=True)
    for line in body.split("\n"):
        start = 0
        while len(line) - start > limit.most or not limit.fits(
            _slashed(line[start:], continues=False)
        ):
            window = line[start : start + limit.most + 1]
            end = _cut(window, _longest(window[: limit.most], limit, continued))
            # With fewer backslashes before it, a shorter piece may be longer when it is written.
            while end > 1 and not limit.fits(continued(window[:end])):
                end -= 1
            yield continued(window[:end])
            start += end
        rest = line[start:]
        # An empty line cannot be sent.
        yield _slashed(rest, continues=False) if rest.strip() else " "


def _longest(text: str, limit: TextLimit, written: Callable[[str], str]) -> int:
    """Returns how many characters of a text fit, at least one, when they are written like this."""
    ends = range(1, len(text) + 1)
    return max(1, bisect_right(ends, False, key=lambda end: not limit.fits(written(text[:end]))))


def _longest_escaped(text: str, limit: TextLimit) -> int:
    """Returns how many characters of a text fit, at least one, when they are escaped."""
    spaces = find_likenesses(text)  # once, since it takes longer than to measure a text

    def is_too_long(end: int) -> bool:
        return limit.size(text[:end]) + bisect_left(spaces, end) > limit.most

    return max(1, bisect_right(range(1, len(text) + 1), False, key=is_too_long))


def _slashed(line: str, *, continues: bool) -> str:
    slashes = len(line) - len(line.rstrip("\\"))
    return line + "\\" * (slashes + continues)


def _unwrapped(lines: Iterable[str]) -> str:
    pieces: list[str] = []
    for line in lines:
        bare = line.rstrip("\\")
        slashes = len(line) - len(bare)
        if line.strip():
            pieces += (bare, "\\" * (slashes // 2))
        if slashes % 2 == 0:
            pieces.append("\n")
    return "".join(pieces).removesuffix("\n")


def _part_in(text: str) -> tuple[int, int]:
    number, _, total = text.partition("/")
    return _count_in(number) or 0, _count_in(total) or 0


def _count_in(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else None


def _check(pieces: int, most: int) -> None:
    if pieces > most:
        raise TooLarge(f"The message would need more than {most} chat messages.")
