"""Fetches, stores and renews the tokens of authorization servers.

A token is renewed shortly before it expires, and once after a refusal. Of several calls that need
the same token, one fetches it and the others wait. The fetch goes on if that call is cancelled,
since an authorization server may accept a refresh token only once. A refresh token is sent to the
server that issued it and nowhere else, even if the card names another server by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.card import OAuth2, OpenId
from dragoman.core.errors import PeerUnreachable, Unauthenticated

from ..credentials import origin_of
from .authorization_server import AuthorizationServer, AuthorizationServerMetadata, Denied
from .origins import is_loopback, shown
from .token_endpoint import OAuthClient, TokenGrant, token
from .token_store import StoredToken, TokenStore
from .user_credentials import Own

GRACE = 2.0
"""The seconds after a renewal in which a refusal is assumed to concern the previous token."""
OVER = frozenset(("invalid_grant", "invalid_client", "unauthorized_client"))
"""The error codes of a server after which a refresh token cannot be used any more."""

Key = tuple[str, str]


class Need(Struct, frozen=True, kw_only=True):
    """A scheme of a card that needs a token."""

    owner: str
    """The origin whose secrets are used."""
    own: Own
    """The user's credentials for that origin."""
    name: str
    """The name of the scheme."""
    scopes: tuple[str, ...] = ()
    renew: bool = False
    """Whether the present token was refused."""

    @property
    def key(self) -> Key:
        """Returns the key under which a token is stored."""
        return self.owner, self.name


