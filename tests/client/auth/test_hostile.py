"""Authorization servers that misbehave, and what the log says of all this: nothing secret."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

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
    town,
    wallet,
)
from client.auth.http_server import LittleHttp, Request, Response, as_json
from dragoman.client.auth import CardAuth, TokenStore
from dragoman.client.auth.login import Options
from dragoman.core.card import OAuth2, OAuthFlow
from dragoman.core.errors import DragomanError, PeerMisbehaved
from dragoman.observability.log import HELD_BACK

AGENT = "http://127.0.0.1:9"
GOOD = {"access_token": "t", "token_type": "Bearer"}
ODD: dict[str, Response] = {
    "not JSON": Response(200, b"<html>"),
    "a list": as_json([GOOD]),
    "nothing": Response(200, b""),
    "no token": as_json({"token_type": "Bearer"}),
    "a token that is no word": as_json(GOOD | {"access_token": 7}),
    "a token with a line in it": as_json(GOOD | {"access_token": "a\r\nx: y"}),
    "a token with a space": as_json(GOOD | {"access_token": "a b"}),
    "an endless token": as_json(GOOD | {"access_token": "x" * 20_000}),
    "a token of another kind": as_json(GOOD | {"token_type": "mac"}),
    "no kind": as_json({"access_token": "t"}),
    "too much": as_json(GOOD | {"more": "x" * 300_000}),
    "an error": as_json({"error": "server_error", "error_description": "\x1b[2J" * 500}, 500),
    "an error that is no word": as_json({"error": {"a": 1}}, 400),
    "deep": Response(200, b'{"a":' * 5000 + b"1" + b"}" * 5000),
}


def flows(url: str) -> OAuth2:
    return OAuth2(flows=(OAuthFlow(kind="clientCredentials", token_url=f"{url}/token"),))


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_an_odd_answer_is_an_error_and_nothing_is_kept(odd: Response) -> None:
    async with LittleHttp(lambda request: odd) as server:
        told = card(it=flows(server.url))
        async with CardAuth(keyring(ROBOT, "http://127.0.0.1:9")) as auth:
            with pytest.raises(DragomanError) as refused:
                await auth.credentials(AGENT, told, told.security, refused=None)
            assert auth.tokens.all() == ()
    said = refused.value.message
    assert SECRET not in said
    assert said.isprintable()
    assert len(said) < 500


@pytest.mark.parametrize("life", [None, -1, 0, True, "soon", 1e300, "3600", 3600.5])
async def test_an_odd_life_does_no_harm(life: object) -> None:
    async with LittleHttp(lambda request: as_json(GOOD | {"expires_in": life})) as server:
        told = card(it=flows(server.url))
        async with CardAuth(keyring(ROBOT, "http://127.0.0.1:9")) as auth:
            given = await auth.credentials(AGENT, told, told.security, refused=None)
    assert given.headers == {"authorization": "Bearer t"}
    assert (given.until is not None) == (life in ("3600", 3600.5))


async def test_a_redirect_is_not_followed() -> None:
    async with LittleHttp(lambda request: as_json(GOOD)) as thief:

        def moved(request: Request) -> Response:
            return Response(307, b"", {"location": f"{thief.url}/token"})

        async with LittleHttp(moved) as server:
            told = card(it=flows(server.url))
            async with CardAuth(keyring(ROBOT, "http://127.0.0.1:9")) as auth:
                with pytest.raises(PeerMisbehaved):
                    await auth.credentials(AGENT, told, told.security, refused=None)
        assert thief.heard == []


@pytest.mark.parametrize(
    "url",
    ["http://id.example.com/token", "ftp://id.example.com/token", "https://u:p@id.example.com/t"],
)
async def test_addresses_that_must_not_hear_a_secret(url: str) -> None:
    told = card(it=OAuth2(flows=(OAuthFlow(kind="clientCredentials", token_url=url),)))
    async with CardAuth(keyring(ROBOT, "http://127.0.0.1:9")) as auth:
        with pytest.raises(PeerMisbehaved):
            await auth.credentials(AGENT, told, told.security, refused=None)


async def test_nothing_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the lowest level, of all libraries, while everything is done once."""
    caplog.set_level(logging.ERROR, "authlib")  # the server's side of the tests
    for name in ("", *HELD_BACK):  # a server that ran here before keeps some of them quiet
        caplog.set_level(logging.DEBUG, name)
    seen: list[str] = []
    async with town() as (authority, agent, _):
        async with CardAuth(keyring(ROBOT, agent.origin)) as auth:
            told = card(it=oauth(authority, "clientCredentials"))
            assert await call(wallet(auth, told, agent.url), agent.url) == 200
            seen += [kept.secret for kept in auth.tokens.all()]
        tokens = TokenStore(tmp_path / "tokens.json")
        async with CardAuth(keyring(LAPTOP, agent.origin), tokens) as auth:
            told = card(it=oauth(authority, "authorizationCode"))
            await entrance(auth, Alice(browser=True)).log_in(agent.origin, told, Options())
            seen += [word for kept in tokens.all() for word in (kept.secret, kept.refresh)]
        seen += [r.form["code_verifier"] for r in authority.granted("authorization_code")]
    assert len(seen) == 4
    ours = [r for r in caplog.records if not r.name.startswith("httpx2")]  # Alice's browser
    text = "\n".join(record.getMessage() for record in ours)
    assert text
    assert [secret for secret in (*seen, SECRET) if secret in text] == []
