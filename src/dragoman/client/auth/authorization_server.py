"""Reads the metadata of authorization servers and calls their endpoints.

The other side writes the card, and with it the addresses of the authorization server. They are
therefore called through the guarded client, over https only (except on this machine, if the agent
is on this machine too), with limits on size and time and without redirects. The metadata of a
server counts only if it names the issuer at whose address it was found (RFC 8414 §3.3): otherwise
one server could pose as another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from dragoman.core.card import OAuthFlow
from dragoman.core.errors import BadParams, PeerMisbehaved, PeerUnreachable, Unauthenticated
from dragoman.security.outbound.guarded_http import (
    GuardedHttp,
    GuardedReply,
    Rules,
    Unreachable,
    parse,
)

from .origins import is_safe, printable

MOST_BYTES = 256 * 1024
SECONDS = 20.0
JSON = {"accept": "application/json"}
FORM = {**JSON, "content-type": "application/x-www-form-urlencoded"}
OUR_PARAMETERS = frozenset(
    (
        *("response_type", "response_mode", "client_id", "client_secret", "redirect_uri", "scope"),
        *("audience", "state", "nonce", "code_challenge", "code_challenge_method"),
        *("request", "request_uri", "grant_type", "code", "code_verifier", "refresh_token"),
    )
)
"""The parameters of requests to authorization servers that only we set."""
WELL_KNOWN = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


class AuthorizationServerMetadata(Struct, frozen=True, kw_only=True):
    """The endpoints and the identity of an authorization server: the fields of RFC 8414 §2 and
    OpenID Connect Discovery §3 that the client uses."""

    token_url: str = field(name="token_endpoint")
    authorization_url: str = field(default="", name="authorization_endpoint")
    device_url: str = field(default="", name="device_authorization_endpoint")
    issuer: str = ""
    """The issuer; empty if the server is known from the card alone."""
    says_iss: bool = field(default=False, name="authorization_response_iss_parameter_supported")
    """Whether it promises to name itself in every answer (RFC 9207)."""
    methods: tuple[str, ...] = field(default=(), name="token_endpoint_auth_methods_supported")
    """The methods by which clients authenticate to it."""
    scopes: tuple[str, ...] = field(default=(), name="scopes_supported")
    refresh_url: str = ""
    """The refresh URL of a card's flow. Metadata has no such field."""


class AuthorizationServer:
    """Calls authorization servers on behalf of one agent's card."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._egress = GuardedHttp(Rules(allow_private=private))

    async def discover(self, url: str) -> AuthorizationServerMetadata:
        """Fetches the metadata at `url`."""
        reply = await self._call("GET", url, JSON)
        if reply.status != 200:
            raise PeerMisbehaved(f"There is no metadata at {url}: status {reply.status}.")
        try:
            found = msgspec.json.decode(reply.body, type=AuthorizationServerMetadata)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise PeerMisbehaved(
                f"The document at {url} is not the metadata of an authorization server."
            ) from None
        if not is_safe(found.issuer) or url not in _places(found.issuer):
            raise PeerMisbehaved(f"The metadata at {url} belongs to another issuer.")
        return self.checked(replace(found, refresh_url=""))

    async def find(self, issuer: str) -> AuthorizationServerMetadata | None:
        """Returns the metadata that an issuer publishes about itself, or None if it has none."""
        for url in _places(issuer):
            try:
                return await self.discover(url)
            except PeerMisbehaved:
                continue
        return None

    def on_card(self, flow: OAuthFlow) -> AuthorizationServerMetadata:
        """Returns the server that a flow on a card names."""
        return self.checked(
            AuthorizationServerMetadata(
                token_url=flow.token_url,
                authorization_url=flow.authorization_url,
                device_url=flow.device_authorization_url,
                refresh_url=flow.refresh_url,
            )
        )

    def checked(self, server: AuthorizationServerMetadata) -> AuthorizationServerMetadata:
        """Returns the server, if secrets may be sent to all its addresses."""
        urls = (
            *(server.token_url, server.authorization_url),
            *(server.device_url, server.refresh_url),
        )
        for url in filter(None, urls):
            if not is_safe(url):
                raise PeerMisbehaved(
                    f"The authorization server must be called over https: {printable(url)}"
                )
            # RFC 6749 §3.1: a fragment would swallow the parameters, and a parameter must not occur
            # twice, so the card cannot set one of ours.
            names = {name.lower() for name, _ in parse_qsl(urlsplit(url).query, True)}
            if "#" in url or not names.isdisjoint(OUR_PARAMETERS):
                raise PeerMisbehaved(
                    f"The address of the authorization server sets what is ours: {printable(url)}"
                )
            try:
                parse(url, Rules(allow_private=True))  # the URL is shown to a person later
            except BadParams as exc:
                raise PeerMisbehaved(
                    f"The authorization server has an invalid address: {exc}"
                ) from None
        return server

    async def post(
        self, url: str, form: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Posts a form to an endpoint and returns the status and the JSON object of its answer."""
        reply = await self._call("POST", url, {**FORM, **(headers or {})}, form.encode())
        if reply.status == 429 or reply.status >= 500:
            # It has decided nothing about the request (RFC 6749 §5.2 knows 400 and 401 only).
            raise PeerUnreachable(
                f"The authorization server {_host(url)} cannot answer now: status {reply.status}."
            )
        try:
            said = msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise PeerMisbehaved(
                f"The authorization server {_host(url)} did not answer with a JSON object: "
                f"status {reply.status}."
            )
        return reply.status, said

    async def _call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> GuardedReply:
        if not is_safe(url):
            raise PeerMisbehaved("The authorization server must be called over https.")
        try:
            reply = await self._egress.request(
                method, url, headers=headers, body=body, seconds=SECONDS, max_size=MOST_BYTES
            )
        except Unreachable as exc:
            raise PeerUnreachable(
                f"The authorization server {_host(url)} does not answer: {exc}."
            ) from None
        except BadParams as exc:
            raise PeerMisbehaved(
                f"The authorization server {_host(url)} may not be called from here: {exc.message}."
            ) from None
        if not reply.whole:
            raise PeerMisbehaved(
                f"The answer of the authorization server {_host(url)} is too large."
            )
        return reply

    async def close(self) -> None:
        """Closes the connections."""
        await self._egress.close()


class Denied(Unauthenticated):
    """The authorization server refused."""

    def __init__(self, message: str = "", *, error: str = "") -> None:
        super().__init__(message)
        self.error = error
        """The server's error code, such as invalid_grant (RFC 6749 §5.2)."""


def _places(issuer: str) -> tuple[str, ...]:
    """Returns the URLs at which an issuer may publish its metadata: that of RFC 8414 §3.1 and that
    of OpenID Connect."""
    if "?" in issuer or "#" in issuer:
        return ()
    parts = urlsplit(issuer)
    root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return tuple(
        place for known in WELL_KNOWN for place in (f"{root}{known}{path}", f"{root}{path}{known}")
    )


def _host(url: str) -> str:
    return urlsplit(url).netloc[:200]