class TokenRefresher:
    """Gets tokens without a person: with a refresh token, or by the client credentials flow."""

    def __init__(
        self,
        tokens: TokenStore,
        *,
        allow_private: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tokens, self._allow_private, self._clock = tokens, allow_private, clock
        self._authorities: dict[bool, AuthorizationServer] = {}
        self._flights: dict[Key, asyncio.Task[StoredToken | None]] = {}
        self._renewed: dict[Key, float] = {}

    async def close(self) -> None:
        """Closes the connections."""
        for authority in self._authorities.values():
            await authority.close()

    def authority(self, origin: str) -> AuthorizationServer:
        """Returns the client of authorization servers for an agent. They may be on this machine
        only if the agent is."""
        private = self._allow_private or is_loopback(origin)
        if private not in self._authorities:
            self._authorities[private] = AuthorizationServer(private=private)
        return self._authorities[private]

    async def server(
        self, need: Need, scheme: OAuth2 | OpenId, kind: str
    ) -> AuthorizationServerMetadata:
        """Returns the authorization server of a scheme. Nothing may be sent to it before `bind`."""
        authority = self.authority(need.owner)
        if isinstance(scheme, OpenId):
            found = await authority.discover(scheme.url)
        else:
            found = authority.on_card(next(flow for flow in scheme.flows if flow.kind == kind))
            if scheme.metadata_url:
                told = await authority.discover(scheme.metadata_url)
                if found.token_url not in ("", told.token_url):
                    raise Unauthenticated(
                        "The card and the metadata of its authorization server name different "
                        "endpoints."
                    )
                found = told
        return found

    async def bind(
        self, need: Need, server: AuthorizationServerMetadata, kind: str
    ) -> AuthorizationServerMetadata:
        """Returns the server, if all endpoints of a flow belong to one authorization server, and to
        the one that the user trusts.

        The other side writes the card. It could have a person log in at an honest server and the
        code, the verifier or the refresh token sent to its own (mix-up, RFC 9700 §4.4). So the
        endpoints have one origin, or metadata connects them: that of the configured issuer, or of
        the origin at which the person logs in.
        """
        front = server.authorization_url if kind == "authorizationCode" else ""
        front = server.device_url if kind == "deviceCode" else front
        first = front or server.token_url
        if server.refresh_url and origin_of(server.refresh_url) != origin_of(server.token_url):
            raise Unauthenticated(
                f"The card of {shown(need.owner)} has tokens refreshed at "
                f"{shown(origin_of(server.refresh_url))}, which did not issue them; nothing was "
                "sent there."
            )
        issuer = need.own.issuer
        origins = {origin_of(first), origin_of(server.token_url)}
        if issuer:
            is_bound = server.issuer == issuer or (
                not server.issuer and origins == {origin_of(issuer)}
            )
        else:
            of_front = bool(server.issuer) and origin_of(server.issuer) == origin_of(first)
            is_bound = len(origins) == 1 or of_front
        if is_bound:
            return server
        if not server.issuer:  # the card has no metadata, but there may be some
            publisher = issuer or shown(origin_of(first))
            told = await self.authority(need.owner).find(publisher)
            if told is not None and _names_endpoints(told, server, kind):
                return replace(told, refresh_url=server.refresh_url)
        if issuer:
            raise Unauthenticated(
                f"The card of {shown(need.owner)} names another authorization server than "
                f"{issuer}; nothing was sent to it."
            )
        raise Unauthenticated(
            f"The card of {shown(need.owner)} has people log in at {shown(origin_of(first))} for "
            f"tokens of {shown(origin_of(server.token_url))}, and nothing shows that they belong "
            "together. If they do, set issuer in credentials.toml."
        )

    async def token(self, need: Need, scheme: OAuth2 | OpenId) -> StoredToken | None:
        """Returns the token for a scheme, if there is one or one can be fetched without a
        person."""
        now, kept = self._clock(), self._tokens.get(*need.key)
        just_now = now - self._renewed.get(need.key, 0.0) < GRACE
        if kept is not None and kept.fresh(now) and (not need.renew or just_now):
            return kept
        flight = self._flights.get(need.key)
        if flight is None:
            work = self._fetch(need, scheme, kept)
            flight = self._flights[need.key] = asyncio.get_running_loop().create_task(work)
            flight.add_done_callback(lambda done: self._landed(need.key, done))
        return await asyncio.shield(flight)

    def _landed(self, key: Key, flight: asyncio.Task[StoredToken | None]) -> None:
        self._flights.pop(key, None)
        if not flight.cancelled():
            flight.exception()  # the waiting calls have raised it

    async def _fetch(
        self, need: Need, scheme: OAuth2 | OpenId, kept: StoredToken | None
    ) -> StoredToken | None:
        now = self._clock()
        try:
            if kept is not None and kept.refresh:
                renewed = await self._refreshed(need.own, kept)
                if renewed is not None:
                    return renewed
            if need.own.client_id and need.own.client_secret and _without_person(scheme):
                return await self._as_client(need, scheme, kept)
        except PeerUnreachable:
            # A token that is about to expire is better than none.
            if kept is None or need.renew or not kept.alive(now):
                raise
        return kept if kept is not None and kept.alive(now) and not need.renew else None

    async def _refreshed(self, own: Own, kept: StoredToken) -> StoredToken | None:
        """Returns a new token from the server that issued the old one, or None if it cannot be
        renewed."""
        server = AuthorizationServerMetadata(
            token_url=kept.token_url, refresh_url=kept.refresh_url, issuer=kept.issuer
        )
        secret = own.client_secret if own.client_id == kept.client_id else ""
        client = OAuthClient(kept.client_id, secret)
        form = {"grant_type": "refresh_token", "refresh_token": kept.refresh}
        if own.issuer not in ("", kept.issuer) and origin_of(own.issuer) != origin_of(
            server.token_url
        ):
            raise Unauthenticated(
                f"The token for {shown(kept.origin)} is of another authorization server than "
                f"{own.issuer}. Log in again: dragoman login {shown(kept.origin)}"
            )
        url = kept.refresh_url or kept.token_url
        if origin_of(url) != origin_of(kept.token_url):  # stored by a version that allowed it
            url = kept.token_url
        authority = self.authority(kept.origin)
        try:
            grant = await token(authority, server, client, form, self._clock(), url=url)
        except Denied as exc:
            now = self._tokens.get(kept.origin, kept.scheme)
            if now is not None and now.refresh != kept.refresh:
                return now  # another process has renewed it meanwhile
            if exc.error in OVER:
                self._tokens.drop(kept.origin, kept.scheme)
                return None
            raise
        return self.keep(kept.origin, kept.scheme, grant, server, kept.client_id, before=kept)

    async def _as_client(
        self, need: Need, scheme: OAuth2 | OpenId, kept: StoredToken | None
    ) -> StoredToken:
        own = need.own
        kind = "clientCredentials"
        server = await self.bind(need, await self.server(need, scheme, kind), kind)
        if kept is not None and kept.token_url:
            _same_server(kept, server)
        form = {
            "grant_type": "client_credentials",
            "scope": " ".join(own.scopes or need.scopes),
            "audience": own.audience,
        }
        client = OAuthClient(own.client_id, own.client_secret)
        grant = await token(self.authority(need.owner), server, client, form, self._clock())
        return self.keep(need.owner, need.name, grant, server, client.id)

    def keep(
        self,
        origin: str,
        name: str,
        grant: TokenGrant,
        server: AuthorizationServerMetadata,
        client_id: str,
        *,
        before: StoredToken | None = None,
    ) -> StoredToken:
        """Stores a token. Fields that the server omits keep their former values (RFC 6749 §6)."""
        kept = StoredToken(
            origin=origin,
            scheme=name,
            secret=grant.access,
            refresh=grant.refresh or (before.refresh if before else ""),
            at=grant.at,
            until=grant.until,
            scopes=grant.scopes or (before.scopes if before else ()),
            token_url=server.token_url,
            refresh_url=server.refresh_url,
            client_id=client_id,
            issuer=server.issuer,
        )
        self._tokens.put(kept)
        self._renewed[(origin, name)] = self._clock()
        return kept


def _names_endpoints(
    metadata: AuthorizationServerMetadata, server: AuthorizationServerMetadata, kind: str
) -> bool:
    """Returns whether metadata names the endpoints that a card has for a flow."""
    if metadata.token_url != server.token_url:
        return False
    if kind == "authorizationCode":
        return metadata.authorization_url == server.authorization_url
    return kind != "deviceCode" or metadata.device_url == server.device_url


def _same_server(kept: StoredToken, server: AuthorizationServerMetadata) -> None:
    # A changed card could otherwise have the client's secret sent to an attacker's server.
    if origin_of(kept.token_url) != origin_of(server.token_url):
        where = shown(kept.origin)
        raise Unauthenticated(
            f"The card of {where} names another authorization server than before. If that is "
            f"right, run: dragoman login --forget {where}"
        )


def _without_person(scheme: OAuth2 | OpenId) -> bool:
    if isinstance(scheme, OpenId):
        return True
    return any(flow.kind == "clientCredentials" for flow in scheme.flows)
