"""`dragoman login`: chooses a scheme of the card and a flow, runs it and stores the token."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from dragoman.core.card import ApiKey, Card, HttpAuth, OAuth2, OpenId, Scheme
from dragoman.core.errors import ConfigError, Unauthenticated, Unsupported

from .authorization_server import AuthorizationServerMetadata
from .card_auth import CardAuth
from .login_flows import LONGEST_WAIT, Person, WithBrowser, WithDevice
from .origins import is_safe, shown
from .token_endpoint import OAuthClient, TokenGrant, token
from .token_refresh import Need
from .token_store import StoredToken

FLOWS = ("authorizationCode", "deviceCode", "clientCredentials")
"""The flows, in the order in which they are tried."""
Typed = Callable[[str, bool], Awaitable[str]]
"""A function that asks the person for a value; its second argument says whether the value is
secret."""


class Options(Struct, frozen=True, kw_only=True):
    """The options of a login."""

    scheme: str = ""
    """The scheme of the card; empty means the first one that is possible."""
    flow: Literal["", "authorizationCode", "deviceCode", "clientCredentials"] = ""
    client_id: str = ""
    scopes: tuple[str, ...] = ()
    port: int = 0
    """The port to which the browser comes back; 0 means any free one."""
    wait: float = LONGEST_WAIT


class Login:
    """Logs one person in, scheme by scheme."""

    def __init__(
        self,
        auth: CardAuth,
        person: Person,
        typed: Typed,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._auth, self._person, self._typed, self._clock = auth, person, typed, clock

    async def log_in(self, origin: str, card: Card, options: Options) -> list[StoredToken]:
        """Logs in, and returns the stored tokens: one for each scheme of the chosen requirement."""
        if not is_safe(origin):
            raise ConfigError(f"{shown(origin)} is plain http; nothing secret is sent there.")
        owner, own = await self._auth.keyring.find(origin)
        kept = []
        for name, scopes in _chosen(card, options).items():
            need = Need(owner=owner, own=own.for_scheme(name), name=name, scopes=tuple(scopes))
            done = await self._one(need, card.schemes[name], options)
            if done is not None:
                kept.append(done)
        return kept

    async def _one(self, need: Need, scheme: Scheme, options: Options) -> StoredToken | None:
        match scheme:
            case ApiKey():
                return self._fixed(need, "key", await self._typed("API key", True))
            case HttpAuth() if scheme.scheme.lower() == "basic":
                user = await self._typed("User name", False)
                password = await self._typed("Password", True)
                return self._fixed(need, "basic", f"{user}:{password}")
            case HttpAuth() if scheme.scheme.lower() == "bearer":
                return self._fixed(need, "bearer", await self._typed("Token", True))
            case OAuth2() | OpenId():
                return await self._token(need, scheme, options)
            case _:
                # A certificate comes from a file, so no flow can fetch it.
                self._person.tell(f"{need.name}: name the certificate's file in credentials.toml.")
                return None

    def _fixed(self, need: Need, kind: str, secret: str) -> StoredToken:
        if not secret.strip(":"):
            raise ConfigError("Nothing was typed in.")
        kept = StoredToken(
            origin=need.owner, scheme=need.name, secret=secret, kind=kind, at=self._clock()
        )
        self._auth.tokens.put(kept)
        return kept

    async def _token(self, need: Need, scheme: OAuth2 | OpenId, options: Options) -> StoredToken:
        kind, server = await self._server(need, scheme, options)
        own = need.own
        client = OAuthClient(options.client_id or own.client_id, own.client_secret)
        if client.id != own.client_id:
            client = OAuthClient(client.id)  # the configured secret belongs to another client id
        if not client.id:
            raise ConfigError(
                "The authorization server must know the client: set --client-id, or client_id in "
                "credentials.toml."
            )
        scopes = options.scopes or own.scopes or need.scopes
        if isinstance(scheme, OpenId):
            offline = tuple(s for s in ("offline_access",) if s in server.scopes)
            scopes = tuple(dict.fromkeys(("openid", *scopes, *offline)))
        grant = await self._grant(kind, need, server, client, scopes, options)
        return self._auth.fetcher.keep(need.owner, need.name, grant, server, client.id)

    async def _server(
        self, need: Need, scheme: OAuth2 | OpenId, options: Options
    ) -> tuple[str, AuthorizationServerMetadata]:
        """Returns the flow and its authorization server."""
        fetcher = self._auth.fetcher
        if isinstance(scheme, OpenId):
            server = await fetcher.server(need, scheme, "")
            offered = [
                *(("authorizationCode",) if server.authorization_url else ()),
                *(("deviceCode",) if server.device_url else ()),
                "clientCredentials",
            ]
            kind = _flow(offered, options)
        else:
            kind = _flow([flow.kind for flow in scheme.flows], options)
            server = await fetcher.server(need, scheme, kind)
        return kind, await fetcher.bind(need, server, kind)

    async def _grant(
        self,
        kind: str,
        need: Need,
        server: AuthorizationServerMetadata,
        client: OAuthClient,
        scopes: tuple[str, ...],
        options: Options,
    ) -> TokenGrant:
        authority, audience = self._auth.fetcher.authority(need.owner), need.own.audience
        if kind == "authorizationCode":
            browser = WithBrowser(
                authority, self._person, port=options.port, wait=options.wait, audience=audience
            )
            return await browser(server, client, scopes)
        if kind == "deviceCode":
            return await WithDevice(authority, self._person, audience=audience)(
                server, client, scopes
            )
        if not client.secret:
            raise Unauthenticated("This flow needs the client's secret, in credentials.toml.")
        form = {
            "grant_type": "client_credentials",
            "scope": " ".join(scopes),
            "audience": audience,
        }
        return await token(authority, server, client, form, self._clock())


def _flow(offered: list[str], options: Options) -> str:
    wanted = (options.flow,) if options.flow else FLOWS
    for kind in wanted:
        if kind in offered:
            return kind
    raise Unsupported(f"The card offers no flow that is supported here: {', '.join(offered)}.")


def _chosen(card: Card, options: Options) -> dict[str, tuple[str, ...]]:
    """Returns the schemes to log in with, and their scopes."""
    if options.scheme:
        if options.scheme not in card.schemes:
            known = ", ".join(card.schemes) or "none"
            raise ConfigError(f"The card has no scheme '{options.scheme}'; it has: {known}.")
        for way in card.security:
            if options.scheme in way:
                return {options.scheme: way[options.scheme]}
        return {options.scheme: ()}
    for way in card.security:
        if all(name in card.schemes for name in way):
            return way
    if card.schemes:
        return {next(iter(card.schemes)): ()}
    raise ConfigError("The agent requires no authentication; there is nothing to log in to.")
