"""An agent behind an authorization server, and a person with a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from client.auth.authorization_server import App, Authority
from client.auth.http_server import LittleHttp, Request, Response, as_json
from dragoman.client.auth import CardAuth, Own, UserCredentials
from dragoman.client.auth.login import Login
from dragoman.client.credentials import Credentials, Wallet, origin_of
from dragoman.core.card import Card, OAuth2, OAuthFlow, OpenId, Scheme
from dragoman.dialects.a2a.cards.documents import merged

SECRET = "the-secret-of-the-robot"
KINDS = ("clientCredentials", "authorizationCode", "deviceCode")


def oauth(authority: Authority, *kinds: str, metadata: bool = False) -> OAuth2:
    """OAuth 2 as a card describes it."""
    flows = tuple(
        OAuthFlow(
            kind=kind,
            token_url=f"{authority.url}/token",
            authorization_url=f"{authority.url}/authorize" if kind == KINDS[1] else "",
            device_authorization_url=f"{authority.url}/device_authorization"
            if kind == KINDS[2]
            else "",
            scopes={"ask": "May ask."},
        )
        for kind in kinds or KINDS
    )
    place = f"{authority.url}/.well-known/oauth-authorization-server" if metadata else ""
    return OAuth2(flows=flows, metadata_url=place)


def openid(authority: Authority) -> OpenId:
    return OpenId(url=f"{authority.url}/.well-known/openid-configuration")


def card(**schemes: Scheme) -> Card:
    """A card on which any one scheme will do."""
    security = tuple({name: ("ask",)} for name in schemes)
    return Card(name="A", description="", version="1", schemes=schemes, security=security)


class GuardedAgent(LittleHttp):
    """Lets in who has a token of the authority, and says who came."""

    def __init__(self, authority: Authority | None = None) -> None:
        super().__init__(self._answer)
        self._authority = authority
        self.card: Card | None = None

    @property
    def origin(self) -> str:
        return origin_of(self.url)

    def _answer(self, request: Request) -> Response:
        if request.path.startswith("/.well-known/") and self.card is not None:
            return Response(200, merged(self.card), {"content-type": "application/json"})
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        known = self._authority is not None and self._authority.memory.valid(token)
        if scheme == "Bearer" and known:
            return as_json({"ok": True})
        return Response(401, b"", {"www-authenticate": 'Bearer error="invalid_token"'})


async def call(wallet: Wallet, url: str) -> int:
    """One call as the client makes it: with what the wallet has, and once more when refused."""
    origin = origin_of(url)
    given = wallet.kept(origin) or await wallet.ask(origin)
    answer = await _get(url, given)
    if answer.status_code == 401:
        said = answer.headers.get("www-authenticate", "")
        answer = await _get(url, await wallet.ask(origin, refused=said))
    return answer.status_code


async def _get(url: str, given: Credentials) -> httpx2.Response:
    async with httpx2.AsyncClient() as http:
        return await http.get(url, headers=dict(given.headers), params=dict(given.query))


class Alice:
    """Has a browser that does what it is told, and reads what the terminal says."""

    def __init__(self, *, browser: bool = True) -> None:
        self.browser = browser
        self.told: list[str] = []
        self.pages: list[str] = []
        self.visits: list[asyncio.Task[Any]] = []
        self.went = asyncio.Event()

    def tell(self, text: str) -> None:
        self.told.append(text)

    def open(self, url: str) -> bool:
        self.pages.append(url)
        if self.browser:
            self.visits.append(asyncio.get_running_loop().create_task(self.visit(url)))
        return self.browser

    async def visit(self, url: str) -> int:
        async with httpx2.AsyncClient(follow_redirects=True) as http:
            answer = await http.get(url)
        self.went.set()
        return answer.status_code

    async def typed(self, label: str, secret: bool) -> str:
        raise AssertionError(f"nobody is there to type {label}")


class Wanderer(Alice):
    """Comes back to another address than the one it was sent to: an attacker's doing."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self._change = change
        self.answers: list[int] = []

    async def visit(self, url: str) -> int:
        async with httpx2.AsyncClient() as http:
            answer = await http.get(url)
            back = await http.get(self._change(answer.headers["location"]))
        self.answers.append(back.status_code)
        self.went.set()
        return back.status_code


@asynccontextmanager
async def town() -> AsyncGenerator[tuple[Authority, GuardedAgent, GuardedAgent], None]:
    """An authority, an agent that trusts it, and one that belongs to someone else."""
    async with Authority() as authority, GuardedAgent(authority) as agent, GuardedAgent() as other:
        authority.memory.clients = {
            "robot": App("robot", SECRET),
            "laptop": App("laptop", methods=("none",)),
        }
        yield authority, agent, other


def keyring(own: Own, *origins: str) -> UserCredentials:
    """Knows these origins and nothing else."""

    async def ask(origin: str) -> Own | None:
        return own if origin in origins else None

    return UserCredentials(ask=ask)


ROBOT = Own(client_id="robot", client_secret=SECRET)
LAPTOP = Own(client_id="laptop")


def wallet(auth: CardAuth, told: Card, *origins: str) -> Wallet:
    """A connection's wallet that has read the card."""
    made = Wallet(auth, origins)
    made.card = told
    return made


def entrance(auth: CardAuth, person: Alice) -> Login:
    return Login(auth, person, person.typed)
