"""Ids between a gateway and agents that others wrote: the ones it gives stay short however many
gateways stand in a row, and the ones it gets have a limit."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway.behind import gateway, settings

GATEWAYS_IN_A_ROW = 9
CARD = {
    "name": "Stranger",
    "description": "Repeats.",
    "version": "1",
    "capabilities": {"streaming": False},
    "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}],
}
CARD_0_1 = {**CARD, "authentication": {"schemes": []}}
CARD_0_3 = {
    **CARD,
    "protocolVersion": "0.3.0",
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
}
Answer = Callable[[dict[str, Any]], dict[str, Any]]


@contextmanager
def stranger(card: dict[str, Any], answer: Answer) -> Iterator[str]:
    """An agent on the standard library alone; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None: ...

        def do_GET(self) -> None:
            if self.path not in ("/.well-known/agent.json", "/.well-known/agent-card.json"):
                self._say(404, {})
                return
            self._say(200, {**card, "url": url})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            result = answer(asked)
            self._say(200, {"jsonrpc": "2.0", "id": asked["id"], **result})

        def _say(self, status: int, said: dict[str, Any]) -> None:
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def call(url: str, method: str, params: dict[str, Any]) -> Any:
    """What a plain HTTP client gets."""

    def fetch() -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    return await asyncio.to_thread(fetch)


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "kind": "text", "text": text}]}


@pytest.mark.slow  # starts nine servers
async def test_ids_do_not_grow_with_each_gateway_in_a_row(tmp_path: Path) -> None:
    ids: list[str] = []

    def repeat(asked: dict[str, Any]) -> dict[str, Any]:
        params = asked["params"]
        if asked["method"] not in ("tasks/send", "tasks/get"):
            return {"error": {"code": -32601, "message": "Method not found"}}
        if asked["method"] == "tasks/send":
            ids.append(params["id"])
        artifact = {"parts": [{"type": "text", "text": "heard"}], "index": 0}
        status = {"state": "completed"}
        task = {"id": params["id"], "sessionId": "s", "status": status, "artifacts": [artifact]}
        return {"result": task}

    lengths = []
    with stranger(CARD_0_1, repeat) as url:
        async with asyncio.timeout(600), AsyncExitStack() as stack:
            for number in range(GATEWAYS_IN_A_ROW):
                folder = tmp_path / str(number)
                folder.mkdir()
                sections = {"next": {"url": url, "dialect": "a2a-0.1"}}
                door = await stack.enter_async_context(gateway(sections, settings(folder)))
                url = door.at("next")
                params = {"id": f"mine-{number}", "message": message("hello")}
                found = (await call(url, "tasks/send", params))["result"]
                assert found["id"] == f"mine-{number}"
                assert found["status"]["state"] == "completed", found
                assert found["artifacts"][0]["parts"][0]["text"] == "heard"
                lengths.append(len(ids[-1]))
    assert len(set(ids)) == GATEWAYS_IN_A_ROW
    assert max(lengths) <= 100


@pytest.mark.parametrize("member", ["id", "contextId"])
async def test_an_id_of_an_agent_has_a_limit(tmp_path: Path, member: str) -> None:
    """It is stored with our task, and repeated with each call about it."""
    length = 1024

    def long(asked: dict[str, Any]) -> dict[str, Any]:
        ids = {"id": "t", "contextId": "c", member: "x" * length}
        return {"result": {"kind": "task", **ids, "status": {"state": "completed"}}}

    with stranger(CARD_0_3, long) as url:
        async with asyncio.timeout(240):
            sections = {"far": {"url": url, "dialect": "a2a-0.3"}}
            async with gateway(sections, settings(tmp_path)) as door:
                said = {**message("hello"), "kind": "message", "messageId": "m"}
                answer = await call(door.at("far"), "message/send", {"message": said})
                assert answer["result"]["status"]["state"] == "completed"
                for length in (1025, 2_000_000):  # noqa: B007  the agent reads it
                    answer = await call(door.at("far"), "message/send", {"message": said})
                    assert "more than 1024 characters" in answer["error"]["message"]
                    assert len(json.dumps(answer)) < 5_000
