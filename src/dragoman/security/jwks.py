"""The keys of an issuer: from a file, or fetched, kept for a while and fetched again when needed.

Nobody can make us fetch often: a key id that we do not know asks for another look only once in
`PAUSE` seconds, and while a look is on its way all others wait for the same one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dragoman.core.errors import ConfigError, DragomanError, StoreUnavailable

from .outbound.guarded_http import GuardedHttp, Rules, Unreachable

Fetch = Callable[[str], Awaitable[bytes]]
"""Gets a document through the guarded client (DESIGN §5.10)."""

MOST_BYTES = 256 * 1024
PAUSE = 30.0
"""Seconds between two fetches that somebody else's token asks for."""
STALE = 24 * 3600.0
"""Seconds for which old keys still count while the issuer does not answer."""
MOST_KEYS = 64

Jwk = Mapping[str, Any]


class KeySource:
    """The public keys of one issuer, as JWKs by key id."""

    def __init__(
        self,
        name: str,
        *,
        url: str = "",
        discovery: str = "",
        issuer: str = "",
        keep: float = 600.0,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys: list[Jwk] = []
        self.edition = 0
        """Grows whenever the keys change, so what was derived from them can be thrown away."""
        self._name, self._url, self._discovery, self._issuer = name, url, discovery, issuer
        self._keep, self._fetch, self._clock = keep, fetch, clock
        self._fetched: float | None = None
        self._tried: float | None = None
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    def from_file(cls, name: str, path: str) -> KeySource:
        """Keys that do not change while we run."""
        source = cls(name)
        try:
            source.keys = keys_in(Path(path).read_bytes())
        except (OSError, ValueError) as exc:
            raise ConfigError(f"[auth.{name}]: {path} is not a key set: {exc}") from None
        return source

    @property
    def fixed(self) -> bool:
        """Whether the keys came from a file."""
        return self._fetch is None

    def due(self, *, unknown: bool) -> bool:
        """Returns whether to look again now: the keys are old, or (unknown) a token names another
        one."""
        if self.fixed:
            return False
        now = self._clock()
        if self._tried is not None and now - self._tried < PAUSE:
            return False
        return unknown or self._fetched is None or now - self._fetched > self._keep

    @property
    def usable(self) -> bool:
        """Whether there are keys that still count."""
        if self.fixed:
            return True
        return self._fetched is not None and self._clock() - self._fetched < STALE

    async def look(self) -> None:
        """Fetches the keys; `StoreUnavailable` if there are none and none can be had."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
            self._looking.add_done_callback(self._looked)
        await asyncio.shield(self._looking)

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled():
            task.exception()  # told to those who waited

    async def _look(self) -> None:
        assert self._fetch is not None  # noqa: S101  only sources with an address are due
        self._tried = self._clock()
        try:
            if not self._url:
                self._url = self._jwks_uri(await self._fetch(self._discovery))
            found = keys_in(await self._fetch(self._url))
        except (DragomanError, ValueError, OSError) as exc:
            if not self.usable:
                raise StoreUnavailable(
                    "The keys of the token's issuer cannot be fetched now; try again later.",
                    retry_after=str(int(PAUSE)),
                ) from exc
            return
        self._fetched = self._clock()
        if found != self.keys:
            self.keys, self.edition = found, self.edition + 1

    def _jwks_uri(self, body: bytes) -> str:
        """OpenID Connect Discovery §4.3: the document must be the issuer's own."""
        said = msgspec.json.decode(body)
        if not isinstance(said, dict) or said.get("issuer") != self._issuer:
            raise ValueError("the OpenID configuration is that of another issuer")
        uri = said.get("jwks_uri")
        if not isinstance(uri, str) or not uri.startswith(("https://", "http://")):
            raise ValueError("the OpenID configuration names no jwks_uri")
        return uri


class KeysNeeded(Exception):
    """The keys must be fetched before this can be decided."""

    def __init__(self, source: KeySource) -> None:
        super().__init__()
        self.source = source


class JwksFetcher:
    """Fetches documents of issuers through the guarded client."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._egress: GuardedHttp | None = None

    async def __call__(self, url: str) -> bytes:
        """Returns the document, or raises `ValueError` if it cannot be fetched."""
        if not self._allow_private and not url.startswith("https://"):
            raise ValueError("keys come over https only")
        if self._egress is None:
            self._egress = GuardedHttp(Rules(allow_private=self._allow_private))
        try:
            reply = await self._egress.request(
                "GET", url, headers={"accept": "application/json"}, max_size=MOST_BYTES
            )
        except Unreachable as exc:
            raise ValueError(str(exc)) from exc
        if reply.status != 200 or not reply.whole:
            raise ValueError(f"status {reply.status}")
        return reply.body

    async def close(self) -> None:
        """Closes the connections."""
        if self._egress is not None:
            await self._egress.close()


def keys_in(body: bytes) -> list[Jwk]:
    """Returns the public signing keys in a JWKS. Raises `ValueError` if it is not one."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError as exc:
        raise ValueError(str(exc)) from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list) or len(keys) > MOST_KEYS:
        raise ValueError("there is no list of keys, or it is too long")
    # A shared secret has no place here, and what is for encryption proves nothing.
    return [
        key
        for key in keys
        if isinstance(key, dict)
        and key.get("kty") in ("RSA", "EC", "OKP")
        and key.get("use", "sig") == "sig"
    ]
