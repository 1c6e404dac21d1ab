"""Cards of agents that others wrote, behind a gateway, and a question without words. The agents and
the callers know nothing of ours."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cards.forge import public
from dragoman.security.card_signing import new_key
from gateway.behind import SECRET, gateway, settings
from gateway.desks import sdk_agent
from interop.client.servers import SERVERS, running
from interop.peers import FASTA2A
from ports import own_port
from waiting import LIMIT

SDK, SDK_0_3 = SERVERS[:2]
AT_ONCE_SECONDS = 8.0
"""Far less than the 20 seconds that a call waits for an agent that may come back."""
NEW = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
OLD = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
OLDEST = {"id": "t", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}


def card(url: str) -> dict[str, Any]:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {
        "name": "Stranger",
        "description": "Elsewhere",
        "version": "1",
        "supportedInterfaces": [interface],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


@contextmanager
def stranger(shown: dict[str, Any], answers: dict[str, Any] | None = None) -> Iterator[str]:
    """An agent with this card, at its own address unless it names one, and with this answer to
    every call."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(shown)

        def do_POST(self) -> None:
            call = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._send({"jsonrpc": "2.0", "id": call["id"], "result": answers})

        def _send(self, said: object) -> None:
            body = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for interface in shown["supportedInterfaces"]:
        interface["url"] = interface["url"] or url
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()


def rpc(method: str, params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "1.0": ("/", rpc("SendMessage", {"message": NEW})),
    "1.0 REST": ("/message:send", {"message": NEW}),
    "0.3": ("/", rpc("message/send", {"message": OLD})),
    "0.3 REST": ("/v1/message:send", {"message": OLD}),
    "0.1": ("/", rpc("tasks/send", OLDEST)),
    "a2a-go": ("/a2a-go", rpc("tasks/send", OLDEST)),
    "IAT, plain": ("/a2a", {"content": "hi"}),
}


async def test_an_untrusted_card_is_one_clear_error_in_every_dialect(tmp_path: Path) -> None:
    with stranger(card("https://elsewhere.example/a2a")) as url:
        async with (
            asyncio.timeout(LIMIT),
            gateway({"stranger": {"url": url}}, settings(tmp_path), wait=False) as door,
            httpx2.AsyncClient(base_url=door.url, timeout=LIMIT) as client,
        ):
            for attempt in range(7):  # after five failures a circuit breaker would open
                for name, (path, body) in CALLS.items():
                    if "id" in body.get("params", {}):  # the caller names the task
                        body["params"] = {**body["params"], "id": f"{name} {attempt}"}
                    began = time.monotonic()
                    answered = await client.post(path, json=body, headers={"x-iat-token": SECRET})
                    took = time.monotonic() - began
                    where = f"{name}, attempt {attempt}: {answered.status_code} {answered.text}"
                    assert "The card of stranger is not trusted" in answered.text, where
                    assert answered.status_code != 503, where
                    assert "-32603" not in answered.text, where
                    assert "elsewhere.example" not in answered.text, where
                    assert took < AT_ONCE_SECONDS, where


READ_CARD = """
import sys, urllib.request
from fasta2a.schema import agent_card_ta
with urllib.request.urlopen(sys.argv[1], timeout=60) as reply:
    card = agent_card_ta.validate_json(reply.read())
print([(each["input_modes"], each["output_modes"]) for each in card["skills"]])
"""


@pytest.mark.slow
async def test_skills_without_modes_have_those_of_the_card(tmp_path: Path) -> None:
    """fasta2a refuses a card with a skill that names none."""
    shown = card("")
    modes = {"inputModes": ["image/png"]}
    skills = [{"id": f"s{n}", "name": "s", "description": "s", "tags": ["s"]} for n in (1, 2)]
    shown["skills"] = [skills[0], {**skills[1], **modes}]
    script = tmp_path / "read_card.py"
    script.write_text(READ_CARD)
    with stranger(shown) as url:
        async with (
            asyncio.timeout(LIMIT),
            gateway({"stranger": {"url": url}}, settings(tmp_path)) as door,
        ):
            where = f"{door.url}/.well-known/agent-card.json"
            done = await asyncio.to_thread(FASTA2A.run, script, where, timeout=300)
            assert done.returncode == 0, done.stderr
            plain = ["text/plain"]
            assert done.stdout.strip() == str([(plain, plain), (["image/png"], plain)])


async def test_a_question_without_words_stays_one(tmp_path: Path) -> None:
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "2026-01-01T00:00:00Z"}
    asked = {"task": {"id": "t", "contextId": "c", "status": status}}
    with stranger(card(""), asked) as url:
        async with (
            asyncio.timeout(LIMIT),
            gateway({"stranger": {"url": url}}, settings(tmp_path)) as door,
            httpx2.AsyncClient(base_url=door.url, timeout=LIMIT) as client,
        ):
            path, body = CALLS["1.0"]
            found = (await client.post(path, json=body)).json()["result"]["task"]["status"]
            assert found["state"] == "TASK_STATE_INPUT_REQUIRED"
            parts = found.get("message", {}).get("parts", [])
            assert [part["text"] for part in parts if part.get("text")] == []


