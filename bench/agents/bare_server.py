"""What the HTTP server alone costs: a raw ASGI app that answers every POST with fixed bytes.

It runs on the very listener of `dragoman serve`, with its settings; with `--policy`, under the
thread policy of `serve` too. The bytes are one of our own answers, so that both sides read and
write the same amount.
"""

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.server.process.tuning import use_batch_scheduling
from dragoman.settings import Limits

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

HEADERS = [(b"content-type", b"application/json")]


def answering(body: bytes) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    headers = [*HEADERS, (b"content-length", str(len(body)).encode())]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def serve(port: int, body: bytes) -> None:
    listener = GranianServer(answering(body), bind("127.0.0.1", port), Limits())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, listener.refuse)
    await listener.begin()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", choices=["memory:"], default="memory:")
    parser.add_argument("--policy", action="store_true")
    options = parser.parse_args()
    if options.policy:
        use_batch_scheduling()
    uvloop.run(serve(options.port, Path(os.environ["BENCH_BARE_ANSWER"]).read_bytes()))


if __name__ == "__main__":
    main()
