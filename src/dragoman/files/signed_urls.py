"""Signed addresses of files, which are valid for a limited time and for one file only."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

FILES = "/files"
"""The path below which the files are served, at the root of the server."""
_DIGITS = 12
"""The maximum number of digits of a time in seconds."""


class SignedPath(NamedTuple):
    """An address that we have signed: the file, and the time until which it may be downloaded."""

    file_id: str
    name: str
    expires: int
    """The time in seconds since the epoch."""


class UrlSigner:
    """Signs addresses of files with a key that is derived from the server's secret."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"dragoman file urls", hashlib.sha256)

    def sign(self, file_id: str, name: str, expires: int) -> str:
        """Returns the path of a file and its query, relative to the address of the server."""
        signature = self._signature(file_id, name, expires)
        where = f"{FILES}/{file_id}/{quote(name, safe='')}"
        return f"{where}?expires={expires}&signature={signature}"

    def verify(self, path: str, query: bytes) -> SignedPath | None:
        """Returns the content of an address if we have signed exactly that, or None. `path` is the
        decoded path of the request. This does not check whether the address has expired."""
        words = path.removeprefix(f"{FILES}/").split("/")
        if len(words) != 2:
            return None
        try:
            pairs = parse_qsl(query.decode("ascii"), strict_parsing=True, max_num_fields=2)
        except ValueError:  # UnicodeDecodeError is one, too
            return None
        given = dict(pairs)
        expires, signature = given.get("expires", ""), given.get("signature", "")
        if not (expires.isascii() and expires.isdecimal() and len(expires) <= _DIGITS):
            return None
        found = SignedPath(words[0], words[1], int(expires))
        # They are compared as bytes, in a time that does not depend on where they differ.
        right = hmac.compare_digest(self._signature(*found).encode(), signature.encode())
        return found if right else None

    def _signature(self, file_id: str, name: str, expires: int) -> str:
        # Neither a name nor an id contains line ends, so no two addresses sign the same text.
        text = f"{file_id}\n{name}\n{expires}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()
