"""The OAuth flows of a login, in which a person takes part.

Authorization code with PKCE (RFC 7636): a browser is opened, and its answer comes back to a port on
this machine. The answer counts only with the state that we generated. Device code (RFC 8628): the
person types a code into a page on any device while we poll the token endpoint.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from urllib.parse import urlencode

from dragoman.core.errors import PeerMisbehaved, Unauthenticated

from ..credentials import origin_of
from .authorization_server import AuthorizationServer, AuthorizationServerMetadata, Denied
from .origins import is_safe, printable
from .token_endpoint import DEVICE, OAuthClient, TokenGrant, denied, proof, token

LONGEST_WAIT = 300.0
"""The seconds for which we wait for the browser."""
INTERVAL, SLOWER = 5.0, 5.0
"""The seconds between two polls for a device code, and those that `slow_down` adds (RFC 8628
§3.5)."""
LEAST_INTERVAL_SECONDS = 1.0
LONGEST_CODE = 1800.0
MOST_INTERVAL = 60.0


class Person(Protocol):
    """The person that logs in. A terminal implements it."""

    def tell(self, text: str) -> None:
        """Tells the person what to do next."""

    def open(self, url: str) -> bool:
        """Opens a page in a browser, and returns whether there is one."""


class WithBrowser:
    """The authorization code flow with PKCE."""

    def __init__(
        self,
        authority: AuthorizationServer,
        person: Person,
        *,
        port: int = 0,
        wait: float = LONGEST_WAIT,
        audience: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authority, self._person, self._clock = authority, person, clock
        self._port, self._wait, self._audience = port, wait, audience

    async def __call__(
        self, server: AuthorizationServerMetadata, client: OAuthClient, scopes: tuple[str, ...]
    ) -> TokenGrant:
        """Returns the token for the person that logs in at the server."""
        from .redirect import Redirect

        if not server.authorization_url:
            raise PeerMisbehaved("The card has no authorization URL to log in at.")
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        async with Redirect(state, self._port) as redirect:
            asked = {
                "response_type": "code",
                "client_id": client.id,
                "redirect_uri": redirect.url,
                "scope": " ".join(scopes),
                "audience": self._audience,
                "state": state,
                "code_challenge": challenge(verifier),
                "code_challenge_method": "S256",
            }
            query = urlencode({name: value for name, value in asked.items() if value})
            joint = "&" if "?" in server.authorization_url else "?"
            page = f"{server.authorization_url}{joint}{query}"
            if self._person.open(page):
                self._person.tell("Log in with the browser that opens. If none opens, go to:")
            else:
                self._person.tell("Log in with a browser on this machine. Go to:")
            self._person.tell(page)
            said = await redirect.wait(self._wait)
        code = self._code(server, said)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect.url,
            "code_verifier": verifier,
        }
        return await token(self._authority, server, client, form, self._clock())

    def _code(self, server: AuthorizationServerMetadata, said: Mapping[str, str]) -> str:
        # RFC 9207 §2.4: an answer that names another server than the one we asked is refused, so
        # that a malicious server cannot collect the code of an honest one.
        iss = said.get("iss")
        if iss is None and server.says_iss:
            raise Unauthenticated("The answer does not say which authorization server gave it.")
        if iss is not None and not _is_issuer(iss, server):
            raise Unauthenticated("The answer comes from another authorization server.")
        if "error" in said:
            raise denied(400, said, (said.get("code", ""), said.get("state", "")))
        if not said.get("code"):
            raise PeerMisbehaved("The authorization server gave no code.")
        return said["code"]


def challenge(verifier: str) -> str:
    """Returns the code challenge of PKCE (RFC 7636 §4.2)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _is_issuer(iss: str, server: AuthorizationServerMetadata) -> bool:
    if server.issuer:
        return hmac.compare_digest(iss.encode(), server.issuer.encode())
    # The server is known from the card alone. The code goes to the token endpoint, so the issuer
    # must have its origin.
    return is_safe(iss) and origin_of(iss) == origin_of(server.token_url)


class WithDevice:
    """The device code flow."""

    def __init__(
        self,
        authority: AuthorizationServer,
        person: Person,
        *,
        audience: str = "",
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._authority, self._person, self._audience = authority, person, audience
        self._clock, self._sleep = clock, sleep

    async def __call__(
        self, server: AuthorizationServerMetadata, client: OAuthClient, scopes: tuple[str, ...]
    ) -> TokenGrant:
        """Returns the token for the person that enters the code."""
        if not server.device_url:
            raise PeerMisbehaved("The card has no device authorization URL.")
        headers, more = proof(server, client)
        asked = {"scope": " ".join(scopes), "audience": self._audience, **more}
        asked.setdefault("client_id", client.id)
        form = urlencode({name: value for name, value in asked.items() if value})
        status, said = await self._authority.post(server.device_url, form, headers)
        if status != 200:
            raise denied(status, said, (client.secret, *headers.values()))
        code, shown, page = (
            said.get(name) for name in ("device_code", "user_code", "verification_uri")
        )
        if not all(isinstance(each, str) and each for each in (code, shown, page)):
            raise PeerMisbehaved("The authorization server gave no device code.")
        if not is_safe(str(page)):
            raise PeerMisbehaved("The authorization server names a page that is not https.")
        self._person.tell(f"Go to {printable(page)} on any device and type: {printable(shown)}")
        whole = said.get("verification_uri_complete")
        if isinstance(whole, str) and is_safe(whole):
            self._person.open(whole)
        life = min(_number(said.get("expires_in"), LONGEST_CODE), LONGEST_CODE)
        interval = max(_number(said.get("interval"), INTERVAL), LEAST_INTERVAL_SECONDS)
        interval = min(interval, MOST_INTERVAL)
        asking = {"grant_type": DEVICE, "device_code": str(code)}
        return await self._poll(server, client, asking, interval, self._clock() + life)

    async def _poll(
        self,
        server: AuthorizationServerMetadata,
        client: OAuthClient,
        form: Mapping[str, str],
        interval: float,
        until: float,
    ) -> TokenGrant:
        while self._clock() < until:
            await self._sleep(interval)
            try:
                return await token(self._authority, server, client, form, self._clock())
            except Denied as exc:
                if exc.error == "slow_down":
                    interval = min(interval + SLOWER, MOST_INTERVAL)
                elif exc.error != "authorization_pending":
                    raise
        raise Unauthenticated("Nobody entered the code in time.")


def _number(value: object, default: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return default
    return float(value)
