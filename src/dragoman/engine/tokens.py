"""Page tokens: where a list goes on, signed, and bound to whose list it is and what it shows."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from ..errors import BadParams

_MAC = 16


def sign(secret: bytes, place: tuple[int, str], bound: object) -> str:
    """A token for this place in this list."""
    body = msgspec.msgpack.encode(place)
    return urlsafe_b64encode(_mac(secret, body, bound) + body).decode().rstrip("=")


def read(secret: bytes, token: str, bound: object) -> tuple[int, str]:
    """The place a token names; `BadParams` if it is not ours or of another list."""
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        mac, body = raw[:_MAC], raw[_MAC:]
        if hmac.compare_digest(mac, _mac(secret, body, bound)):
            return msgspec.msgpack.decode(body, type=tuple[int, str])
    except (ValueError, msgspec.MsgspecError):
        pass
    raise BadParams("The page token is not valid for this list", field="pageToken")


def _mac(secret: bytes, body: bytes, bound: object) -> bytes:
    return hmac.digest(secret, body + msgspec.msgpack.encode(bound), hashlib.sha256)[:_MAC]