async def shown_card(client: httpx2.AsyncClient, name: str = "") -> dict[str, Any]:
    where = f"/agents/{name}" if name else ""
    found: dict[str, Any] = (await client.get(f"{where}/.well-known/agent-card.json")).json()
    return found


@pytest.mark.slow
async def test_the_extended_card_behind_grpc_is_read(tmp_path: Path) -> None:
    """The agent serves nothing but gRPC, and its card names an address that is not called."""
    port = own_port()
    script = Path(__file__).parent / "peers" / "sdk_extended_card.py"
    section = {"url": f"a2a+grpc://127.0.0.1:{port}", "refresh": 0.2}
    with sdk_agent(script, tmp_path, [port]):
        async with (
            asyncio.timeout(LIMIT),
            gateway({"stranger": section}, settings(tmp_path)) as door,
            httpx2.AsyncClient(base_url=door.url, timeout=LIMIT) as client,
        ):
            card = await shown_card(client)
            assert (card["name"], card["version"]) == ("Behind gRPC", "7.1")
            assert [skill["id"] for skill in card["skills"]] == ["echo"]
            assert "agent.example.com" not in json.dumps(card)
            path, body = CALLS["1.0"]
            answered = (await client.post(path, json=body)).json()["result"]
            assert [part["text"] for part in answered["message"]["parts"]] == ["HI"]


@pytest.mark.slow
async def test_a_card_over_grpc_must_be_signed_where_cards_must_be(tmp_path: Path) -> None:
    port = own_port()
    script = Path(__file__).parent / "peers" / "sdk_extended_card.py"
    keys = tmp_path / "keys.jwks"
    keys.write_text(json.dumps({"keys": [public(new_key("ES256", time.time()))]}))
    signed = {"card_signature": "require", "card_keys": [str(keys)]}
    section = {"url": f"a2a+grpc://127.0.0.1:{port}", **signed}
    with sdk_agent(script, tmp_path, [port]):
        async with (
            asyncio.timeout(LIMIT),
            gateway({"stranger": section}, settings(tmp_path), wait=False) as door,
            httpx2.AsyncClient(base_url=door.url, timeout=LIMIT) as client,
        ):
            path, body = CALLS["1.0"]
            refused = (await client.post(path, json=body)).json()["error"]
            assert "The card of stranger is not trusted" in refused["message"]


@pytest.mark.slow
async def test_the_card_of_0_3_behind_grpc_is_read(tmp_path: Path) -> None:
    with running(SDK_0_3, tmp_path) as found:
        section = {"url": f"a2a+grpc://127.0.0.1:{found.ports['GRPC']}"}
        async with (
            asyncio.timeout(LIMIT),
            gateway({"stranger": section}, settings(tmp_path)) as door,
            httpx2.AsyncClient(base_url=door.url, timeout=LIMIT) as client,
        ):
            card = await shown_card(client)
            assert card["name"] == "Desk on a2a-sdk 0.3.26"
            assert [skill["id"] for skill in card["skills"]] == ["desk"]


@pytest.mark.slow
async def test_the_card_of_an_agent_behind_grpc_may_be_elsewhere(tmp_path: Path) -> None:
    """This agent has a card, but shows none over gRPC."""
    with running(SDK, tmp_path) as found:
        address = f"a2a+grpc://127.0.0.1:{found.ports['GRPC']}"
        sections = {
            "told": {"url": address, "card": f"{found.url}/.well-known/agent-card.json"},
            "untold": {"url": address},
        }
        async with (
            asyncio.timeout(LIMIT),
            gateway(sections, settings(tmp_path)) as door,
            httpx2.AsyncClient(base_url=door.url, timeout=LIMIT) as client,
        ):
            card = await shown_card(client, "told")
            assert card["name"] == "Desk on a2a-sdk 1.3.0"
            assert "greet" in [skill["id"] for skill in card["skills"]]
            assert door.upstream("told").dialect == "a2a-1.0-grpc"
            assert (await shown_card(client, "untold"))["name"] == "untold"
            _, body = CALLS["1.0"]
            for name in sections:
                answered = await client.post(f"/agents/{name}/", json=body)
                assert answered.json()["result"]["task"], answered.text


@pytest.mark.slow
async def test_grpc_at_another_port_needs_its_origin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(SDK, tmp_path) as found:
        grpc_at = f"127.0.0.1:{found.ports['GRPC']}"
        known = {"url": found.url, "dialect": "a2a-1.0-grpc"}
        sections = {"without": known, "listed": {**known, "origins": [grpc_at]}}
        async with (
            asyncio.timeout(LIMIT),
            gateway(sections, settings(tmp_path), wait=False) as door,
            httpx2.AsyncClient(base_url=door.url, timeout=LIMIT) as client,
        ):
            _, body = CALLS["1.0"]
            answered = await client.post("/agents/listed/", json=body)
            assert answered.json()["result"], answered.text
            refused = await client.post("/agents/without/", json=body)
            assert "not trusted" in refused.json()["error"]["message"]
            assert grpc_at in caplog.text
            assert "origins = [...]" in caplog.text
