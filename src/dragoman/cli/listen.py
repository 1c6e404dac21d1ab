"""`dragoman listen`: a webhook receiver that prints what arrives."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Annotated

from cyclopts import Parameter

from ..client.auth.origins import is_loopback
from ..client.receiver import Notice, Proof, Receiver
from ..errors import ConfigError
from ..events import ArtifactChunk, Stamped
from ..model import Message
from ..net.listener import Listener, bind
from ..serving import address
from ..settings import Limits
from . import spelled, words
from .calling import DONE, run
from .hooks import TOKEN

PORT = 8430


def listen(
    *,
    port: Annotated[int, Parameter(help="Where to listen; 0 for a free port.")] = PORT,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    insecure: Annotated[bool, Parameter(help="Listen to the network, without TLS.")] = False,
    unsigned: Annotated[
        bool, Parameter(help="Take the bare token, as the official SDKs send it.")
    ] = False,
    count: Annotated[int, Parameter(help="End after so many. [default: Ctrl-C]")] = 0,
    json: Annotated[bool, Parameter(help="Print JSON, spelled as A2A 1.0.")] = False,
) -> None:
    """Receive webhooks, and print what arrives.

    Calls must know the token in $DRAGOMAN_HOOK_TOKEN; without it one is made and shown. Have an
    agent call with: dragoman hooks set URL TASK ADDRESS

    Exit code 0: Ctrl-C, or --count have come; 2: the command is wrong.
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
        listener = Listener(app, sock, Limits())
        listener.begin()
        if json:
            spelled.show({"url": url} | ({} if given else {"token": token}))
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
        spelled.show({"id": notice.id, "signed": notice.signed, **spelled.event(notice.entry)})
        return
    proof = "signed" if notice.signed else "token only"
    print(f"{words.line(notice.task_id, 80)}  {_what(notice)}  ({proof})", flush=True)


def _what(notice: Notice) -> str:
    entry = notice.entry
    if isinstance(entry, Message):
        return f"message: {words.line(entry.text)}"
    if notice.state is not None:
        return notice.state.value
    return _event(entry)


def _event(entry: Stamped) -> str:
    if isinstance(entry.event, ArtifactChunk):
        artifact = entry.event.artifact
        return (
            f"{words.line(artifact.artifact_id, 80)}: {words.line(words.artifact_words(artifact))}"
        )
    return type(entry.event).__name__.lower()
