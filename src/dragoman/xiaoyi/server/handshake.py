"""Checks the handshake of an agent that dials in.

The signature covers only the time. Therefore it is valid once, near its time, and only for the
agents for which the access key was created. A signature is valid once for each of our host names,
because an agent may dial two of them in the same millisecond; the host name is not signed, so only
configured names count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from dragoman.core.errors import ConfigError, Forbidden, Unauthenticated
from dragoman.core.log import Logger
from dragoman.dialects.xiaoyi.signing import ACCESS_KEY, AGENT_ID, SIGN, TIMESTAMP, verify
from dragoman.net.strangers import RefusalLog
from dragoman.store.clock import Clock
from dragoman.store.sessions import SessionStore

from ..keys import KeyRing

log = Logger("xiaoyi")

_LONGEST = 20
"""The maximum number of digits of a time."""


class LinkHandshake:
    """Decides which handshakes are accepted."""

    def __init__(
        self,
        ring: KeyRing,
        used: SessionStore,
        clock: Clock,
        *,
        window: float,
        name_in: Callable[[str], str],
    ) -> None:
        """`name_in` returns the name in a `Host` header, if it is one of the configured names of
        this server."""
        self._ring, self._used, self._clock = ring, used, clock
        self._window, self._name_in = int(window * 1000), name_in
        self._refusals = RefusalLog(log, "A link is refused")
        self.on_refusal: Callable[[str, str], None] = lambda agent_id, why: None
        """Called with an agent that was refused although its access key is valid, and why."""

    async def check(self, headers: Mapping[str, str]) -> tuple[str, str]:
        """Returns the access key and the agent id. Raises `Unauthenticated`, or `Forbidden` for an
        agent for which the key was not created."""
        access_key, agent_id = headers.get(ACCESS_KEY, ""), headers.get(AGENT_ID, "")
        stamp, signature = headers.get(TIMESTAMP, ""), headers.get(SIGN, "")
        if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= _LONGEST):
            raise self._refused(access_key, "no time in x-ts")
        try:
            found = await self._ring.find(access_key)
        except ConfigError as exc:
            log.error("A link cannot be checked", exc)
            raise Unauthenticated() from exc
        if found is None:
            raise self._refused(access_key, "an unknown or revoked access key")
        key, secret = found
        # Only keys that we made may add to the figures of their own agents.
        claimed = agent_id if agent_id in key.agent_ids else ""
        if abs(self._clock() - int(stamp)) > self._window:
            raise self._refused(access_key, "the clock of the agent is wrong", claimed)
        if not verify(secret, stamp, signature):
            raise self._refused(access_key, "a wrong signature", claimed)
        place = self._name_in(headers.get("host", ""))
        mark = hashlib.sha256(repr((access_key, stamp, signature, place)).encode()).digest()
        if not await self._used.first(mark, int(stamp) + self._window):
            raise self._refused(access_key, "a signature that was used before", claimed)
        if agent_id not in key.agent_ids:
            self._refusals.add(access_key=access_key, why="a foreign agent id")
            raise Forbidden("This access key is not one of this agent.")
        return access_key, agent_id

    def _refused(self, access_key: str, why: str, agent_id: str = "") -> Unauthenticated:
        if agent_id:
            self.on_refusal(agent_id, why)
        self._refusals.add(access_key=access_key[:64], why=why)
        return Unauthenticated()
