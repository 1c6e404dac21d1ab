"""A login holds to one authorization server: no other one gets codes, tokens or secrets."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from client.auth.authorization_server import Authority
from client.auth.guarded_agent import (
    LAPTOP,
    ROBOT,
    SECRET,
    Alice,
    GuardedAgent,
    call,
    card,
    entrance,
    keyring,
    town,
    wallet,
)
from client.auth.http_server import LittleHttp, Request, Response, as_json
from dragoman.client.auth import CardAuth, Own, TokenStore
from dragoman.client.auth.login import Options
from dragoman.client.auth.login_flows import WithDevice
from dragoman.client.auth.token_endpoint import OAuthClient
from dragoman.core.card import Card, OAuth2, OAuthFlow, OpenId
from dragoman.core.errors import DragomanError, PeerMisbehaved, Unauthenticated

GRANT = {"access_token": "stolen", "token_type": "Bearer", "refresh_token": "r"}


def thief() -> LittleHttp:
    """A server that takes whatever it gets."""
    return LittleHttp(lambda request: as_json(GRANT))


def flow(kind: str, front: str, token: str, refresh: str = "") -> OAuth2:
    """A flow whose endpoints are at these servers."""
    made = OAuthFlow(
        kind=kind,
        token_url=f"{token}/token",
        authorization_url=f"{front}/authorize" if kind == "authorizationCode" else "",
        device_authorization_url=f"{front}/device_authorization" if kind == "deviceCode" else "",
        refresh_url=f"{refresh}/token" if refresh else "",
        scopes={"ask": "May ask."},
    )
    return OAuth2(flows=(made,))


class Typist(Alice):
    """Types every code into the page of the authority."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self._authority = authority

    def tell(self, text: str) -> None:
        super().tell(text)
        for device in self._authority.memory.devices.values():
            self._authority.memory.decisions[device.user_code] = True

    def open(self, url: str) -> bool:
        return super().open(url) if "/authorize" in url else False


async def refused(
    told: Card, agent: GuardedAgent, authority: Authority, own: Own = LAPTOP
) -> DragomanError:
    """The error of a login, for which nobody had to do anything."""
    person = Typist(authority)
    async with CardAuth(keyring(own, agent.origin)) as auth:
        with pytest.raises(DragomanError) as caught:
            await entrance(auth, person).log_in(agent.origin, told, Options(wait=5))
        assert auth.tokens.all() == ()
    assert person.pages == person.told == []
    return caught.value


@pytest.mark.parametrize("kind", ["authorizationCode", "deviceCode", "clientCredentials"])
async def test_a_refresh_url_elsewhere_gets_nothing(kind: str) -> None:
    async with town() as (authority, agent, _), thief() as evil:
        told = card(it=flow(kind, authority.url, authority.url, evil.url))
        own = ROBOT if kind == "clientCredentials" else LAPTOP
        error = await refused(told, agent, authority, own)
        assert isinstance(error, Unauthenticated)
        assert "refresh" in error.message
        assert evil.heard == []


async def test_a_refresh_url_that_was_stored_before_gets_nothing() -> None:
    async with town() as (authority, agent, _), thief() as evil:
        told, tokens = (
            card(it=flow("authorizationCode", authority.url, authority.url)),
            TokenStore(),
        )
        async with CardAuth(keyring(LAPTOP, agent.origin), tokens) as auth:
            await entrance(auth, Alice()).log_in(agent.origin, told, Options())
            (kept,) = tokens.all()
            tokens.put(replace(kept, refresh_url=f"{evil.url}/token", until=1.0))
            assert await call(wallet(auth, told, agent.url), agent.url) == 200
        assert evil.heard == []
        assert len(authority.granted("refresh_token")) == 1


