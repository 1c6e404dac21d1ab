"""Tokens without a person: client credentials, renewal, revocation, and where nothing must go."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from client.auth.guarded_agent import (
    LAPTOP,
    ROBOT,
    SECRET,
    Alice,
    call,
    card,
    entrance,
    keyring,
    oauth,
    openid,
    town,
    wallet,
)
from dragoman.client.auth import CardAuth, TokenStore
from dragoman.client.auth.login import Options
from dragoman.client.credentials import Wallet
from dragoman.core.card import OAuth2
from dragoman.core.errors import PeerMisbehaved, PeerUnreachable, Unauthenticated
from waiting import turns


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


async def test_client_credentials_open_the_agent() -> None:
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, agent.origin)) as auth:
            purse = wallet(auth, told, agent.url)
            assert [await call(purse, agent.url) for _ in range(3)] == [200] * 3
        (asked,) = authority.asked("/token")
        assert asked.form == {"grant_type": "client_credentials", "scope": "ask"}
        assert asked.headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize("metadata", [False, True])
async def test_metadata_and_openid_name_the_same_server(metadata: bool) -> None:
    async with town() as (authority, agent, _):
        scheme = oauth(authority, "clientCredentials", metadata=True) if metadata else None
        told = card(one=scheme or openid(authority))
        async with CardAuth(keyring(ROBOT, agent.origin)) as auth:
            assert await call(wallet(auth, told, agent.url), agent.url) == 200


async def test_nothing_goes_to_a_second_origin() -> None:
    """An agent elsewhere, named by a card or allowed by the user, learns nothing of the first."""
    async with town() as (authority, agent, other):
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, agent.origin)) as auth:
            purse = wallet(auth, told, agent.url)
            assert await call(purse, agent.url) == 200
            assert await call(purse, other.url) == 401
            # Even where the user allows the origin, what belongs to another one is not told.
            both = wallet(auth, told, agent.url, other.url)
            assert await call(both, agent.url) == 200
            with pytest.raises(Unauthenticated, match="dragoman login"):
                await call(both, other.url)
        (issued,) = authority.memory.tokens
        for heard in other.heard:
            assert "authorization" not in heard.headers
            assert issued.access_token.encode() not in heard.raw
            assert SECRET.encode() not in heard.raw
        assert other.heard


async def test_a_token_is_renewed_before_it_ends() -> None:
    clock = Clock()
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, agent.origin), clock=clock) as auth:
            first = await auth.credentials(agent.origin, told, told.security, refused=None)
            assert first.until == pytest.approx(clock.now + 3600 - 60)
            clock.now += 3530
            again = await auth.credentials(agent.origin, told, told.security, refused=None)
            clock.now += 20
            later = await auth.credentials(agent.origin, told, told.security, refused=None)
        assert first.headers == again.headers
        assert len(authority.asked("/token")) == 2
        assert later.headers != first.headers


async def test_a_hundred_callers_fetch_one_token() -> None:
    clock = Clock()
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, agent.origin), clock=clock) as auth:

            async def ask(refused: str | None) -> str:
                found = await auth.credentials(agent.origin, told, told.security, refused=refused)
                return found.headers["authorization"]

            first = await asyncio.gather(*(ask(None) for _ in range(100)))
            assert len(set(first)) == 1
            clock.now += 5  # not just now
            second = await asyncio.gather(*(ask("") for _ in range(100)))
            assert len(set(second)) == 1
            assert set(first) != set(second)
        assert len(authority.asked("/token")) == 2


async def test_whoever_gives_up_does_not_take_the_token_from_others() -> None:
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, agent.origin)) as auth:

            def ask() -> asyncio.Task[object]:
                work = auth.credentials(agent.origin, told, told.security, refused=None)
                return asyncio.ensure_future(work)

            leaving, staying = ask(), ask()
            await turns()
            leaving.cancel()
            assert await staying
        assert len(authority.asked("/token")) == 1


async def test_a_revoked_token_is_fetched_anew() -> None:
    clock = Clock()
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, agent.origin), clock=clock) as auth:
            purse = wallet(auth, told, agent.url)
            assert await call(purse, agent.url) == 200
            authority.revoke_all()
            clock.now += 5  # not just now
            assert await call(purse, agent.url) == 200
        assert len(authority.asked("/token")) == 2


async def logged_in(auth: CardAuth, authority: object, agent: object, told: object) -> None:
    """Alice logs in with her browser."""
    await entrance(auth, Alice()).log_in(agent.origin, told, Options())  # type: ignore[attr-defined,arg-type]


async def test_a_refresh_token_is_used_once_and_replaced(tmp_path: Path) -> None:
    clock = Clock()
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "authorizationCode"))
        tokens = TokenStore(tmp_path / "tokens.json")
        async with CardAuth(keyring(LAPTOP, agent.origin), tokens, clock=clock) as auth:
            await logged_in(auth, authority, agent, told)
            before = tokens.get(agent.origin, "oauth")
            assert before is not None
            assert before.refresh
            authority.end_access()
            clock.now += 5  # not just now
            assert await call(wallet(auth, told, agent.url), agent.url) == 200
            after = tokens.get(agent.origin, "oauth")
            assert after is not None
            assert after.refresh not in ("", before.refresh)
            assert after.scopes == before.scopes
        (asked,) = authority.granted("refresh_token")
        assert asked.form["client_id"] == "laptop"


async def test_when_all_is_revoked_the_person_is_told_what_to_do(tmp_path: Path) -> None:
    clock = Clock()
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "authorizationCode"))
        tokens = TokenStore(tmp_path / "tokens.json")
        async with CardAuth(keyring(LAPTOP, agent.origin), tokens, clock=clock) as auth:
            await logged_in(auth, authority, agent, told)
            held = tokens.get(agent.origin, "oauth")
            assert held is not None
            authority.revoke_all()
            clock.now += 5  # not just now
            with pytest.raises(Unauthenticated, match=f"dragoman login {agent.url}") as refused:
                await call(wallet(auth, told, agent.url), agent.url)
            assert tokens.all() == ()
        for secret in (held.secret, held.refresh):
            assert secret not in str(refused.value)
            assert secret not in repr(refused.value.public)


async def test_another_process_may_have_been_quicker(tmp_path: Path) -> None:
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "authorizationCode"))
        tokens = TokenStore(tmp_path / "tokens.json")
        async with CardAuth(keyring(LAPTOP, agent.origin), tokens) as auth:
            await logged_in(auth, authority, agent, told)
            stale = tokens.get(agent.origin, "oauth")
            assert stale is not None
            async with CardAuth(keyring(LAPTOP, agent.origin), tokens) as rival:
                authority.end_access()
                assert await call(wallet(rival, told, agent.url), agent.url) == 200
            # This one still believes in the old refresh token, which counts no more.
            found = await auth.fetcher._refreshed(LAPTOP, stale)
            assert found is not None
            assert found == tokens.get(agent.origin, "oauth") != stale


async def test_a_card_that_moves_to_another_server_gets_no_secret(tmp_path: Path) -> None:
    clock = Clock()
    async with town() as (authority, agent, other):
        told = card(oauth=oauth(authority, "clientCredentials"))
        tokens = TokenStore(tmp_path / "tokens.json")
        async with CardAuth(keyring(ROBOT, agent.origin), tokens, clock=clock) as auth:
            assert await call(wallet(auth, told, agent.url), agent.url) == 200
            scheme = told.schemes["oauth"]
            assert isinstance(scheme, OAuth2)
            flow = replace(scheme.flows[0], token_url=f"{other.url}/token")
            moved = card(oauth=replace(scheme, flows=(flow,)))
            authority.revoke_all()
            clock.now += 5  # not just now
            with pytest.raises(Unauthenticated, match="another authorization server"):
                await call(wallet(auth, moved, agent.url), agent.url)
        assert other.heard == []


@pytest.mark.parametrize("way", ["metadata", "flow"])
async def test_the_user_can_name_the_only_issuer(way: str) -> None:
    async with town() as (authority, agent, other):
        own = replace(ROBOT, issuer=other.url)
        scheme = openid(authority) if way == "metadata" else oauth(authority, "clientCredentials")
        told = card(one=scheme)
        async with CardAuth(keyring(own, agent.origin)) as auth:
            with pytest.raises(Unauthenticated, match="nothing was sent"):
                await call(wallet(auth, told, agent.url), agent.url)
        assert authority.asked("/token") == []


async def test_metadata_of_another_issuer_is_not_believed() -> None:
    async with town() as (authority, agent, _):
        authority.issuer = "https://id.example.com"
        told = card(one=openid(authority))
        async with CardAuth(keyring(ROBOT, agent.origin)) as auth:
            with pytest.raises(PeerMisbehaved, match="another issuer"):
                await call(wallet(auth, told, agent.url), agent.url)
        assert authority.asked("/token") == []


async def test_a_card_from_elsewhere_cannot_send_us_to_our_own_machine() -> None:
    """An agent in the world names an authorization server on loopback: it is not called."""
    async with town() as (authority, _, __):
        far = "https://agent.example.com:443"
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, far)) as auth:
            with pytest.raises(PeerMisbehaved, match="may not be called"):
                await auth.credentials(far, told, told.security, refused=None)
        assert authority.heard == []


async def test_plain_http_elsewhere_is_never_told_anything() -> None:
    async with town() as (authority, _, __):
        far = "http://agent.example.com:80"
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, far)) as auth:
            found = await auth.credentials(far, told, told.security, refused=None)
        assert not found.headers
        assert authority.heard == []


async def test_a_token_near_its_end_is_used_when_the_server_is_away() -> None:
    clock = Clock()
    async with town() as (authority, agent, _):
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, agent.origin), clock=clock) as auth:
            first = await auth.credentials(agent.origin, told, told.security, refused=None)
            await authority.__aexit__()
            clock.now += 3560
            again = await auth.credentials(agent.origin, told, told.security, refused=None)
            assert again.headers == first.headers
            clock.now += 60
            with pytest.raises(PeerUnreachable):
                await auth.credentials(agent.origin, told, told.security, refused=None)
            await authority.__aenter__()


async def test_secrets_are_in_no_repr_and_no_error() -> None:
    async with town() as (authority, agent, _):
        authority.memory.clients["robot"].secret = "another one"
        told = card(oauth=oauth(authority, "clientCredentials"))
        async with CardAuth(keyring(ROBOT, agent.origin)) as auth:
            with pytest.raises(Unauthenticated, match="invalid_client") as refused:
                await call(wallet(auth, told, agent.url), agent.url)
    seen = [str(refused.value), repr(refused.value), repr(ROBOT), repr(vars(refused.value))]
    assert all(SECRET not in each for each in seen)
    assert "client_secret" in repr(ROBOT)


def test_the_wallet_takes_it() -> None:
    """It is an `Auth`, as the type checker sees it too."""
    assert Wallet(CardAuth(), ["https://a.example"]).allows("https://a.example:443")
