"""The app inside another one: every path is relative to the mount point (ASGI's `root_path`)."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from msgspec.structs import replace

from dragoman import Agent
from dragoman.app import App, create_app
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.net.http.asgi import Receive, Scope, Send
from dragoman.net.http.mount_point import MountPoint
from dragoman.security.card_signing import new_key, save
from dragoman.settings import Server, Settings, Signing
from server.two_agents import desk

HEADERS = {"host": "desk.example", "content-type": "application/json", "a2a-version": "1.0"}


class Mount:
    """A tiny framework that has an app at `/x`. As ASGI says, a path includes the root path (as in
    Starlette since 0.33); older ones leave it out, and `raw_path` as it came."""

    def __init__(self, app: App, root: str = "/x", *, old: bool = False) -> None:
        self.app, self.root, self.old = app, root, old

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"].startswith(self.root)
        path = scope["path"]
        if self.old:
            path = path.removeprefix(self.root) or "/"
        await self.app({**scope, "path": path, "root_path": self.root}, receive, send)


async def ask(
    app: Any, method: str, path: str, body: object = None, headers: Mapping[str, str] = HEADERS
) -> tuple[int, dict[str, str], bytes]:
    """One request, as an ASGI server makes it."""
    content = json.dumps(body).encode() if body is not None else b""
    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [
            (name.encode(), value.encode())
            for name, value in {**headers, "content-length": str(len(content))}.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    told: list[dict[str, Any]] = []
    given = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in given:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    await app(scope, receive, send)
    start, *rest = told
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], found, b"".join(each["body"] for each in rest)


def settings(**server: Any) -> Settings:
    return Settings(server=Server(store="memory:", hosts=("*",), **server))


def call(method: str, params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def said(text: str) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}


ONE: dict[str, Agent] = {"": desk("only")}
TWO = {"alpha": desk("alpha"), "beta": desk("beta")}


@pytest.mark.parametrize("old", [False, True], ids=["as ASGI says", "as older ones do"])
@pytest.mark.parametrize(
    ("agents", "below", "greeting"),
    [(ONE, "", "only"), (TWO, "/agents/beta", "beta")],
    ids=["one agent", "several agents"],
)
async def test_every_dialect_is_below_the_mount_point(
    agents: Mapping[str, Agent], below: str, greeting: str, old: bool
) -> None:
    app = create_app(agents, settings(insecure=True))
    outer = Mount(app, old=old)
    base = f"/x{below}"
    await app.start()
    try:
        for path in (base, f"{base}/"):
            _, _, body = await ask(outer, "POST", path, call("SendMessage", said("hi")))
            task = json.loads(body)["result"]["task"]
            assert task["artifacts"][0]["parts"][0]["text"] == f"{greeting} hi"
        status, _, body = await ask(outer, "POST", f"{base}/message:send", said("hi"))
        assert status == 200
        status, _, body = await ask(outer, "GET", f"{base}/tasks/{task['id']}")
        assert json.loads(body)["id"] == task["id"]
        plain = {**HEADERS}
        del plain["a2a-version"]
        status, _, body = await ask(outer, "GET", f"{base}/v1/tasks/{task['id']}", None, plain)
        assert status == 200
        status, _, body = await ask(outer, "GET", f"{base}/tasks/a%2Fb")
        assert status == 404
        assert b"a/b" in body
        status, _, body = await ask(outer, "POST", f"{base}/a2a", {"content": "hi"})
        assert json.loads(body) == {"result": f"{greeting} hi"}
        for page in ("/manifest", "/.well-known/agent.json", "/a2a-go/.well-known/agent.json"):
            assert (await ask(outer, "GET", base + page))[0] == 200, page
        for page in ("/healthz", "/readyz", "/metrics"):
            assert (await ask(outer, "GET", f"/x{page}"))[0] == 200, page
        status, _, body = await ask(outer, "GET", f"{base}/nothing")
        assert (status, json.loads(body)["path"]) == (404, f"{base}/nothing")
    finally:
        await app.stop()


@pytest.mark.parametrize("old", [False, True], ids=["as ASGI says", "as older ones do"])
@pytest.mark.parametrize(
    ("public", "root", "expected"),
    [
        ("", "/x", "http://desk.example/x"),
        ("https://pub.example", "/x", "https://pub.example/x"),
        ("https://pub.example/x", "/x", "https://pub.example/x"),
        ("https://pub.example/a", "/x/y", "https://pub.example/a/x/y"),
        ("https://pub.example/a", "", "https://pub.example/a"),
        ("https://pub.example/agents", "", "https://pub.example/agents"),
    ],
)
async def test_the_card_names_addresses_below_the_mount_point(
    public: str, root: str, expected: str, old: bool
) -> None:
    for agents, below in ((ONE, ""), (TWO, "/agents/alpha")):
        app = create_app(agents, settings(public_url=public))
        outer = Mount(app, root, old=old)
        path = f"{root}{below}/.well-known/agent-card.json"
        _, _, body = await ask(outer, "GET", path, None, {"host": "desk.example"})
        card = json.loads(body)
        url = f"{expected}{below}"
        # What has no slash is a path of the outer app, which cannot lead a POST here.
        slash = "/" if root or below else ""
        assert card["url"] == f"{url}{slash}"
        assert {(each["protocolBinding"], each["url"]) for each in card["supportedInterfaces"]} == {
            ("JSONRPC", f"{url}{slash}"),
            ("HTTP+JSON", url),
        }
        addresses = card["capabilities"]["extensions"][-1]["params"]["addresses"]
        assert f"{url}/iat" in {each["url"] for each in addresses}
    _, _, body = await ask(outer, "GET", f"{root}/agents")
    assert json.loads(body)["agents"][0]["url"] == f"{expected}/agents/alpha/"


async def test_the_extended_card_names_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_KEY", "sesame-sesame-sesame")
    tokens = Tokens(callers={"ann": Known(secret=Secret(env="T_KEY"))})
    for public, base in (
        ("", "http://desk.example"),
        ("https://pub.example", "https://pub.example"),
    ):
        agents = {}
        for name in ("alpha", "beta"):
            agents[name] = agent = desk(name, auth={"key": tokens})

            @agent.skill("hidden", extended=True)
            async def hidden(turn: Any) -> str:
                return "hidden"

        app = create_app(agents, settings(public_url=public))
        headers = {**HEADERS, "authorization": "Bearer sesame-sesame-sesame"}
        path = "/x/agents/beta/extendedAgentCard"
        status, _, body = await ask(Mount(app), "GET", path, None, headers)
        card = json.loads(body)
        assert status == 200, card
        assert "hidden" in {each["id"] for each in card["skills"]}
        url = f"{base}/x/agents/beta"
        assert {each["url"] for each in card["supportedInterfaces"]} == {url, f"{url}/"}


def test_a_mount_point_is_told_from_a_path_that_begins_like_it() -> None:
    point = MountPoint("https://pub.example/x")
    scope = {"root_path": "/xy"}
    assert point.url_in(scope, {}) == "https://pub.example/x/xy/"


async def test_cards_of_several_agents_are_signed_with_the_keys_of_the_server(
    tmp_path: Path,
) -> None:
    save(tmp_path / "key.json", new_key("ES256", time.time()))
    public = settings(public_url="https://pub.example")
    signed = replace(public, signing=Signing(keys=(str(tmp_path / "key.json"),)))
    app = create_app(TWO, signed)
    for outer, root in ((app, ""), (Mount(app), "/x")):
        for name in TWO:
            path = f"{root}/agents/{name}/.well-known/agent-card.json"
            _, _, body = await ask(outer, "GET", path)
            (signature, *_) = json.loads(body)["signatures"]
            protected = signature["protected"]
            head = json.loads(urlsafe_b64decode(protected + "=" * (-len(protected) % 4)))
            assert head["jku"] == f"https://pub.example{root}/.well-known/jwks.json"
            status, _, keys = await ask(outer, "GET", f"{root}/.well-known/jwks.json")
            assert (status, json.loads(keys)["keys"][0]["kid"]) == (200, head["kid"])
