"""Files of a chat service, read within limits."""

from __future__ import annotations

from urllib.parse import urlsplit

from dragoman.core.errors import DragomanError, PeerRefused, PeerUnreachable, TooLarge
from dragoman.security.outbound.guarded_http import (
    ALL_PORTS,
    GuardedHttp,
    Rules,
    TypedHost,
    Unreachable,
)

SECONDS = 120.0
"""The time that one download may take."""


class ChatDownloads:
    """A client that may call the service, which the operator named, and public addresses, which
    messages may name."""

    def __init__(self, service: str) -> None:
        rules = Rules(ports=ALL_PORTS)
        host = (urlsplit(service).hostname or "").lower()
        self._http = GuardedHttp(rules, typed=TypedHost(host, rules))

    async def get(
        self, url: str, limit: int, *, name: str, headers: dict[str, str] | None = None
    ) -> bytes:
        """Returns the content of a file. Raises `TooLarge` above the limit, and `PeerUnreachable`
        if it cannot be had."""
        try:
            reply = await self._http.request(
                "GET", url, headers=headers, seconds=SECONDS, max_size=limit
            )
        except (Unreachable, DragomanError) as exc:
            raise PeerUnreachable(f"The file {name} cannot be read: {exc}") from exc
        if reply.status != 200:
            raise PeerRefused(f"The file {name} cannot be read ({reply.status})", code=reply.status)
        if not reply.whole:
            raise TooLarge(f"The file {name} is larger than {limit} bytes")
        return reply.body

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.close()
