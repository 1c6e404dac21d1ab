"""Every 401 says how to come in (RFC 9110 §15.5.2), at every address and in every dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cards.served import app_for, desk
from dragoman.client.receiver import Proof, Receiver
from dragoman.core.auth_schemes import ApiKeys, Certificates, Held, Known, Scheme, Secret, Tokens
from dragoman.core.errors import ConfigError
from dragoman.net.http.router import SOCKET
from dragoman.security.access_control import check_certificates
from dragoman.server.app import App
from dragoman.server.serve import run
from dragoman.settings import Iat, Server, Settings, Tls
from security.certs import Authority

CALLS: dict[str, bytes] = {
    "/": b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}',
    "/a2a-go": b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}',
    "/iat": b'{"kind":"request","msg_id":"1","action":"execute_task","payload":{}}',
    "/a2a": b'{"content":"hi"}',
    "/a2a/stream": b'{"content":"hi"}',
}


async def ask(app: App, method: str, path: str, *, scheme: str = "http") -> tuple[int, list[str]]:
    """The status of an answer, and what it says of how to come in."""
    body = CALLS.get(path, b"{}") if method == "POST" else b""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ],
        "scheme": scheme,
        "client": ("192.0.2.9", 4711),
        "server": ("127.0.0.1", 8420),
    }
    starts: list[Any] = []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            starts.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    await (app.route if isinstance(app, App) else app)(scope, receive, send)
    told = [v.decode() for name, v in starts[0]["headers"] if name == b"www-authenticate"]
    return starts[0]["status"], told


def schemes(kind: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Scheme]:
    monkeypatch.setenv("WORD", "a-word-of-the-boss-12345")
    boss = {"boss": Known(secret=Secret(env="WORD"))}
    known: dict[str, dict[str, Scheme]] = {
        "none": {},
        "tokens": {"t": Tokens(callers=boss)},
        "keys": {"k": ApiKeys(callers=boss)},
        "certificates": {"c": Certificates(callers={"robot": Held(names=("robot",))})},
    }
    return known[kind]


@pytest.mark.parametrize("kind", ["none", "tokens", "keys", "certificates"])
async def test_every_refusal_says_how_to_come_in(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    monkeypatch.setenv("IAT", "shared-secret-of-iat-12345")
    auth = schemes(kind, monkeypatch)
    closed = {"card_access": "authenticated", "metrics_access": "authenticated"} if auth else {}
    app = app_for(
        desk(auth=auth),
        server=closed,
        iat=Iat(secret=Secret(env="IAT")),
        tls=Tls(cert=cert, key=key, client_ca=authority.ca) if kind == "certificates" else Tls(),
    )
    refused = {}
    for path, methods in app.routes.items():
        for method in methods:
            if method != SOCKET:
                status, told = await ask(app, method, path, scheme="https")
                if status == 401:
                    refused[f"{method} {path}"] = told
    known = {"POST /iat", "POST /a2a", "POST /a2a/stream", "GET /iat/ws"}
    if auth:
        known |= {"POST /", "POST /a2a-go", "GET /metrics", "GET /manifest", "POST /tasks/send"}
        known |= {"GET /.well-known/agent-card.json", "GET /extendedAgentCard", "GET /v1/card"}
    assert known <= set(refused)
    silent = [where for where, told in refused.items() if not told]
    assert silent == []


async def test_the_receiver_of_webhooks_says_it_too() -> None:
    async def hear(notice: Any) -> None:
        raise AssertionError("nobody may come in")

    app = Receiver(hear, Proof(tokens=("the-token-of-the-hook",)))
    status, told = await ask(app, "POST", "/")  # type: ignore[arg-type]  # ASGI all the same
    assert (status, bool(told)) == (401, True)


def test_certificates_that_http_cannot_tell_apart_stop_the_start(tmp_path: Path) -> None:
    """The card would promise what answers 401 to every certificate that is written down."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    named = {"robot": Held(names=("spiffe://acme/robot",))}

    def settings(scheme: Certificates, **server: Any) -> Settings:
        return Settings(
            server=Server(store="memory:", **server),
            tls=Tls(cert=cert, key=key, client_ca=authority.ca),
            auth={"certs": scheme},
        )

    alone = Certificates(callers=named)
    with pytest.raises(ConfigError, match=r"\[auth\.certs\].*shared.*GRPC"):
        run(desk(), settings(alone))
    with pytest.raises(ConfigError, match=r"\[auth\.certs\]"):
        check_certificates(settings(alone, interfaces=("GRPC", "HTTP+JSON")), desk())
    check_certificates(settings(Certificates(callers=named, shared="holder")), desk())
    check_certificates(settings(alone, interfaces=("GRPC",)), desk())
