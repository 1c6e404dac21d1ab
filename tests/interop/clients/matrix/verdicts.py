"""What every client of the matrix needs: a webhook that really listens, and a verdict for each
operation. Standard library only: it is imported in the environments of others.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

PATIENCE = 60.0
HOOK_TOKEN, HOOK_CREDENTIALS = "token-of-the-webhook", "credentials-of-the-webhook"
PROOF = (HOOK_TOKEN, f"Bearer {HOOK_CREDENTIALS}")
SECRET_SKILL = "hidden"
"""Stands on the extended card only."""


class Cannot(Exception):
    """The client itself has no way to ask this; the message says how that was seen."""


class Partly(Exception):
    """It works but for something that is the client's own; the message says what."""


class Receiver:
    """A webhook on a loopback port; every test has a path of its own."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, tuple[str, str], Any]] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                words = ("x-a2a-notification-token", "authorization")
                token, authorization = (self.headers.get(word, "") for word in words)
                heard.append((self.path, (token, authorization), json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def address(self) -> str:
        """A new one."""
        return f"http://127.0.0.1:{self._server.server_port}/{uuid4()}"

    async def told(self, address: str, done: Callable[[Any], bool]) -> list[Any]:
        """All that came to an address, once something of it says that the task is done."""
        path = "/" + address.rpartition("/")[2]
        while True:
            mine = [(proof, body) for where, proof, body in self.heard if where == path]
            if any(done(body) for _, body in mine):
                assert {proof for proof, _ in mine} == {PROOF}, mine
                return [body for _, body in mine]
            await asyncio.sleep(0.05)  # and looks again


def has_none(owners: list[object], *words: str) -> Cannot:
    """There is no method with all these words in its name."""
    found = [
        f"{type(owner).__name__}.{name}"
        for owner in owners
        for name in dir(owner)
        if not name.startswith("_") and all(word in name.lower() for word in words)
    ]
    assert not found, f"there is {found}"
    return Cannot("the client has no such method")


async def refuses_itself(action: Awaitable[object], asked: Callable[[], int]) -> Cannot:
    """It raises NotImplementedError, and nothing has left for the server."""
    before = asked()
    try:
        found = await action
    except NotImplementedError:
        assert asked() == before, "it asked the server first"
        return Cannot("the client raises NotImplementedError and sends nothing")
    raise AssertionError(f"it can: {found!r}")


Operation = Callable[[Any], Awaitable[None]]


async def judge(
    operations: list[Operation], connect: Callable[[], Awaitable[Any]], to: TextIO | None = None
) -> None:
    """One JSON line for each operation: ok (but what), or cannot and why, or the failure."""
    for operation in operations:
        line = {"scenario": operation.__name__, "ok": True, "cannot": "", "but": "", "detail": ""}
        try:
            async with asyncio.timeout(PATIENCE):
                await operation(await connect())
        except Cannot as why:
            line["cannot"] = str(why)
        except Partly as what:
            line["but"] = str(what)
        except Exception:  # any failure is a verdict
            line |= {"ok": False, "detail": traceback.format_exc()}
        print(json.dumps(line), file=to or sys.stdout, flush=True)


def only_json_rpc(package: Path) -> str:
    """The package knows no route of REST and no gRPC."""
    source = "\n".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    assert "message:send" not in source, "it knows REST"
    assert "import grpc" not in source, "it knows gRPC"
    return "its code names no REST route and no gRPC"
