"""`X-IAT-Signature`: hex HMAC-SHA256 of `<X-IAT-Timestamp>.<body>` under the shared secret."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE, TIMESTAMP = "x-iat-signature", "x-iat-timestamp"


def signed(secret: str, body: bytes, now: float) -> dict[str, str]:
    """The headers that show who sends a body, and nothing that could be used for another one."""
    stamp = str(int(now))
    return {TIMESTAMP: stamp, SIGNATURE: signature(secret.encode(), stamp, body)}


def signature(secret: bytes, stamp: str, body: bytes) -> str:
    """How a message is signed."""
    return hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
