"""`GET /` in a browser: a page about the agent. All other clients get what they got before."""

from __future__ import annotations

import httpx2
import pytest

from dragoman import Agent, Provider, Turn
from dragoman.client.auth.redirect import Redirect
from dragoman.testing.served import served

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def desk(name: str = "Travel <desk>") -> Agent:
    provider = Provider(organization="Acme & Co", url="https://acme.example")
    agent = Agent(name, description="Plans <b>trips</b>", provider=provider)

    @agent.skill("plan", description="Plans a trip", examples=["Three days in Kyoto's old town"])
    async def plan(turn: Turn) -> str:
        return turn.text

    return agent


async def test_a_browser_sees_who_the_agent_is_and_how_to_call_it() -> None:
    async with served(desk()) as url, httpx2.AsyncClient() as client:
        shown = await client.get(url, headers=BROWSER)
        assert shown.status_code == 200
        assert shown.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in shown.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
        assert shown.headers["vary"] == "Accept"
        for part in (
            "Travel &lt;desk&gt;",
            "Plans &lt;b&gt;trips",
            "Acme &amp; Co",
            "Plans a trip",
        ):
            assert part in shown.text
        assert f"dragoman send {url}" in shown.text
        assert "<b>" not in shown.text
        head = await client.head(url, headers=BROWSER)
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
async def test_other_clients_get_what_they_got_before(accept: str) -> None:
    async with served(desk()) as url, httpx2.AsyncClient() as client:
        shown = await client.get(url, headers={"accept": accept})
        assert shown.status_code == 405
        assert shown.headers["allow"] == "POST"
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
        answer = await client.post(url, json=call, headers={**BROWSER, "A2A-Version": "1.0"})
        assert answer.json()["error"]["code"] == -32001


async def test_each_of_several_agents_has_a_page() -> None:
    async with served([desk("One"), desk("Two")]) as url, httpx2.AsyncClient() as client:
        for name in ("one", "two"):
            for end in ("", "/"):
                shown = await client.get(f"{url}/agents/{name}{end}", headers=BROWSER)
                assert f"dragoman send {url}/agents/{name}/ " in shown.text
            told = await client.get(f"{url}/agents/{name}")
            assert told.headers["content-type"] == "application/json"
        listed = await client.get(url, headers=BROWSER)
        assert f"<a href='{url}/agents/one/'><bdi>One</bdi></a>" in listed.text
        assert (await client.get(url)).status_code == 404


async def test_no_page_can_be_framed() -> None:
    pages = 0
    async with served([desk("One"), desk("Two")]) as url, httpx2.AsyncClient() as client:
        for path in ("", "/", "/agents", "/agents/", "/agents/one", "/agents/none", "/nothing"):
            shown = await client.get(f"{url}{path}", headers=BROWSER)
            if "html" in shown.headers.get("content-type", ""):
                pages += 1
                assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
    async with Redirect("state") as redirect, httpx2.AsyncClient() as client:
        for query in ("", "?state=state&code=1", "?state=state&error=access_denied"):
            shown = await client.get(f"{redirect.url}{query}", headers=BROWSER)
            pages += 1
            assert shown.headers["content-type"].startswith("text/html")
            assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
    assert pages >= 6