@pytest.mark.parametrize("kind", ["authorizationCode", "deviceCode"])
@pytest.mark.parametrize("front", [False, True], ids=["token", "front"])
async def test_a_token_url_elsewhere_gets_neither_code_nor_verifier(kind: str, front: bool) -> None:
    """Although the answer names the honest issuer. The other way round the person would log in
    for somebody else."""
    async with town() as (authority, agent, _), thief() as evil:
        places = (evil.url, authority.url) if front else (authority.url, evil.url)
        error = await refused(card(it=flow(kind, *places)), agent, authority)
        assert isinstance(error, Unauthenticated)
        assert evil.url.partition("://")[2] in error.message
        assert [request for request in evil.heard if request.method == "POST"] == []


def metadata(issuer: str, authority: str, token: str) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{authority}/authorize",
        "device_authorization_endpoint": f"{authority}/device_authorization",
        "token_endpoint": f"{token}/token",
    }


@pytest.mark.parametrize("kind", ["authorizationCode", "deviceCode"])
@pytest.mark.parametrize("by", ["metadata", "openid"])
async def test_metadata_of_the_thief_is_no_proof(kind: Any, by: str) -> None:
    async with town() as (authority, agent, _):

        def answer(request: Request) -> Response:
            if request.method == "GET":
                return as_json(metadata(evil.url, authority.url, evil.url))
            return as_json(GRANT)

        async with LittleHttp(answer) as evil:
            place = f"{evil.url}/.well-known/openid-configuration"
            scheme = flow(kind, authority.url, evil.url)
            scheme = OpenId(url=place) if by == "openid" else replace(scheme, metadata_url=place)
            person = Typist(authority)
            async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
                with pytest.raises(Unauthenticated):
                    await entrance(auth, person).log_in(
                        agent.origin, card(it=scheme), Options(flow=kind, wait=5)
                    )
            assert person.pages == person.told == []
            assert [request for request in evil.heard if request.method == "POST"] == []


@pytest.mark.parametrize("kind", ["authorizationCode", "deviceCode"])
@pytest.mark.parametrize("by", ["card", "metadata", "openid"])
async def test_metadata_of_the_authorization_origin_binds_other_origins(kind: Any, by: str) -> None:
    """As with accounts.google.com, whose tokens come from oauth2.googleapis.com."""
    async with town() as (authority, agent, _), LittleHttp(authority.answer) as tokens:
        honest = metadata(authority.url, authority.url, tokens.url)
        authority._metadata = lambda: honest  # type: ignore[method-assign]
        place = f"{authority.url}/.well-known/oauth-authorization-server"
        scheme: Any = flow(kind, authority.url, tokens.url)
        if by == "metadata":
            scheme = replace(scheme, metadata_url=place)
        elif by == "openid":
            scheme = OpenId(url=place)
        told = card(it=scheme)
        async with CardAuth(keyring(LAPTOP, agent.origin)) as auth:
            person = Typist(authority)
            await entrance(auth, person).log_in(agent.origin, told, Options(flow=kind))
            assert await call(wallet(auth, told, agent.url), agent.url) == 200
        assert [request.path for request in tokens.heard] == ["/token"]


async def test_metadata_that_names_other_endpoints_does_not_bind() -> None:
    async with town() as (authority, agent, _), thief() as evil:
        error = await refused(
            card(it=flow("authorizationCode", authority.url, evil.url)), agent, authority
        )
        assert isinstance(error, Unauthenticated)
        assert authority.asked("/.well-known/oauth-authorization-server")
        assert evil.heard == []


@pytest.mark.parametrize("kind", ["authorizationCode", "deviceCode", "clientCredentials"])
async def test_a_configured_issuer_binds_every_endpoint(kind: str) -> None:
    async with town() as (authority, agent, _), thief() as evil:
        own = replace(ROBOT, issuer=authority.url)
        for front, token in ((evil.url, evil.url), (evil.url, authority.url)):
            if kind == "clientCredentials" and token == authority.url:
                continue
            error = await refused(card(it=flow(kind, front, token)), agent, authority, own)
            assert isinstance(error, Unauthenticated)
        assert evil.heard == []
        told = card(it=flow("clientCredentials", authority.url, authority.url))
        async with CardAuth(keyring(own, agent.origin)) as auth:
            assert await call(wallet(auth, told, agent.url), agent.url) == 200


