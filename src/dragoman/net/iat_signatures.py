"""`X-IAT-Signature`: hex HMAC-SHA256 of `<X-IAT-Timestamp>.<body>`, each good once.

What was used is remembered in the agent's store, as a digest: neither a restart nor another process
makes it good again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping

from ..errors import Unauthenticated
from ..store.sessions import SessionBook

SIGNATURE, TIMESTAMP = "x-iat-signature", "x-iat-timestamp"
_MOST_DIGITS = 11


class Signatures:
    """Checks what is signed with the shared secret."""

    def __init__(
        self, secret: str, window: float, clock: Callable[[], float], book: SessionBook
    ) -> None:
        self._secret, self._window, self._clock = secret.encode(), window, clock
        self._book = book

    async def check(self, headers: Mapping[str, str], body: bytes) -> None:
        """`Unauthenticated` if it is wrong, old, or was seen before."""
        stamp, now = headers.get(TIMESTAMP, ""), self._clock()
        if not self._secret or not (
            stamp.isascii() and stamp.isdigit() and len(stamp) <= _MOST_DIGITS
        ):
            raise Unauthenticated()
        given = headers[SIGNATURE].strip().lower().encode("latin-1", "replace")
        wanted = signature(self._secret, stamp, body).encode()
        fresh = abs(now - int(stamp)) <= self._window
        if not hmac.compare_digest(given, wanted) or not fresh:
            raise Unauthenticated()
        # A stamp may lie a window ahead, and is then good for two.
        until = int((now + 2 * self._window) * 1000)
        if not await self._book.first(hashlib.sha256(wanted).digest(), until):
            raise Unauthenticated("This message was sent before.")


def signed(secret: str, body: bytes, now: float) -> dict[str, str]:
    """The headers that show who sends a body, and nothing that could be used for another one."""
    stamp = str(int(now))
    return {TIMESTAMP: stamp, SIGNATURE: signature(secret.encode(), stamp, body)}


def signature(secret: bytes, stamp: str, body: bytes) -> str:
    """How a message is signed."""
    return hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
