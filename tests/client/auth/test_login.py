"""Logging in as a person: browser with PKCE, device code, and everything that may go wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from client.auth.authorization_server import DEVICE, Authority
from client.auth.guarded_agent import (
    LAPTOP,
    SECRET,
    Alice,
    Wanderer,
    call,
    card,
    entrance,
    keyring,
    oauth,
    openid,
    town,
    wallet,
)
from dragoman.client.auth import CardAuth, Own
from dragoman.client.auth.login import Login, Options
from dragoman.client.auth.login_flows import WithBrowser, WithDevice, challenge
from dragoman.core.card import ApiKey, HttpAuth, OAuth2, OAuthFlow
from dragoman.core.errors import (
    ConfigError,
    DragomanError,
    PeerMisbehaved,
    Unauthenticated,
    Unsupported,
)


@pytest.mark.parametrize("way", ["flow", "metadata", "openid"])
async def test_a_browser_logs_in_with_pkce(way: str) -> None:
    async with town() as (authority, agent, _):
        told = card(
            it=openid(authority)
            if way == "openid"
            else oauth(authority, "authorizationCode", metadata=way == "metadata")
        )
        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            alice = Alice()
            (kept,) = await entrance(auth, alice).log_in(agent.origin, told, Options())
            assert await call(wallet(auth, told, agent.url), agent.url) == 200
        query = {k: v[0] for k, v in parse_qs(urlsplit(alice.pages[0]).query).items()}
        assert query["code_challenge_method"] == "S256"
        (asked,) = authority.granted("authorization_code")
        assert challenge(asked.form["code_verifier"]) == query["code_challenge"]
        assert query["redirect_uri"].startswith("http://127.0.0.1:")
        assert kept.client_id == "laptop"
        wanted = {"openid", "ask", "offline_access"} if way == "openid" else {"ask"}
        assert set(query["scope"].split()) == wanted
        assert await asyncio.gather(*alice.visits) == [200]
        # Nothing that a look over the shoulder could use later.
        for line in alice.told:
            assert kept.secret not in line
            assert asked.form["code_verifier"] not in line


def without(name: str) -> Callable[[str], str]:
    return lambda url: re.sub(rf"([?&]){name}=[^&]*&?", r"\1", url)


def with_another(name: str, value: str) -> Callable[[str], str]:
    return lambda url: re.sub(rf"([?&]{name})=[^&]*", rf"\1={value}", url)


@pytest.mark.parametrize(
    "change",
    [
        with_another("state", "guessed"),
        without("state"),
        with_another("state", ""),
        lambda url: url + "&state=guessed",
        lambda url: url.replace("/callback", "/elsewhere"),
    ],
    ids=["wrong", "none", "empty", "twice", "another path"],
)
async def test_an_answer_without_our_state_is_not_believed(change: Callable[[str], str]) -> None:
    async with town() as (authority, agent, _):
        told = card(it=oauth(authority, "authorizationCode"))
        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            alice = Wanderer(change)
            with pytest.raises(Unauthenticated, match="within the time limit"):
                await entrance(auth, alice).log_in(agent.origin, told, Options(wait=0.5))
            assert auth.tokens.all() == ()
        assert alice.answers[0] in (400, 404)
        assert authority.asked("/token") == []


async def test_a_forged_answer_does_not_spoil_the_real_one() -> None:
    async with town() as (authority, agent, _):
        told = card(it=oauth(authority, "authorizationCode"))

        class Both(Alice):
            async def visit(self, url: str) -> int:
                back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
                async with httpx2.AsyncClient() as http:
                    forged = await http.get(f"{back}?code=evil&state=guessed")
                assert forged.status_code == 400
                return await super().visit(url)

        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            await entrance(auth, Both()).log_in(agent.origin, told, Options())
        (asked,) = authority.granted("authorization_code")
        assert asked.form["code"] != "evil"


@pytest.mark.parametrize(
    ("way", "iss", "says"),
    [
        ("metadata", "https://evil.example", "another authorization server"),
        ("metadata", "", "does not say which"),
        ("openid", "https://evil.example", "another authorization server"),
        ("flow", "https://evil.example", "another authorization server"),
        ("flow", "not an address", "another authorization server"),
    ],
)
async def test_the_answer_of_another_issuer_is_refused(way: str, iss: str, says: str) -> None:
    """RFC 9207: mix-up."""
    async with town() as (authority, agent, _):
        authority.iss = iss
        scheme = oauth(authority, "authorizationCode", metadata=way == "metadata")
        told = card(it=openid(authority) if way == "openid" else scheme)
        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            with pytest.raises(Unauthenticated, match=says):
                await entrance(auth, Alice()).log_in(agent.origin, told, Options(wait=3))
        assert authority.asked("/token") == []


async def test_a_card_alone_need_not_name_its_issuer() -> None:
    async with town() as (authority, agent, _):
        authority.iss = ""
        told = card(it=oauth(authority, "authorizationCode"))
        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            assert await entrance(auth, Alice()).log_in(agent.origin, told, Options())


async def test_whoever_refuses_is_not_logged_in() -> None:
    async with town() as (authority, agent, _):
        told = card(it=oauth(authority, "authorizationCode"))
        refuse = lambda url: re.sub(  # noqa: E731
            r"code=[^&]*", "error=access_denied&error_description=No%1B[31m", url
        )
        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            with pytest.raises(Unauthenticated, match="access_denied") as refused:
                await entrance(auth, Wanderer(refuse)).log_in(agent.origin, told, Options(wait=3))
        assert "\x1b" not in refused.value.message


async def test_a_stolen_code_is_worth_nothing_without_the_verifier() -> None:
    """Not our code but our server's: that the tests run against one that insists on PKCE."""
    async with town() as (authority, agent, _):
        told = card(it=oauth(authority, "authorizationCode"))
        stolen: dict[str, str] = {}

        def steal(url: str) -> str:
            stolen.update({k: v[0] for k, v in parse_qs(urlsplit(url).query).items()})
            stolen["redirect_uri"] = url.partition("?")[0]
            return url.replace("/callback", "/elsewhere")

        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            with pytest.raises(Unauthenticated):
                await entrance(auth, Wanderer(steal)).log_in(agent.origin, told, Options(wait=0.5))
        form = {"grant_type": "authorization_code", "client_id": "laptop", **stolen}
        async with httpx2.AsyncClient() as http:
            answer = await http.post(f"{authority.url}/token", data=form)
        assert answer.status_code == 400


