"""`dragoman listen`: a webhook receiver that prints what arrives."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Annotated

from cyclopts import Parameter

from dragoman.client.auth.origins import is_loopback
from dragoman.client.receiver import Notice, Proof, Receiver
from dragoman.core.errors import ConfigError
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.model import Message
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.server.serve import address
from dragoman.settings import Limits

from .. import formatting, json_output
from ..session_options import DONE, run
from .hooks import TOKEN

PORT = 8430


def listen(
    *,
    port: Annotated[int, Parameter(alias="-p", help="Port to listen on; 0 for a free one.")] = PORT,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    insecure: Annotated[bool, Parameter(help="Listen on the network without TLS.")] = False,
    unsigned: Annotated[
        bool, Parameter(help="Accept the token without a signature, as the official SDKs send it.")
    ] = False,
    count: Annotated[int, Parameter(help="Stop after this many calls. [default: Ctrl-C]")] = 0,
    json: Annotated[bool, Parameter(alias="-j", help="Print JSON in the form of A2A 1.0.")] = False,
) -> None:
    """Receive webhooks and print them.

    Callers must send the token in $DRAGOMAN_HOOK_TOKEN; if it is not set, a token is generated and
    printed. Register the webhook with: dragoman hooks set URL TASK ADDRESS

    Exit code 0: Ctrl-C, or --count calls have arrived; 2: the command line is invalid.
    """
    if not is_loopback(f"http://{host}") and not insecure:
        raise ConfigError("Calls over the network would not be encrypted; --insecure allows it.")
    given = os.environ.get(TOKEN, "")
    token = given or secrets.token_urlsafe(24)

    async def work() -> int:
        left, enough = count, asyncio.Event()

        async def tell(notice: Notice) -> None:
            nonlocal left
            _show(notice, as_json=json)
            left -= 1
            if left == 0:
                enough.set()

        sock = bind(host, port)
        url = address(sock, tls=False) + "/"
        app = Receiver(tell, Proof(tokens=(token,), unsigned=unsigned))
        listener = GranianServer(app, sock, Limits())
        listener.begin()
        if json:
            json_output.show({"url": url} | ({} if given else {"token": token}))
        else:
            shown = "" if given else f"{TOKEN}={token} "
            print(f"Listening at {url}  (Ctrl-C ends it)")
            print(f"Have it called: {shown}dragoman hooks set URL TASK {url}", flush=True)
        try:
            await enough.wait()
        except asyncio.CancelledError:  # Ctrl-C is the usual end
            pass
        finally:
            listener.refuse()
            await listener.end(4.0)
        return DONE

    run(work, "", as_json=json)


def _show(notice: Notice, *, as_json: bool) -> None:
    if as_json:
        json_output.show(
            {"id": notice.id, "signed": notice.signed, **json_output.event(notice.entry)}
        )
        return
    proof = "signed" if notice.signed else "token only"
    print(f"{formatting.line(notice.task_id, 80)}  {_what(notice)}  ({proof})", flush=True)


def _what(notice: Notice) -> str:
    entry = notice.entry
    if isinstance(entry, Message):
        return f"message: {formatting.line(entry.text)}"
    if notice.state is not None:
        return notice.state.value
    return _event(entry)


def _event(entry: Stamped) -> str:
    if isinstance(entry.event, ArtifactChunk):
        artifact = entry.event.artifact
        text = formatting.line(formatting.artifact_words(artifact))
        return f"{formatting.line(artifact.artifact_id, 80)}: {text}"
    return type(entry.event).__name__.lower()
