"""Web pages that a user of this machine looks at: what they can make a browser send us.

A page of evil.example whose name is bound anew to our address (DNS rebinding) says so in `Host`;
a page that posts across sites is named in `Origin` and `Sec-Fetch-Site`.
"""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from dragoman.core.errors import ConfigError
from dragoman.security.allowed_hosts import AllowedHosts
from dragoman.settings import Server, load
from net.served_peer import RunningServer, call, open_server, said

V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}
OPEN = {"/healthz", "/readyz"}
PATHS = {"REST 1.0": "/tasks/1:cancel", "REST 0.3": "/v1/tasks/1:cancel"}
"""Routes that stand for many paths, and one path of each."""


async def answers(home: RunningServer, **headers: str) -> dict[str, tuple[int, str]]:
    """How every route answers a request with these headers."""
    found = {}
    async with httpx2.AsyncClient(base_url=home.url) as client:
        for route, methods in home.app.routes.items():
            for method in methods:
                if method == "websocket":
                    continue
                path = route if route.startswith("/") else PATHS.get(route, "/tasks/1")
                verb = "POST" if method == "*" else method
                answer = await client.request(verb, path, headers=headers)
                found[f"{verb} {path}"] = answer.status_code, answer.text
    assert len(found) > 12
    return found


async def test_a_foreign_host_name_is_refused_at_every_address_but_those_of_probes() -> None:
    async with open_server() as home:
        for asked, (status, _) in (await answers(home, Host="evil.example:8420")).items():
            assert (status == 421) != (asked.partition(" ")[2] in OPEN), asked
        assert not home.peer.asked


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
    ids=str,
)
async def test_a_request_of_a_foreign_page_is_refused_at_every_address(
    headers: dict[str, str],
) -> None:
    async with open_server() as home:
        for asked, (status, _) in (await answers(home, **headers)).items():
            assert (status == 403) != (asked.partition(" ")[2] in OPEN), asked
        assert not home.peer.asked


async def test_what_is_refused_says_which_setting_allows_it() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        answer = await client.post("/", headers={"Host": "evil.example"}, content=b"x" * 1000)
        assert (answer.status_code, answer.json()["error"]) == (421, "host_not_allowed")
        assert "[server] hosts" in answer.json()["message"]
        answer = await client.post("/", headers={"Origin": "http://evil.example"})
        assert (answer.status_code, answer.json()["error"]) == (403, "cross_site")


@pytest.mark.parametrize("host", ["localhost", "agent.localhost", "127.0.0.1", "[::1]", "10.1.2.3"])
async def test_loopback_names_and_addresses_are_served(host: str) -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        headers = {**V1, "Host": f"{host}:{home.port}"}
        answer = await client.post("/", content=call("SendMessage", said("hi")), headers=headers)
        assert answer.status_code == 200
        # A page of ours may call us.
        headers["Origin"], headers["Sec-Fetch-Site"] = f"http://{headers['Host']}", "same-origin"
        answer = await client.post("/", content=call("SendMessage", said("hi")), headers=headers)
        assert answer.status_code == 200


async def test_over_http_2_the_authority_counts() -> None:
    async with (
        open_server() as home,
        httpx2.AsyncClient(base_url=home.url, http2=True, http1=False) as client,
    ):
        body = call("SendMessage", said("hi"))
        good = await client.post("/", content=body, headers=V1)
        bad = await client.post("/", content=body, headers={**V1, "Host": "evil.example"})
        assert (good.status_code, bad.status_code) == (200, 421)


async def test_a_plain_post_without_a_body_still_works() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        answer = await client.post("/tasks/none:cancel", headers={"A2A-Version": "1.0"})
        assert answer.status_code not in (403, 421)
        assert home.peer.asked


async def test_a_link_on_a_foreign_page_may_be_followed() -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        path = "/.well-known/agent-card.json"
        assert (await client.get(path, headers=followed)).status_code == 200
        # A form that posts is a navigation too, and a link must not open a task.
        assert (await client.post("/", headers=followed)).status_code == 403
        for told in (
            followed,
            {"Sec-Fetch-Site": "same-site"},
            {"Referer": "http://evil.example/"},
        ):
            acting = await client.get("/a2a/stream?content=hi", headers=told)
            assert acting.status_code == 403, told
        assert not home.peer.asked


@pytest.mark.parametrize(
    ("host", "origin"),
    [("evil.example", None), ("evil.example", "http://evil.example"), ("localhost", "http://evil")],
)
async def test_a_web_socket_of_a_foreign_page_is_refused(host: str, origin: str | None) -> None:
    async with open_server() as home:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(
                f"ws://{host}/iat/ws",
                host="127.0.0.1",
                port=home.port,
                origin=None if origin is None else Origin(origin),
            ):
                pass
        assert refused.value.response.status_code == 403


HOSTS: list[tuple[dict[str, Any], str, bool]] = [
    ({}, "LOCALHOST:1", True),
    ({}, "localhost.", True),
    ({}, "", True),  # no browser
    ({}, "evil.example", False),
    ({}, "localhost.evil.example", False),
    ({}, "127.0.0.1.evil.example", False),
    ({}, "evil.example:80@localhost", False),
    ({}, "build-box", False),
    ({"host": "agent.lan"}, "agent.lan:8420", True),
    ({"host": "agent.lan"}, "other.lan", False),
    ({"public_url": "https://desk.example.com/x"}, "desk.example.com", True),
    ({"public_url": "https://desk.example.com/x"}, "example.com", False),
    ({"hosts": ("desk.example.com",)}, "desk.example.com", True),
    ({"hosts": ("desk.example.com",)}, "localhost", True),
    ({"hosts": (".example.com",)}, "a.b.example.com", True),
    ({"hosts": (".example.com",)}, "example.com", False),
    ({"hosts": ("*",)}, "evil.example", True),
    # Where every address is bound, names without a dot are those of the own network: no page of
    # the web has one.
    ({"host": "0.0.0.0"}, "agent:8420", True),
    ({"host": "0.0.0.0"}, "evil.example", False),
    ({"host": "::"}, "agent", True),
]


@pytest.mark.parametrize(("server", "host", "allowed"), HOSTS, ids=str)
def test_which_host_names_are_ours(server: dict[str, Any], host: str, allowed: bool) -> None:
    hosts = AllowedHosts(Server(**server))
    for _ in range(2):  # what was found once is remembered
        assert hosts.allows(host.encode()) is allowed


async def test_every_one_of_several_host_headers_must_be_ours() -> None:
    hosts = AllowedHosts(Server())
    scope = {"type": "http", "method": "GET", "path": "/"}
    ours, foreign = (b"host", b"localhost"), (b"host", b"evil.example")
    assert hosts.refusal({**scope, "headers": [ours, ours]}) is None
    for headers in ([ours, foreign], [foreign, ours]):
        assert hosts.refusal({**scope, "headers": headers}) is not None


def test_a_host_setting_that_is_no_host_name_is_refused() -> None:
    for wrong in ("http://a.example", "a.example:80", "a.example/", ""):
        with pytest.raises(ConfigError, match=r"server\.hosts"):
            load({"hosts": (wrong,)})


def test_the_public_page_may_call_us_under_another_host() -> None:
    hosts = AllowedHosts(replace(Server(), public_url="https://desk.example.com"))
    headers = [(b"host", b"10.0.0.7:8420"), (b"origin", b"https://desk.example.com")]
    assert (
        hosts.refusal({"type": "http", "method": "POST", "path": "/", "headers": headers}) is None
    )
