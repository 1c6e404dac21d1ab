"""A whole server that asks every client for a certificate: callers and agents on links hold one."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from security.certs import Authority
from waiting import until
from xiaoyi.links import AGENT
from xiaoyi.strangers import repeat, stranger
from xiaoyi.test_kill import Home

pytestmark = pytest.mark.slow  # starts a process


def holder(authority: Authority, name: str = "") -> ssl.SSLContext:
    """A client with a certificate of this name, or with none."""
    context = ssl.create_default_context(cafile=authority.ca)
    if name:
        context.load_cert_chain(*authority.issue(name))
    return context


async def fetched(url: str, context: ssl.SSLContext, body: Any = None) -> Any:
    """What a plain HTTP client gets; None if the handshake fails."""

    def fetch() -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "a2a-version": "1.0"}
        request = urllib.request.Request(url, data, headers)
        with urllib.request.urlopen(request, context=context) as answer:
            return json.load(answer)

    try:
        return await asyncio.to_thread(fetch)
    except (OSError, urllib.error.URLError):
        return None


async def test_a_server_with_mtls_starts_and_serves_holders_of_certificates_only(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    home = Home(tmp_path)
    with (tmp_path / "dragoman.toml").open("a") as settings:
        settings.write(
            f'[tls]\ncert = "{cert}"\nkey = "{key}"\nclient_ca = "{authority.ca}"\n'
            '[auth.certs]\ntype = "mtls"\nshared = "holder"\n'
        )
    base = f"https://127.0.0.1:{home.port}"
    robot, nobody = holder(authority, "robot"), holder(authority)
    (tmp_path / "go").touch()
    async with asyncio.timeout(240), home._running("gateway"):
        await until(lambda: fetched(f"{base}/.well-known/agent-card.json", robot))
        assert await fetched(f"{base}/.well-known/agent-card.json", nobody) is None
        card = await fetched(f"{base}/.well-known/agent-card.json", robot)
        assert card["securitySchemes"]["certs"]["mtlsSecurityScheme"] is not None
        link = f"wss://127.0.0.1:{home.port}/openclaw/v1/ws/link"
        keys = home.keys.access_key, home.keys.secret_key, AGENT
        async with stranger(link, *keys, repeat, tls=nobody) as turned_away:
            async with stranger(link, *keys, repeat, tls=robot) as agent:
                await until(lambda: agent.sockets)
                listed = f"{base}/agents/{AGENT}/.well-known/agent-card.json"
                await until(lambda: fetched(listed, robot))
                part = {"text": "hello"}
                message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [part]}
                call = {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "SendMessage",
                    "params": {"message": message},
                }
                answer = await fetched(f"{base}/agents/{AGENT}/", robot, call)
                task = answer["result"]["task"]
                assert task["artifacts"][0]["parts"][0]["text"] == "you said: hello"
            assert not turned_away.sockets
        await until(lambda: (tmp_path / "log").read_text().count("started"))
    assert "Traceback" not in (tmp_path / "log").read_text()
