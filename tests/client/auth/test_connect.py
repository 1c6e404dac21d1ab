"""The whole way: `connect` reads a real server's card, gets what it asks for, and is let in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from client.auth.authorization_server import App, Authority
from client.auth.guarded_agent import ROBOT, SECRET, keyring
from client.our_server import open_server
from dragoman.client import connect
from dragoman.client.auth import CardAuth, Own, UserCredentials
from dragoman.client.credentials import origin_of
from dragoman.core.auth_schemes import ApiKeys, Jwt, Known, OAuth, Passwords, Scheme, Secret, Tokens
from dragoman.core.errors import Unauthenticated
from security.issuer import AUDIENCE, ISSUER, Issuer

KEY = "a-key-of-sixteen-characters"
FIXED: dict[str, tuple[Scheme, Own]] = {
    "key in a header": (
        ApiKeys(callers={"alice": Known(secret=Secret(env="T_KEY"))}),
        Own(api_key=KEY),
    ),
    "key in the query": (
        ApiKeys(callers={"alice": Known(secret=Secret(env="T_KEY"))}, location="query", name="key"),
        Own(api_key=KEY),
    ),
    "key in a cookie": (
        ApiKeys(callers={"alice": Known(secret=Secret(env="T_KEY"))}, location="cookie", name="k"),
        Own(api_key=KEY),
    ),
    "basic": (
        Passwords(callers={"alice": Known(secret=Secret(env="T_KEY"))}),
        Own(user="alice", password=KEY),
    ),
    "bearer": (Tokens(callers={"alice": Known(secret=Secret(env="T_KEY"))}), Own(token=KEY)),
}


@pytest.mark.parametrize(("scheme", "own"), FIXED.values(), ids=FIXED.keys())
async def test_every_fixed_scheme_opens_a_real_server(
    scheme: Scheme, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T_KEY", KEY)
    async with open_server(auth={"door": scheme}) as server:
        origin = origin_of(server.url)
        async with connect(server.url, auth=CardAuth(keyring(own, origin))) as agent:
            assert (await agent.send("hello")).text == "HELLO"
            streamed = [event async for event in agent.stream("again")]
            assert streamed
        async with connect(server.url, auth=CardAuth()) as stranger:
            with pytest.raises(Unauthenticated, match="dragoman login"):
                await stranger.send("hello")


def oauth_door(authority: Authority, issuer: Issuer, folder: Path) -> Jwt:
    return Jwt(
        issuer=ISSUER,
        audience=(AUDIENCE,),
        keys_file=issuer.save(folder),
        leeway=0.0,
        oauth2=OAuth(token_url=f"{authority.url}/token", scopes={"ask": "May ask."}),
    )


async def test_client_credentials_to_a_real_server_and_again_when_it_ends(tmp_path: Path) -> None:
    issuer = Issuer()
    lives = [600]

    def access(client: str) -> str:
        now = int(time.time())
        return issuer.token(issuer.claims(sub=client, iat=now, exp=now + lives[0], jti=str(now)))

    async with Authority() as authority:
        authority.memory.clients = {"robot": App("robot", SECRET)}
        authority.access = access
        async with open_server(auth={"door": oauth_door(authority, issuer, tmp_path)}) as server:
            now = [time.time()]
            origin = origin_of(server.url)
            async with CardAuth(keyring(ROBOT, origin), clock=lambda: now[0]) as auth:
                lives[0] = -1  # ended before it arrives: the first is refused, the second is not
                async with connect(server.url, auth=auth) as agent:
                    with pytest.raises(Unauthenticated):
                        await agent.send("hello")
                    lives[0] = 600
                    now[0] += 5
                    assert (await agent.send("hello")).text == "HELLO"
                    assert (await agent.send("again")).text == "AGAIN"
        assert 2 <= len(authority.asked("/token")) <= 3


async def test_the_users_own_file_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T_KEY", KEY)
    async with open_server(auth={"door": FIXED["bearer"][0]}) as server:
        (tmp_path / "credentials.toml").write_text(f'["{server.url}"]\ntoken = "{KEY}"\n')
        (tmp_path / "credentials.toml").chmod(0o600)
        environ: dict[str, Any] = {"DRAGOMAN_CONFIG_DIR": str(tmp_path)}
        async with (
            CardAuth.of(environ) as auth,
            connect(server.url, auth=auth) as agent,
        ):
            assert (await agent.send("hello")).text == "HELLO"
        assert isinstance(UserCredentials.of(environ), UserCredentials)