async def test_a_configured_issuer_binds_what_was_stored_before() -> None:
    async with town() as (authority, agent, _), thief() as evil:
        told, tokens = card(it=flow("authorizationCode", evil.url, evil.url)), TokenStore()
        own = replace(ROBOT, issuer=authority.url)
        async with CardAuth(keyring(ROBOT, agent.origin), tokens) as auth:
            evil_grant = flow("clientCredentials", evil.url, evil.url)
            await entrance(auth, Alice()).log_in(agent.origin, card(it=evil_grant), Options())
        (kept,) = tokens.all()
        tokens.put(replace(kept, until=1.0))
        before = len(evil.heard)
        async with CardAuth(keyring(own, agent.origin), tokens) as auth:
            with pytest.raises(Unauthenticated):
                await auth.credentials(agent.origin, told, told.security, refused="")
        assert len(evil.heard) == before


async def test_a_configured_issuer_vouches_for_other_origins() -> None:
    async with town() as (authority, agent, _), LittleHttp(authority.answer) as tokens:
        honest = metadata(authority.url, tokens.url, tokens.url)
        authority._metadata = lambda: honest  # type: ignore[method-assign]
        told = card(it=flow("authorizationCode", tokens.url, tokens.url))
        own = replace(LAPTOP, issuer=authority.url)
        async with CardAuth(keyring(own, agent.origin)) as auth:
            await entrance(auth, Alice()).log_in(agent.origin, told, Options())
            assert await call(wallet(auth, told, agent.url), agent.url) == 200


@pytest.mark.parametrize(
    "more",
    ["?client_id=evil", "?a=b&redirect_uri=http://evil.example", "?State=x", "?request_uri=x", "#"],
)
async def test_parameters_of_ours_may_not_come_from_the_card(more: str) -> None:
    async with town() as (authority, agent, _):
        scheme = flow("authorizationCode", authority.url, authority.url)
        (made,) = scheme.flows
        made = replace(made, authorization_url=made.authorization_url + more)
        error = await refused(card(it=OAuth2(flows=(made,))), agent, authority)
        assert isinstance(error, PeerMisbehaved)
        assert authority.heard == []


async def test_a_server_cannot_make_us_poll_without_a_pause() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    def answer(request: Request) -> Response:
        if request.path == "/token" and len(waits) < 3:
            return as_json({"error": "authorization_pending"}, 400)
        page = "https://id.example/device"
        code = {"device_code": "d", "user_code": "u", "verification_uri": page, "interval": 0}
        return as_json({**code, **GRANT})

    async with LittleHttp(answer) as server, CardAuth() as auth:
        authority = auth.fetcher.authority(server.url)
        device = WithDevice(authority, Alice(browser=False), sleep=sleep)
        found = authority.on_card(flow("deviceCode", server.url, server.url).flows[0])
        await device(found, OAuthClient("laptop"), ())
    assert waits
    assert min(waits) >= 1.0


@pytest.mark.parametrize("kind", ["authorizationCode", "deviceCode", "clientCredentials"])
async def test_errors_do_not_print_codes(kind: str) -> None:
    async with town() as (authority, agent, _):
        secrets: list[str] = []

        def echo(request: Request) -> Response:
            if request.path != "/token":
                return answer(request)
            secrets.extend(
                value for name, value in request.form.items() if name in ("code", "device_code")
            )
            secrets.extend(filter(None, [request.form.get("code_verifier")]))
            text = f"{request.body.decode()} {request.headers.get('authorization')}"
            return as_json({"error": "invalid_grant", "error_description": text[:300]}, 400)

        answer, authority.answer = authority.answer, echo
        told = card(it=flow(kind, authority.url, authority.url))
        own = ROBOT if kind == "clientCredentials" else LAPTOP
        async with CardAuth(keyring(own, agent.origin)) as auth:
            with pytest.raises(DragomanError, match="invalid_grant") as caught:
                await entrance(auth, Typist(authority)).log_in(agent.origin, told, Options())
        assert secrets or kind == "clientCredentials"
        for secret in (*secrets, SECRET):
            assert secret[:12] not in caught.value.message
