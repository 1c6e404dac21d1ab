"""Secrets at rest: sealed before they reach a store, opened by whoever has the server's key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MARK = "sealed.1."
_NONCE = 12


class Unopened(Exception):
    """It was sealed with another key, or in another place."""


class Seal:
    """Seals with a key made from the server's secret, another one for each purpose.

    A place (whose secret it is, and what) is bound to it: moved elsewhere, it does not open."""

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._cipher = AESGCM(hmac.digest(secret, purpose.encode(), hashlib.sha256))

    def closed(self, secret: bytes, *place: str) -> str:
        """The secret as it may be stored."""
        nonce = os.urandom(_NONCE)
        return _MARK + base64.b64encode(
            nonce + self._cipher.encrypt(nonce, secret, _bound(place))
        ).decode("ascii")

    def opened(self, sealed: str, *place: str) -> bytes:
        """The secret; `Unopened` if that cannot be."""
        try:
            box = base64.b64decode(sealed.removeprefix(_MARK), validate=True)
            return self._cipher.decrypt(box[:_NONCE], box[_NONCE:], _bound(place))
        except (InvalidTag, ValueError):
            raise Unopened from None


def _bound(place: tuple[str, ...]) -> bytes:
    return "\0".join(place).encode()
