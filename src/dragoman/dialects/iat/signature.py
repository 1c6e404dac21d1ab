"""`X-IAT-Signature`: hex HMAC-SHA256 of `<X-IAT-Timestamp>.<body>` under the shared secret."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE, TIMESTAMP = "x-iat-signature", "x-iat-timestamp"


def signed(secret: str, body: bytes, now: float) -> dict[str, str]:
    """Returns the headers that authenticate the sender of a body. They are worthless for any other
    body."""
    stamp = str(int(now))
    return {TIMESTAMP: stamp, SIGNATURE: signature(secret.encode(), stamp, body)}


def signature(secret: bytes, stamp: str, body: bytes) -> str:
    """Returns the signature of a message."""
    return hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
