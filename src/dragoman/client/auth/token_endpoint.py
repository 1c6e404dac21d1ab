"""Requests to a token endpoint and their answers (RFC 6749 §5)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

from msgspec import Struct

from dragoman.core.errors import PeerMisbehaved
from dragoman.security.outbound.guarded_http import safe_field

from ..credentials import HIDDEN
from .authorization_server import AuthorizationServer, AuthorizationServerMetadata, Denied
from .origins import printable

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
SECRET_MEMBERS = ("code", "code_verifier", "device_code", "refresh_token", "subject_token")
"""The members of our requests that nobody else may see."""
LEAST_QUOTED = 8
"""The number of characters from which the beginning of a secret is hidden."""
LONGEST_LIFE = 10 * 365 * 86_400.0


class OAuthClient(Struct, frozen=True):
    """The OAuth client that asks for a token."""

    id: str
    secret: str = ""

    def __repr__(self) -> str:
        return f"OAuthClient({self.id!r})"


class TokenGrant(Struct, frozen=True, kw_only=True):
    """A token that the server issued."""

    access: str
    refresh: str = ""
    at: float
    until: float = 0.0
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Grant(until={self.until}, scopes={self.scopes})"


def proof(
    server: AuthorizationServerMetadata, client: OAuthClient
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the headers and the form members that authenticate a client (RFC 6749 §2.3.1)."""
    if not client.secret:
        return {}, {"client_id": client.id}
    basic = "client_secret_basic"
    if basic not in (server.methods or (basic,)) and "client_secret_post" in server.methods:
        return {}, {"client_id": client.id, "client_secret": client.secret}
    pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}


async def token(
    authority: AuthorizationServer,
    server: AuthorizationServerMetadata,
    client: OAuthClient,
    form: Mapping[str, str],
    now: float,
    *,
    url: str = "",
) -> TokenGrant:
    """Requests a token. Raises `Denied` with the reason if the server refuses."""
    headers, more = proof(server, client)
    sent = urlencode({name: value for name, value in {**form, **more}.items() if value})
    status, said = await authority.post(url or server.token_url, sent, headers)
    if status != 200:
        raise denied(status, said, (*_secrets(form), client.secret, *headers.values()))
    return grant_in(said, now)


def _secrets(form: Mapping[str, str]) -> Iterable[str]:
    return (form[name] for name in SECRET_MEMBERS if name in form)


def denied(status: int, said: Mapping[str, Any], secrets: Iterable[str] = ()) -> Denied:
    """Returns the refusal as an error whose message is safe to show: it holds none of the secrets
    that we sent, nor the beginning of one."""
    error = str(said.get("error") or f"status {status}")
    description = str(said.get("error_description") or "")
    words = f"{printable(error, 60)} ({description})" if description else printable(error, 60)
    for secret in secrets:
        token = secret.rpartition(" ")[2]  # without the scheme of the Authorization header
        for spelling in {secret, quote_plus(secret), token}:
            words = _without(spelling, words)
    return Denied(
        f"The authorization server refused: {printable(words, 300)}.", error=printable(error, 60)
    )


def _without(secret: str, text: str) -> str:
    """Returns the text without the secret, or as much of its beginning as there is: a server that
    quotes our request may cut it."""
    if len(secret) < LEAST_QUOTED:
        return text
    start, at = secret[:LEAST_QUOTED], text.find(secret[:LEAST_QUOTED])
    while at >= 0:
        end = at
        while end < len(text) and text[end] == secret[end - at : end - at + 1]:
            end += 1
        text = f"{text[:at]}{HIDDEN}{text[end:]}"
        at = text.find(start, at + len(HIDDEN))
    return text


def grant_in(said: Mapping[str, Any], now: float) -> TokenGrant:
    """Returns the token in an answer."""
    access, refresh = said.get("access_token"), said.get("refresh_token") or ""
    kind, life, scope = said.get("token_type"), said.get("expires_in"), said.get("scope")
    if not isinstance(access, str) or not safe_field(access) or " " in access:
        raise PeerMisbehaved("The authorization server issued no usable token.")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise PeerMisbehaved("The authorization server issued a token of an unknown type.")
    if isinstance(life, str) and life.isascii() and life.isdigit():
        life = int(life[:12])  # some servers put the number in quotes
    until = 0.0
    if isinstance(life, int | float) and not isinstance(life, bool) and 0 < life < LONGEST_LIFE:
        until = now + life
    return TokenGrant(
        access=access,
        refresh=refresh if isinstance(refresh, str) else "",
        at=now,
        until=until,
        scopes=tuple(scope.split()) if isinstance(scope, str) else (),
    )
