"""Links of callers and of agents that others wrote: what a gateway downloads for whom, and with
whose credentials."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.behind import gateway, settings
from gateway.test_strangers_ids import CARD_0_3, call

TOKEN = "the-token-of-the-gateway"
INSIDE = b"only for those with the token"


class Stranger:
    """An agent on the standard library alone, which repeats the files that it has got. It has files
    of its own, for those who show the token."""

    def __init__(self) -> None:
        self.url = ""
        self.downloads: list[tuple[str, str]] = []
        """The path and the credentials of each download."""
        self.links: list[str] = []
        """All links of callers, of every message."""
        self.own: list[str] = []
        """Links of its own, which it gives instead."""

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] != "message/send":
            return {"error": {"code": -32601, "message": "Method not found"}}
        said = asked["params"]["message"]
        words = " ".join(part["text"] for part in said["parts"] if part["kind"] == "text")
        self.links += [part["file"]["uri"] for part in said["parts"] if part["kind"] == "file"]
        self.links += [word for word in words.split() if word.startswith("http")]
        artifacts = [
            {"artifactId": f"a{number}", "parts": [{"kind": "file", "file": {"uri": uri}}]}
            for number, uri in enumerate(self.own or self.links)
        ]
        task: dict[str, Any] = {
            "kind": "task",
            "id": f"t{len(self.links)}",
            "contextId": said.get("contextId", "c"),
            "status": {"state": "completed"},
            "artifacts": artifacts if "hold" not in words else [],
        }
        return {"result": task}


@contextmanager
def listening(stranger: Stranger) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None: ...

        def do_GET(self) -> None:
            if self.path.startswith("/.well-known/agent-card"):
                self._say(200, json.dumps({**CARD_0_3, "url": stranger.url}).encode())
                return
            shown = self.headers.get("authorization", "")
            stranger.downloads.append((self.path, shown))
            allowed = shown == f"Bearer {TOKEN}"
            self._say(200 if allowed else 401, INSIDE if allowed else b"no")

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = {"jsonrpc": "2.0", "id": asked["id"], **stranger.answer(asked)}
            self._say(200, json.dumps(said).encode())

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stranger.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield stranger.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def section(tmp_path: Path, url: str, form: str) -> dict[str, Any]:
    (tmp_path / "token").write_text(TOKEN)
    auth = {"token": {"file": str(tmp_path / "token")}}
    return {"url": url, "dialect": "a2a-0.3", "result_files": form, "auth": auth}


async def send(url: str, *parts: dict[str, Any], context: str = "") -> dict[str, Any]:
    said = {"kind": "message", "messageId": f"m{id(parts)}", "role": "user", "parts": list(parts)}
    if context:
        said["contextId"] = context
    return (await call(url, "message/send", {"message": said}))["result"]  # type: ignore[no-any-return]


def link(uri: str) -> dict[str, Any]:
    return {"kind": "file", "file": {"uri": uri}}


def text(words: str) -> dict[str, Any]:
    return {"kind": "text", "text": words}


def files(task: dict[str, Any]) -> list[dict[str, Any]]:
    return [part["file"] for each in task["artifacts"] for part in each["parts"]]


@pytest.mark.parametrize("form", ["value", "reference"])
async def test_an_own_file_of_an_agent_is_downloaded_with_our_credentials(
    tmp_path: Path, form: str
) -> None:
    stranger = Stranger()
    with listening(stranger) as url:
        stranger.own = [f"{url}/made.txt"]
        async with gateway({"s": section(tmp_path, url, form)}, settings(tmp_path)) as front:
            (file,) = files(await send(f"{front.url}/", text("make it")))
    assert stranger.downloads == [("/made.txt", f"Bearer {TOKEN}")]
    assert file.get("bytes") or file["uri"].startswith(front.url)


@pytest.mark.parametrize("form", ["value", "reference"])
@pytest.mark.parametrize("brings", ["link", "text", "spelling"])
async def test_a_link_that_the_caller_brought_is_not_opened_with_our_credentials(
    tmp_path: Path, form: str, brings: str
) -> None:
    stranger = Stranger()
    with listening(stranger) as url:
        wanted = f"{url}/inside.txt"
        given = {
            "link": link(wanted),
            "text": text(f"please look at {wanted} now"),
            "spelling": link(f"{url}/public/../%69nside.txt#top"),
        }[brings]
        if brings == "spelling":
            stranger.own = [wanted]
        async with gateway({"s": section(tmp_path, url, form)}, settings(tmp_path)) as front:
            task = await send(f"{front.url}/", given)
    assert stranger.downloads == []
    assert files(task) == [{"uri": wanted}]  # it is what the caller knows already


async def test_a_link_of_an_earlier_message_stays_the_callers(tmp_path: Path) -> None:
    stranger = Stranger()
    with listening(stranger) as url:
        wanted = f"{url}/inside.txt"
        async with gateway({"s": section(tmp_path, url, "value")}, settings(tmp_path)) as front:
            first = await send(f"{front.url}/", link(wanted), text("hold it"))
            later = await send(f"{front.url}/", text("and back"), context=first["contextId"])
    assert stranger.downloads == []
    assert files(later) == [{"uri": wanted}]


@pytest.mark.parametrize("form", ["value", "reference"])
async def test_an_agent_on_this_machine_opens_its_own_port_only(tmp_path: Path, form: str) -> None:
    stranger, neighbour = Stranger(), Stranger()
    own = settings(tmp_path)
    own = replace(own, server=replace(own.server, allow_private=False))
    with listening(stranger) as url, listening(neighbour) as other:
        stranger.own = [f"{other}/admin", f"{url}/made.txt"]
        async with gateway({"s": section(tmp_path, url, form)}, own) as front:
            admin, made = files(await send(f"{front.url}/", text("make it")))
    assert neighbour.downloads == []
    assert admin == {"uri": f"{other}/admin"}
    assert stranger.downloads == [("/made.txt", f"Bearer {TOKEN}")]
    assert "bytes" in made if form == "value" else made["uri"].startswith(front.url)
