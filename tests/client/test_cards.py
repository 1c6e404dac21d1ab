"""Cards of every version are understood; the way to speak is chosen as the specification says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from client.our_server import open_server
from dragoman import Task, connect
from dragoman.client.cards import Cache, Finder, card_in, places
from dragoman.client.credentials import Wallet
from dragoman.client.limits import ClientLimits
from dragoman.client.negotiation import choices
from dragoman.client.transports.http import Http
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError, PeerMisbehaved, PeerUnreachable, Unauthenticated

GOLDEN = Path(__file__).parent / "cards"


def card(name: str) -> Card:
    return card_in((GOLDEN / f"{name}.json").read_bytes())


def ways(name: str, **wish: object) -> list[str]:
    """How the agent of this card would be spoken to, in order."""
    return [how.name for _, how in choices(card(name), **wish)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Whatever does not say its version speaks 0.3's methods, or 0.1's.
        ("0.1", ["a2a-0.3", "a2a-0.1"]),
        ("0.2", ["a2a-0.3", "a2a-0.1"]),
        ("0.2.6", ["a2a-0.3-grpc", "a2a-0.3-rest"]),
        ("0.3-section-5.7", ["a2a-0.3", "a2a-0.3-grpc", "a2a-0.3-rest"]),
        ("1.0-draft", ["a2a-1.0-grpc", "a2a-1.0"]),
        ("1.0", ["a2a-1.0-rest", "a2a-1.0", "a2a-0.3"]),
        ("merged", ["a2a-1.0", "a2a-0.3", "a2a-0.3-grpc"]),
    ],
)
def test_the_order_of_the_card_and_the_newest_version(name: str, expected: list[str]) -> None:
    assert ways(name) == expected


def test_every_golden_card_is_used() -> None:
    assert len(list(GOLDEN.glob("*.json"))) == 7


def test_wishes_change_the_order_and_leave_only_what_is_named() -> None:
    assert ways("0.3-section-5.7", prefer=("HTTP+JSON", "GRPC"))[0] == "a2a-0.3-rest"
    assert ways("1.0", prefer=("0.3",))[0] == "a2a-0.3"
    assert ways("1.0", dialect="JSONRPC") == ["a2a-1.0", "a2a-0.3"]
    assert ways("1.0", dialect="0.3") == ["a2a-0.3"]
    # Not on the card, but over a binding that is.
    assert ways("1.0", dialect="a2a-0.1") == ["a2a-0.1"]
    with pytest.raises(ConfigError, match="no dialect"):
        ways("1.0", dialect="klingon")


def test_what_cards_say_is_read_in_every_version() -> None:
    spec = card("0.3-section-5.7")
    assert spec.extended
    assert spec.security == ({"google": ("openid", "profile", "email")},)
    assert [skill.id for skill in spec.skills] == [
        "route-optimizer-traffic",
        "custom-map-generator",
    ]
    assert card("0.1").security
    assert [*card("1.0-draft").schemes] == ["oauth"]
    assert card("1.0").interfaces[0].tenant == "acme"
    assert card("0.2").extended


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"name": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_card_is_refused(body: bytes) -> None:
    with pytest.raises(PeerMisbehaved):
        card_in(body)


def test_where_cards_lie() -> None:
    assert list(places("https://a.example/x/card.json?v=1")) == [
        "https://a.example/x/card.json?v=1"
    ]
    assert list(places("https://a.example/agents/b/")) == [
        "https://a.example/agents/b/.well-known/agent-card.json",
        "https://a.example/agents/b/.well-known/agent.json",
        "https://a.example/agents/b/",
    ]


Answer = Callable[[str, str], bytes]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that answers each request by its first line and its head; and what it was asked."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        writer.write(answer(head.split()[1], head.lower()))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()


def said(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


CARD = (GOLDEN / "0.3-section-5.7.json").read_bytes()


def finder(url: str, cache: Cache, **auth: object) -> Finder:
    wallet = Wallet(None, (url,))
    return Finder(Http(ClientLimits(), host="127.0.0.1"), wallet, cache=cache)


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        (
            b'{"agents": [{"name": "a-1"}, {"name": "b"}]}',
            "of them: URL/agents/a-1/, URL/agents/b/",
        ),
        (b'{"agents": [{"name": "a", "url": "http://evil.example"}]}', "of them: URL/agents/a/"),
        (
            b'{"agents": [%b]}' % b",".join(b'{"name": "n%d"}' % n for n in range(50)),
            "URL/agents/n7/, and others listed at URL/agents",
        ),
        (b'{"agents": [{"name": "\\u001b[31m"}, {"name": "x y"}, {}]}', "There is no agent card"),
        (b'{"agents": []}', "There is no agent card"),
        (b'{"agents": 7}', "There is no agent card"),
        (b"[" * 100_000, "There is no agent card"),
        (b"\xff", "There is no agent card"),
    ],
    ids=["two", "an address", "many", "no names", "none", "a number", "deep", "bytes"],
)
async def test_where_several_agents_are_listed_the_error_names_their_addresses(
    listed: bytes, says: str
) -> None:
    def answer(path: str, head: str) -> bytes:
        return said("200 OK", listed) if path == "/agents" else said("404 Not Found", b"no")

    async with answering(answer) as (url, _):
        with pytest.raises(PeerUnreachable) as told:
            await finder(url, Cache()).find(url)
        assert says.replace("URL", url) in told.value.message
        assert len(told.value.message) < 1000
        assert "evil" not in told.value.message


async def test_the_older_path_is_tried_and_a_card_is_kept_by_its_etag() -> None:
    def answer(path: str, head: str) -> bytes:
        if path != "/.well-known/agent.json":
            return said("404 Not Found", b"no")
        if 'if-none-match: "v1"' in head:
            return said("304 Not Modified")
        return said("200 OK", CARD, 'etag: "v1"')

    cache = Cache()
    async with answering(answer) as (url, heads):
        for _ in range(2):
            found = await finder(url, cache).find(url)
            assert found.card.name == "GeoSpatial Route Planner Agent"
            assert found.url == f"{url}/.well-known/agent.json"
        older = [head for head in heads if head.startswith("GET /.well-known/agent.json ")]
        assert 'if-none-match: "v1"' in older[-1].lower()


@pytest.mark.parametrize("missed", [1, 2])
async def test_an_agent_that_appears_during_the_search_is_described_by_its_own_card(
    missed: int,
) -> None:
    """A gateway has a page about each of its agents, which could be taken for an old card."""
    asked: list[str] = []
    newest = (GOLDEN / "1.0.json").read_bytes()

    def answer(path: str, head: str) -> bytes:
        asked.append(path)
        if len(asked) <= missed:
            return said("404 Not Found", b"no")
        entry = b'{"name": "b", "description": "", "version": "1", "url": "http://127.0.0.1/b"}'
        return said("200 OK", newest if path.endswith("/agent-card.json") else entry)

    async with answering(answer) as (url, _):
        found = await finder(url, Cache()).find(url)
    assert found.url == f"{url}/.well-known/agent-card.json"
    assert found.card == card("1.0")
    assert len(asked) == missed + 2


async def test_a_direct_card_and_one_at_the_address_itself() -> None:
    def answer(path: str, head: str) -> bytes:
        return said("200 OK", CARD) if path in ("/my/card.json", "/odd/") else said("404 No")

    async with answering(answer) as (url, _):
        for address in (f"{url}/my/card.json", f"{url}/odd"):
            assert (await finder(url, Cache()).find(address)).card.extended


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (said("404 Not Found"), PeerUnreachable, "no agent card"),
        (said("200 OK", b"<html>"), PeerUnreachable, "not an agent card"),
        (said("301 Moved", b"", "location: https://elsewhere.example/"), Exception, "moved to"),
        (said("401 No"), Unauthenticated, "only for those"),
        (said("200 OK", b" " * 2_000_000), PeerUnreachable, "larger than"),
    ],
)
async def test_why_there_is_no_card(answer: bytes, error: type[Exception], words: str) -> None:
    async with answering(lambda path, head: answer) as (url, _):
        with pytest.raises(error, match=words):
            await finder(url, Cache()).find(url)


async def test_our_own_card_in_the_form_that_is_signed() -> None:
    async with open_server() as served, connect(served.url) as agent:
        assert {each.version for each in agent.card.interfaces} == {"1.0", "0.3"}
        assert isinstance(await agent.send("x"), Task)


async def test_a_card_without_finding_it() -> None:
    async with open_server() as served:
        body = msgspec.json.encode({"name": "Given", "url": served.url + "/"})
        async with connect(served.url, card=body) as agent:
            assert (agent.card.name, agent.dialect) == ("Given", "a2a-0.3")
            assert (await agent.send("hi")).text == "HI"


async def test_what_trust_says_holds() -> None:
    class Nobody:
        async def check(self, card: bytes, origin: str) -> object:
            raise Unauthenticated(f"{origin} is not known")

    async with open_server() as served:
        with pytest.raises(Unauthenticated, match=r"127\.0\.0\.1"):
            async with connect(served.url, trust=Nobody()):  # type: ignore[arg-type]
                pass
