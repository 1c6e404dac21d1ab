"""Downloads files from addresses that others named, through the guarded client and within
limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from dragoman.core.errors import BadParams, PeerRefused, TooLarge, Unauthenticated
from dragoman.security.outbound.guarded_http import (
    ALL_PORTS,
    GuardedHttp,
    HttpStream,
    Rules,
    Unreachable,
)

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes so far, and the total if it is known."""
CONNECT, IDLE = 10.0, 30.0
"""The seconds in which a connection must be open, and the longest silence in seconds after that."""
SHOWN = 200
"""The number of characters of an address that an error quotes."""


class Downloader:
    """Downloads files without any credentials, from addresses that anybody may have named."""

    def __init__(self, *, allow_private: bool, max_size: int, seconds: float, types: Iterable[str]):
        """`seconds` is the time that a whole download may take. `types` are the accepted media
        types, such as `image/*`; by default all are accepted."""
        self._http = GuardedHttp(Rules(allow_private=allow_private, ports=ALL_PORTS))
        self.max_size, self._seconds, self._types = max_size, seconds, tuple(types)

    async def chunks(self, url: str) -> AsyncGenerator[bytes, None]:
        """Yields a file as it arrives. Raises `BadParams` if the address may not be called or the
        type is not accepted, `TooLarge`, or `PeerRefused` if there is no such file."""
        try:
            async with asyncio.timeout(self._seconds):
                target = self._http.target(url)
                accept = {"accept": ", ".join(self._types) or "*/*"}
                opened = self._http.open("GET", target, headers=accept, connect=CONNECT, idle=IDLE)
                async with (
                    opened as stream,
                    aclosing(limited_chunks(stream, url, self.max_size)) as chunks,
                ):
                    if stream.status == 200:
                        self._check_type(stream, url)
                    async for chunk in chunks:
                        yield chunk
        except (TimeoutError, Unreachable) as exc:
            raise PeerRefused(f"The file at {url[:SHOWN]} cannot be downloaded: {exc}") from exc

    def _check_type(self, stream: HttpStream, url: str) -> None:
        given = stream.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self._types and not any(matches(given, each) for each in self._types):
            raise BadParams(
                f"The file at {url[:SHOWN]} is of the type {given[:SHOWN] or 'unknown'}"
            )

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.close()


def matches(media_type: str, pattern: str) -> bool:
    """Returns whether a media type is this one, or belongs to a family such as `image/*`."""
    family, _, kind = pattern.lower().partition("/")
    return media_type == pattern.lower() or (kind == "*" and media_type.startswith(f"{family}/"))


async def limited_chunks(
    stream: HttpStream, url: str, most: int, progress: Progress | None = None
) -> AsyncGenerator[bytes, None]:
    """Yields the file in a response, up to a size. Raises `TooLarge`, `Unauthenticated`, or
    `PeerRefused` if there is no such file."""
    total = _checked(stream, url, most)
    have = 0
    async for chunk in stream.chunks:
        have += len(chunk)
        if have > most:
            raise TooLarge(f"The file at {url[:SHOWN]} is larger than {most} bytes")
        if progress is not None:
            progress(have, total)
        yield chunk


def _checked(stream: HttpStream, url: str, most: int) -> int | None:
    """Returns the declared size, if the file exists and is not too large."""
    if stream.status in (401, 403):
        raise Unauthenticated(f"The file at {url[:SHOWN]} is not for us")
    if stream.status != 200:
        raise PeerRefused(f"The file at {url[:SHOWN]} is not there", code=stream.status)
    told = stream.headers.get("content-length", "")
    total = int(told) if told.isdecimal() and len(told) < 19 else None
    if total is not None and total > most:
        raise TooLarge(f"The file at {url[:SHOWN]} has {total} bytes, more than {most}")
    return total
