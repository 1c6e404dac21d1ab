"""Encrypts secrets before they reach a store. Only the server's key opens them again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MARK = "sealed.1."
_NONCE = 12


class Unopened(Exception):
    """The secret was sealed with another key, or for another place."""


class Seal:
    """Seals secrets with a key that is derived from the server's secret for one purpose.

    A sealed secret is bound to its place, such as the id of its task. Someone who can write to the
    store can therefore not have it opened in another place."""

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._key = hmac.digest(secret, purpose.encode(), hashlib.sha256)

    @cached_property
    def _cipher(self) -> AESGCM:
        # Imported with the first secret: it takes six megabytes, and most servers never have one.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)

    def seal(self, secret: bytes, *place: str) -> str:
        """Returns the secret in a form that may be stored."""
        nonce = os.urandom(_NONCE)
        return _MARK + base64.b64encode(
            nonce + self._cipher.encrypt(nonce, secret, _bound(place))
        ).decode("ascii")

    def open(self, sealed: str, *place: str) -> bytes:
        """Returns the secret. Raises `Unopened` if it was sealed with another key or for another
        place."""
        from cryptography.exceptions import InvalidTag

        try:
            box = base64.b64decode(sealed.removeprefix(_MARK), validate=True)
            return self._cipher.decrypt(box[:_NONCE], box[_NONCE:], _bound(place))
        except (InvalidTag, ValueError):
            raise Unopened from None


def _bound(place: tuple[str, ...]) -> bytes:
    return "\0".join(place).encode()