def approving(
    authority: Authority, decided: bool, after: int
) -> Callable[[float], Awaitable[None]]:
    """A person who types the code in while we wait, and a clock that does not really wait."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > after:
            for device in authority.memory.devices.values():
                authority.memory.decisions[device.user_code] = decided

    sleep.waits = waits  # type: ignore[attr-defined]
    return sleep


async def test_a_device_code_logs_in() -> None:
    async with town() as (authority, agent, _):
        authority.memory.slow = 1
        scheme = oauth(authority, "deviceCode")
        alice, sleep = Alice(browser=False), approving(authority, True, 3)
        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            flow = WithDevice(auth.fetcher.authority(agent.origin), alice, sleep=sleep)
            server = auth.fetcher.authority(agent.origin).on_card(scheme.flows[0])
            from dragoman.client.auth.token_endpoint import OAuthClient

            grant = await flow(server, OAuthClient("laptop"), ("ask",))
            assert authority.memory.valid(grant.access)
        assert sleep.waits == [1.0, 6.0, 6.0, 6.0]  # type: ignore[attr-defined]  slow_down adds 5
        (device,) = authority.memory.devices.values()
        assert device.user_code in alice.told[0]
        assert len(authority.granted(DEVICE)) == 4


async def test_a_device_code_through_the_entrance() -> None:
    async with town() as (authority, agent, _):
        told = card(it=oauth(authority, "deviceCode"))

        class Typist(Alice):
            def tell(self, text: str) -> None:
                super().tell(text)
                for device in authority.memory.devices.values():
                    authority.memory.decisions[device.user_code] = True

        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            await entrance(auth, Typist(browser=False)).log_in(agent.origin, told, Options())
            assert await call(wallet(auth, told, agent.url), agent.url) == 200


async def test_a_device_code_that_is_refused_or_forgotten() -> None:
    async with town() as (authority, agent, _):
        flow = oauth(authority, "deviceCode").flows[0]
        async with CardAuth() as auth:
            from dragoman.client.auth.token_endpoint import OAuthClient

            asked = auth.fetcher.authority(agent.origin)
            no = WithDevice(asked, Alice(browser=False), sleep=approving(authority, False, 1))
            with pytest.raises(Unauthenticated, match="access_denied"):
                await no(asked.on_card(flow), OAuthClient("laptop"), ())
            now = [0.0]

            async def hours(seconds: float) -> None:
                now[0] += 1000

            never = WithDevice(asked, Alice(browser=False), sleep=hours, clock=lambda: now[0])
            with pytest.raises(Unauthenticated, match="in time"):
                await never(asked.on_card(flow), OAuthClient("laptop"), ())


async def test_a_page_that_is_not_https_is_not_shown() -> None:
    from client.auth.http_server import LittleHttp, as_json

    said = {"device_code": "d", "user_code": "u", "verification_uri": "http://evil.example/x"}
    async with LittleHttp(lambda request: as_json(said)) as server:
        flow = OAuthFlow(
            kind="deviceCode",
            token_url=f"{server.url}/token",
            device_authorization_url=f"{server.url}/d",
        )
        async with CardAuth(keyring(LAPTOP, "http://127.0.0.1:1")) as auth:
            alice = Alice(browser=False)
            with pytest.raises(PeerMisbehaved, match="not https"):
                await entrance(auth, alice).log_in(
                    "http://127.0.0.1:1", card(it=OAuth2(flows=(flow,))), Options()
                )
        assert alice.told == alice.pages == []


async def typed_in(told: Any, *words: str) -> tuple[CardAuth, list[tuple[str, bool]]]:
    asked: list[tuple[str, bool]] = []
    left = list(words)

    async def typed(label: str, secret: bool) -> str:
        asked.append((label, secret))
        return left.pop(0)

    auth = CardAuth()
    await Login(auth, Alice(), typed).log_in("https://agent.example.com:443", told, Options())
    return auth, asked


async def test_keys_and_passwords_are_typed_in_without_being_seen() -> None:
    origin = "https://agent.example.com:443"
    auth, asked = await typed_in(card(key=ApiKey(name="X-Key")), "k-123")
    assert asked == [("API key", True)]
    told = card(key=ApiKey(name="X-Key"))
    given = await auth.credentials(origin, told, told.security, refused=None)
    assert given.headers == {"x-key": "k-123"}
    auth, asked = await typed_in(card(me=HttpAuth(scheme="basic")), "alice", "pw")
    assert asked == [("User name", False), ("Password", True)]
    auth, _ = await typed_in(card(me=HttpAuth(scheme="bearer")), "t-1")
    assert "t-1" not in repr(auth.tokens.all())


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        (Options(scheme="other"), ConfigError, "no scheme 'other'"),
        (Options(flow="deviceCode"), Unsupported, "no flow"),
        (Options(), ConfigError, "--client-id"),
    ],
)
async def test_what_cannot_be_done_is_said(
    options: Options, kind: type[DragomanError], says: str
) -> None:
    async with town() as (authority, agent, _):
        told = card(it=oauth(authority, "authorizationCode"))
        async with CardAuth(keyring(Own(), agent.origin)) as auth:
            with pytest.raises(kind, match=says):
                await entrance(auth, Alice()).log_in(agent.origin, told, options)
            with pytest.raises(ConfigError, match="plain http"):
                await entrance(auth, Alice()).log_in("http://far.example:80", told, options)
            with pytest.raises(ConfigError, match="nothing to log in"):
                await entrance(auth, Alice()).log_in(agent.origin, card(), Options())


async def test_a_secret_is_not_sent_for_another_client() -> None:
    async with town() as (authority, agent, _):
        told = card(it=oauth(authority, "authorizationCode"))
        own = Own(client_id="robot", client_secret=SECRET)
        async with CardAuth(keyring(own, agent.origin)) as auth:
            options = Options(client_id="laptop")
            await entrance(auth, Alice()).log_in(agent.origin, told, options)
        assert all(SECRET.encode() not in heard.raw for heard in authority.heard)
        assert all("authorization" not in r.headers for r in authority.asked("/token"))


async def test_the_port_of_the_redirect_can_be_taken() -> None:
    async with town() as (authority, agent, _), CardAuth() as auth:
        flow = WithBrowser(auth.fetcher.authority(agent.origin), Alice(), port=agent.port)
        from dragoman.client.auth.token_endpoint import OAuthClient

        server = auth.fetcher.authority(agent.origin).on_card(
            oauth(authority, "authorizationCode").flows[0]
        )
        with pytest.raises(ConfigError, match="cannot be used"):
            await flow(server, OAuthClient("laptop"), ())
