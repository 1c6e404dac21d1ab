"""Stores tokens by origin and scheme, in memory or in a file that only the user may read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError

from .private_files import locked, read_private, write_private

MARGIN = 60.0
"""The seconds before its expiry at which a token is renewed."""
SHARE = 0.1
"""The largest share of its lifetime by which a token is renewed early: some live for a minute."""


class StoredToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored credential for one origin under one scheme of its card."""

    origin: str
    """The origin to which it is sent."""
    scheme: str
    """The name of the scheme on the card."""
    secret: str
    """The access token, the key, the fixed token, or `user:password`."""
    kind: str = "token"
    """The kind: `token` of an authorization server, `key`, `bearer` or `basic`."""
    refresh: str = ""
    at: float = 0.0
    until: float = 0.0
    """The time when it expires; 0 if the server did not say."""
    scopes: tuple[str, ...] = ()
    token_url: str = ""
    """The address of the server that issued it."""
    refresh_url: str = ""
    """The address at which it is renewed, if that is another one. `refresh` is sent nowhere
    else."""
    client_id: str = ""
    issuer: str = ""

    def __repr__(self) -> str:
        return f"Kept({self.origin!r}, {self.scheme!r}, kind={self.kind!r}, until={self.until})"

    @property
    def renew_at(self) -> float | None:
        """Returns when to fetch the next token, or None if its expiry is not known."""
        if not self.until:
            return None
        return self.until - min(MARGIN, max(0.0, self.until - self.at) * SHARE)

    def fresh(self, now: float) -> bool:
        """Returns whether it need not be renewed yet."""
        return self.renew_at is None or now < self.renew_at

    def alive(self, now: float) -> bool:
        """Returns whether it has not expired."""
        return not self.until or now < self.until


class _File(Struct, frozen=True):
    tokens: tuple[StoredToken, ...] = ()
    version: int = 1


class TokenStore:
    """The stored tokens. Without a path they are kept in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory: tuple[StoredToken, ...] = ()

    def get(self, origin: str, scheme: str) -> StoredToken | None:
        """Returns the token for this origin and scheme. The file is read each time, since other
        processes change it."""
        return next((k for k in self.all() if (k.origin, k.scheme) == (origin, scheme)), None)

    def all(self) -> tuple[StoredToken, ...]:
        """Returns all tokens."""
        if self._path is None:
            return self._memory
        content = read_private(self._path)
        if not content:
            return ()
        try:
            return msgspec.json.decode(content, type=_File).tokens
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigError(f"{self._path} is damaged. Remove it and log in again.") from None

    def put(self, kept: StoredToken) -> None:
        """Stores a token in place of the former one."""
        self._change(lambda k: (k.origin, k.scheme) != (kept.origin, kept.scheme), kept)

    def drop(self, origin: str, scheme: str | None = None) -> int:
        """Deletes the tokens of an origin and returns how many there were."""
        return self._change(lambda k: k.origin != origin or scheme not in (None, k.scheme))

    def _change(self, stays: Callable[[StoredToken], bool], more: StoredToken | None = None) -> int:
        if self._path is None:
            before = self._memory
            self._memory = (*filter(stays, before), *((more,) if more else ()))
            return len(before) - len(self._memory)
        if more is None and not self._path.exists():
            return 0
        with locked(self._path):
            before = self.all()
            after = (*filter(stays, before), *((more,) if more else ()))
            if after != before:
                content = msgspec.json.format(msgspec.json.encode(_File(after)))
                write_private(self._path, content + b"\n")
        return len(before) - len(after)
