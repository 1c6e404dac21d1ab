"""The simple values that the A2A versions share: times, counts and base64, and the error for an
invalid one."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from dragoman.core.model import AnyPart, Json, Link

A = TypeVar("A")
B = TypeVar("B")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_EARLIEST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_WHOLE = re.compile(r"-?[0-9]{1,10}").fullmatch
MAX_INT32 = 2**31 - 1


class Wrong(Exception):
    """A value of the right type that is not valid. It knows its place in the document."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what, self.path = what, path

    def under(self, prefix: str) -> Wrong:
        """Returns the same error with a path from one level further up."""
        return Wrong(self.what, prefix + self.path)

    def __str__(self) -> str:
        """Returns the message in the style of msgspec, so that all messages look the same."""
        return f"{self.what} - at `${self.path}`" if self.path else self.what


def each(convert: Callable[[A], B], items: tuple[A, ...]) -> tuple[B, ...]:
    """Returns all items converted. Usually there is only one, for which `map` would cost more."""
    return (convert(items[0]),) if len(items) == 1 else tuple(map(convert, items))


def convert_each(convert: Callable[[A], B], items: Iterable[A], path: str) -> Iterator[B]:
    """Converts one item after another, so that an error can name the wrong one."""
    for index, item in enumerate(items):
        try:
            yield convert(item)
        except Wrong as wrong:
            raise wrong.under(f"{path}[{index}]") from None


LONGEST_STAMP = 64
"""The characters of a time. A fraction may have any number of digits, and the latest times are kept
in memory."""
_MILLIS = tuple(f".{millis:03d}Z" for millis in range(1000))


@lru_cache(maxsize=256)
def _second_out(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:19]


def stamp_out(at: int) -> str:
    """Returns milliseconds in the form of A2A 1.0 §5.6.1: UTC, three digits, Z."""
    return _second_out(at // 1000) + _MILLIS[at % 1000]


@lru_cache(maxsize=256)  # several events of a task often have the same time
def stamp_in(text: str, path: str = "") -> int:
    """Returns a time of RFC 3339 in milliseconds. Without a zone it is UTC (0.3 examples leave it
    out)."""
    if len(text) > LONGEST_STAMP:
        raise Wrong("Expected a shorter time", path)
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError as exc:
        raise Wrong(str(exc), path) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    at = (moment - _EPOCH) // _MILLISECOND
    if not _EARLIEST <= at <= LATEST:
        raise Wrong("Expected a time within the years 1 to 9999", path)
    return at


_SMALL = {str(seq): seq for seq in range(100)}


def seq_in(mark: str) -> int:
    """Returns the position in the log, if the peer is one of ours. Other servers use SSE ids for
    something else."""
    small = _SMALL.get(mark)  # nearly all tasks have few events
    if small is not None:
        return small
    return int(mark) if mark.isdecimal() and mark.isascii() and len(mark) < 19 else 0


def count_in(value: int | float | str, path: str, low: int = 0, high: int = MAX_INT32) -> int:
    """Returns an int32 of ProtoJSON: a whole number, or one in a string."""
    match value:
        case int():
            number = value
        case float() if value.is_integer():
            number = int(value)
        case str() if _WHOLE(value):
            number = int(value)
        case _:
            raise Wrong("Expected a whole number", path)
    if not low <= number <= high:
        raise Wrong(f"Expected a number from {low} to {high}", path)
    return number


def query_out(params: Mapping[str, Json]) -> str:
    """Returns params as a query: ProtoJSON without the quotes."""
    words = {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in params.items()
    }
    return urlencode(words, quote_via=quote)


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S+").fullmatch


def check_links(parts: tuple[AnyPart, ...], path: str, member: str) -> None:
    """Raises `Wrong` for a link without an address; `member` is the member that holds it. Only the
    messages of callers are checked; those of peers are read more leniently."""
    for part in parts:
        if type(part) is Link and not _URI(part.url):
            index = next(index for index, each in enumerate(parts) if each is part)
            what = "Expected an absolute URI such as https://example.com/file.pdf"
            raise Wrong(what, f"{path}[{index}]{member}")


def base64_out(content: bytes) -> str:
    """Returns base64 in the standard alphabet, padded."""
    return binascii.b2a_base64(content, newline=False).decode("ascii")


def base64_in(text: str, path: str = "") -> bytes:
    """Reads base64 in the standard or URL-safe alphabet, padded or not (ProtoJSON)."""
    if "-" in text or "_" in text:
        text = text.replace("-", "+").replace("_", "/")
    text = text.rstrip("=")
    try:
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:
        raise Wrong("Expected base64", path) from None
