"""The small values A2A versions share: times, counts, base64, and how a wrong one is told."""

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
    """A value that has the right type and still cannot be meant. Knows where it stood."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what, self.path = what, path

    def under(self, prefix: str) -> Wrong:
        """The same, seen from one level further out."""
        return Wrong(self.what, prefix + self.path)

    def __str__(self) -> str:
        """In msgspec's words, so all complaints read alike."""
        return f"{self.what} - at `${self.path}`" if self.path else self.what


def each(convert: Callable[[A], B], items: tuple[A, ...]) -> tuple[B, ...]:
    """All of them converted. Mostly there is one, and then `map` would cost more than it does."""
    return (convert(items[0]),) if len(items) == 1 else tuple(map(convert, items))


def convert_each(convert: Callable[[A], B], items: Iterable[A], path: str) -> Iterator[B]:
    """Converts one by one, so that a wrong one can say which it is."""
    for index, item in enumerate(items):
        try:
            yield convert(item)
        except Wrong as wrong:
            raise wrong.under(f"{path}[{index}]") from None


_MILLIS = tuple(f".{millis:03d}Z" for millis in range(1000))


@lru_cache(maxsize=256)
def _second_out(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:19]


def stamp_out(at: int) -> str:
    """Milliseconds as A2A 1.0 §5.6.1 wants them: UTC, three digits, Z."""
    return _second_out(at // 1000) + _MILLIS[at % 1000]


def stamp_in(text: str, path: str = "") -> int:
    """RFC 3339 as milliseconds. Without a zone it is UTC (0.3 examples leave it out)."""
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


def count_in(value: int | float | str, path: str, low: int = 0, high: int = MAX_INT32) -> int:
    """An int32 as ProtoJSON takes it: a whole number, or one in a string."""
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
    """Params as a query: ProtoJSON without the quotes."""
    words = {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in params.items()
    }
    return urlencode(words, quote_via=quote)


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S+").fullmatch


def check_links(parts: tuple[AnyPart, ...], path: str, member: str) -> None:
    """Raises `Wrong` for a link that leads nowhere; `member` is what holds its address. Only asked
    of what callers say: what peers tell us is read more kindly."""
    for part in parts:
        if type(part) is Link and not _URI(part.url):
            index = next(index for index, each in enumerate(parts) if each is part)
            what = "Expected an absolute URI such as https://example.com/file.pdf"
            raise Wrong(what, f"{path}[{index}]{member}")


def base64_out(content: bytes) -> str:
    """Standard alphabet, padded."""
    return binascii.b2a_base64(content, newline=False).decode("ascii")


def base64_in(text: str, path: str = "") -> bytes:
    """Standard or URL-safe alphabet, padded or not (ProtoJSON)."""
    if "-" in text or "_" in text:
        text = text.replace("-", "+").replace("_", "/")
    text = text.rstrip("=")
    try:
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:
        raise Wrong("Expected base64", path) from None
