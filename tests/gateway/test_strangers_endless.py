"""Agents that others wrote and that stream without end: all relayed tasks of a caller share one
budget, and other callers go on."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.settings import Limits
from gateway.behind import gateway, settings
from gateway.test_strangers_ids import CARD_0_3
from waiting import until

BUDGET = 1 << 20
PIECE = "x" * 4096
LIMIT = 120
"""Seconds after which a test hangs."""


class Endless:
    """An agent on the standard library alone. It streams until its task is canceled; a task that
    asks for `calm` waits after its first words until it is released."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.url = ""
        self.opened: list[str] = []
        self.canceled: set[str] = set()
        self.release = threading.Event()
        self.over = threading.Event()

    def event(self, task_id: str, number: int) -> dict[str, Any]:
        about: dict[str, Any] = {"taskId": task_id, "contextId": "c"}
        if self.kind == "artifact":
            artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": PIECE}]}
            return {**about, "kind": "artifact-update", "artifact": artifact, "append": number > 0}
        if self.kind == "replaced":
            artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": f"{number}{PIECE}"}]}
            return {**about, "kind": "artifact-update", "artifact": artifact, "append": False}
        if self.kind == "file":
            content = b64encode(f"{task_id} {number} {PIECE}".encode()).decode()
            file = {"kind": "file", "file": {"name": f"{number}.txt", "bytes": content}}
            artifact = {"artifactId": f"a{number}", "parts": [file]}
            return {**about, "kind": "artifact-update", "artifact": artifact}
        parts = [{"kind": "text", "text": PIECE}]
        said = {"kind": "message", "messageId": f"m{number}", "role": "agent", "parts": parts}
        status = {"state": "working", "message": said}
        return {**about, "kind": "status-update", "status": status, "final": False}

    def stream(self, text: str) -> Iterator[dict[str, Any]]:
        task_id = f"{self.kind}-{len(self.opened)}"
        self.opened.append(task_id)
        status: dict[str, Any] = {"state": "working"}
        yield {"kind": "task", "id": task_id, "contextId": "c", "status": status}
        number = 0
        while "calm" not in text and task_id not in self.canceled and not self.over.is_set():
            yield self.event(task_id, number)
            number += 1
        if "calm" in text:
            self.release.wait(LIMIT)
        status = {"state": "completed" if "calm" in text else "canceled"}
        about = {"kind": "status-update", "taskId": task_id, "contextId": "c"}
        yield {**about, "status": status, "final": True}


@contextmanager
def listening(agent: Endless) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

        def do_GET(self) -> None:
            card = {**CARD_0_3, "capabilities": {"streaming": True}, "url": agent.url}
            found = self.path.startswith("/.well-known/agent-card")
            self._head(200 if found else 404, "application/json")
            self.wfile.write(json.dumps(card).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            method, params = asked["method"], asked["params"]
            if method == "tasks/cancel":
                agent.canceled.add(params["id"])
                status = {"state": "canceled"}
                task = {"kind": "task", "id": params["id"], "contextId": "c", "status": status}
                self._head(200, "application/json")
                self.wfile.write(self._answer(asked, {"result": task}))
            elif method == "message/stream":
                self._head(200, "text/event-stream")
                try:
                    for each in agent.stream(params["message"]["parts"][0]["text"]):
                        self.wfile.write(
                            b"data: " + self._answer(asked, {"result": each}) + b"\n\n"
                        )
                except OSError:
                    return  # the gateway has closed the stream
            else:
                error = {"code": -32601, "message": "Method not found"}
                self._head(200, "application/json")
                self.wfile.write(self._answer(asked, {"error": error}))

        def _answer(self, asked: dict[str, Any], said: dict[str, Any]) -> bytes:
            return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}).encode()

        def _head(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    agent.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield agent.url
    finally:
        agent.over.set()
        agent.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


async def call(url: str, who: str, method: str, params: dict[str, Any]) -> Any:
    def fetch() -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"content-type": "application/json", "authorization": f"Bearer {token(who)}"}
        request = urllib.request.Request(f"{url}/", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            return json.load(refused)

    return await asyncio.to_thread(fetch)


def token(who: str) -> str:
    return f"a-token-of-{who}-0123456789"


def sizes(folder: Path) -> list[int]:
    return [each.stat().st_size for each in folder.glob("*/*")]


async def start(url: str, who: str, text: str) -> Any:
    said = {"kind": "message", "messageId": f"m-{who}", "role": "user"}
    said |= {"parts": [{"kind": "text", "text": text}]}  # type: ignore[dict-item]
    configuration = {"blocking": False}
    return await call(url, who, "message/send", {"message": said, "configuration": configuration})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["artifact", "replaced", "message", "file"])
async def test_the_tasks_of_a_caller_share_one_budget_and_others_go_on(
    tmp_path: Path, kind: str
) -> None:
    callers = {}
    for name in ("alice", "bob"):
        (tmp_path / name).write_text(token(name))
        callers[name] = Known(secret=Secret(file=str(tmp_path / name)))
    own = settings(tmp_path, auth={"token": Tokens(callers=callers)})
    limits = replace(Limits(), max_relayed_size=BUDGET, max_task_size=8 * BUDGET)
    own = replace(own, limits=limits, files=replace(own.files, folder=str(tmp_path / "files")))
    one, two = Endless(kind), Endless(kind)
    async with asyncio.timeout(LIMIT):
        with listening(one) as first, listening(two) as second:
            sections = {
                name: {"url": url, "dialect": "a2a-0.3", "result_files": "reference"}
                for name, url in (("one", first), ("two", second))
            }
            async with gateway(sections, own) as front:
                calm = (await start(front.at("one"), "bob", "calm"))["result"]["id"]
                await until(lambda: len(one.opened) == 1)
                mine = []
                for number in range(6):
                    door = front.at("one" if number % 2 else "two")
                    answer = await start(door, "alice", "on and on")
                    if "error" in answer:  # nothing was left at that moment
                        assert "max_relayed_size" in answer["error"]["message"]
                        continue
                    mine.append((door, answer["result"]["id"]))
                written = []
                for door, task_id in mine:
                    state = ""
                    while state not in ("failed", "canceled", "completed"):
                        found = await call(door, "alice", "tasks/get", {"id": task_id})
                        state = found["result"]["status"]["state"]
                    assert state == "failed"
                    said = found["result"]["status"]["message"]
                    assert "max_relayed_size" in said["parts"][0]["text"]
                    assert said["metadata"]["reason"] == "too_many"
                    written.append(len(json.dumps(found["result"])))
                assert mine
                assert max(written) < 2 * BUDGET
                kept = sizes(tmp_path / "files")
                assert bool(kept) == (kind == "file")
                assert sum(kept) < 6 * BUDGET  # what has ended is kept, and counts no more
                expected = {*one.opened[1:], *two.opened}
                await until(lambda: expected <= one.canceled | two.canceled)
                one.release.set()
                state = ""
                while state != "completed":
                    found = await call(front.at("one"), "bob", "tasks/get", {"id": calm})
                    state = found["result"]["status"]["state"]
                    assert state in ("submitted", "working", "completed")
                again = await start(front.at("one"), "alice", "calm")
                assert "result" in again  # what has ended counts no more
