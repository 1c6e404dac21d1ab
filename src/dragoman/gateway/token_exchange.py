"""Acts for callers at an agent elsewhere: exchanges their tokens for tokens of its own (RFC 8693).

The token that a caller showed is sent to the token endpoint that the operator wrote down, and
nowhere else. What comes back is kept in memory until it expires, for this token and this agent, and
never stored: a task that is resumed after a restart, before its caller has shown a token again,
cannot act for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

from dragoman.client.auth.authorization_server import (
    AuthorizationServer,
    AuthorizationServerMetadata,
    Denied,
)
from dragoman.client.auth.token_endpoint import OAuthClient, TokenGrant, token
from dragoman.core.errors import Forbidden, PeerMisbehaved, PeerRefused, PeerUnreachable
from dragoman.core.log import Logger
from dragoman.core.peer import BearerToken
from dragoman.settings import TokenExchangeSettings

log = Logger("gateway")

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  a name of RFC 8693
MOST_KEPT = 10_000
"""The number of tokens that are kept; the oldest go first."""
MARGIN, SHARE = 30.0, 0.1
"""A token is not used any more this many seconds before it expires, or this share of its life."""
UNKNOWN_LIFE = 60.0
"""The seconds for which a token is used whose expiry the server does not tell."""
_OUR_FAULT = frozenset(("invalid_client", "unauthorized_client", "unsupported_grant_type"))


class CallerTokenMissing(Forbidden):
    """The agent acts for its callers, and there is no token of this caller."""


class CallerRefused(Forbidden):
    """The authorization server lets nobody act for this caller at the agent."""


class TokenExchange:
    """The exchange of tokens for one agent."""

    def __init__(
        self,
        agent: str,
        settings: TokenExchangeSettings,
        secret: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._agent, self._settings, self._clock = agent, settings, clock
        self._client = OAuthClient(settings.client_id, secret)
        self._server = AuthorizationServerMetadata(token_url=settings.token_url)
        self._authority = AuthorizationServer(private=True)  # the operator wrote the address down
        self._kept: OrderedDict[bytes, tuple[BearerToken, float]] = OrderedDict()
        self._flights: dict[bytes, asyncio.Task[BearerToken]] = {}

    async def close(self) -> None:
        """Closes the connections."""
        await self._authority.close()

    async def exchanged(self, subject: BearerToken) -> BearerToken:
        """Returns the token with which the agent is called for this caller. Of several calls that
        need the same one, one fetches it."""
        mark = hashlib.sha256(subject.secret.encode()).digest()
        kept = self._kept.get(mark)
        if kept is not None:
            if self._clock() < kept[1]:
                return kept[0]
            del self._kept[mark]
        flight = self._flights.get(mark)
        if flight is None:
            work = self._fetched(subject, mark)
            flight = self._flights[mark] = asyncio.get_running_loop().create_task(work)
            flight.add_done_callback(lambda done: self._landed(mark, done))
        return await asyncio.shield(flight)

    def forget(self, refused: BearerToken) -> None:
        """Drops a token that the agent refused, so that the next call gets another."""
        for mark, (kept, _) in list(self._kept.items()):
            if kept == refused:
                del self._kept[mark]

    def _landed(self, mark: bytes, flight: asyncio.Task[BearerToken]) -> None:
        self._flights.pop(mark, None)
        if not flight.cancelled():
            flight.exception()  # the waiting calls have raised it

    async def _fetched(self, subject: BearerToken, mark: bytes) -> BearerToken:
        asked = self._settings
        form = {
            "grant_type": GRANT,
            "subject_token": subject.secret,
            "subject_token_type": asked.subject_token_type or ACCESS_TOKEN,
            "requested_token_type": ACCESS_TOKEN,
            "audience": asked.audience,
            "resource": asked.resource,
            "scope": " ".join(asked.scopes),
        }
        try:
            grant = await token(self._authority, self._server, self._client, form, self._clock())
        except Denied as exc:
            log.warning("A token was not exchanged", agent=self._agent, error=exc.error)
            if exc.error in _OUR_FAULT:
                raise PeerRefused(f"{self._agent} cannot be called for its callers") from exc
            raise CallerRefused(
                f"{self._agent} cannot be called for this caller: {exc.error}"
            ) from exc
        except PeerUnreachable as exc:
            exc.sent = False  # the message for the agent was not
            raise
        except PeerMisbehaved as exc:
            log.warning("A token was not exchanged", agent=self._agent, why=exc)
            raise PeerRefused(f"{self._agent} cannot be called for its callers") from exc
        found = BearerToken(grant.access)
        self._kept[mark] = found, _use_until(grant)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found


class ActingFor:
    """One caller at one agent."""

    def __init__(self, exchange: TokenExchange, caller: Callable[[], BearerToken | None]) -> None:
        """`caller` returns the token that the caller showed last."""
        self._exchange, self._caller = exchange, caller

    async def token(self) -> BearerToken:
        """Returns the token to call with. Raises `CallerTokenMissing` if the caller showed none, or
        if the gateway has none of it any more."""
        subject = self._caller()
        if subject is None:
            raise CallerTokenMissing(
                "The agent acts for its callers: show a token of an issuer. A task that has lost "
                "it, since the gateway restarted, cannot go on."
            )
        return await self._exchange.exchanged(subject)

    def refused(self, token: BearerToken) -> None:
        """Notes that the agent refused a token."""
        self._exchange.forget(token)


def _use_until(grant: TokenGrant) -> float:
    if not grant.until:
        return grant.at + UNKNOWN_LIFE
    return grant.until - min(MARGIN, (grant.until - grant.at) * SHARE)
