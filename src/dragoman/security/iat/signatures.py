"""`X-IAT-Signature`: hex HMAC-SHA256 of `<X-IAT-Timestamp>.<body>`, each good once.

What was used is remembered in the agent's store, as a digest: neither a restart nor another process
makes it good again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping

from dragoman.core.errors import Unauthenticated
from dragoman.dialects.iat.signature import SIGNATURE, TIMESTAMP, signature
from dragoman.store.sessions import SessionStore

_is_stamp = re.compile(r"[0-9]{1,11}").fullmatch
_is_digest = re.compile(r"[0-9a-f]{64}").fullmatch


class Signatures:
    """Checks what is signed with the shared secret."""

    def __init__(
        self, secret: str, window: float, clock: Callable[[], float], store: SessionStore
    ) -> None:
        self._secret, self._window, self._clock = secret.encode(), window, clock
        self._store = store

    def check_form(self, headers: Mapping[str, str]) -> tuple[str, str]:
        """Returns the time and the signature. Raises `Unauthenticated` if they could be right for
        no body."""
        stamp, given = headers.get(TIMESTAMP, ""), headers[SIGNATURE].strip().lower()
        if not self._secret or not _is_stamp(stamp) or not _is_digest(given):
            raise Unauthenticated()
        if abs(self._clock() - int(stamp)) > self._window:
            raise Unauthenticated()
        return stamp, given

    async def check(self, headers: Mapping[str, str], body: bytes) -> None:
        """`Unauthenticated` if it is wrong, old, or was seen before."""
        stamp, given = self.check_form(headers)
        wanted = signature(self._secret, stamp, body)
        if not hmac.compare_digest(given, wanted):
            raise Unauthenticated()
        # A stamp may lie a window ahead, and is then good for two.
        until = int((self._clock() + 2 * self._window) * 1000)
        if not await self._store.first(hashlib.sha256(wanted.encode()).digest(), until):
            raise Unauthenticated("This message was sent before.")
