"""The parts that all commands for agents share: options, the connection, errors, exit codes."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from msgspec.structs import replace

from dragoman.client import Auth, ClientLimits, RemoteAgent, SharedSecret, connect
from dragoman.client.addresses import dialects_of, origins_of, schemes, web_form
from dragoman.client.auth import CardAuth
from dragoman.client.auth.origins import is_loopback, printable
from dragoman.core.card import Card
from dragoman.core.dialect import SharedSecretProof
from dragoman.core.errors import (
    BadParams,
    CardUntrusted,
    ConfigError,
    ContentTypeUnsupported,
    DragomanError,
    ExtensionRequired,
    PeerMisbehaved,
    PeerUnreachable,
    PushUnsupported,
    TaskFinished,
    TaskNotFound,
    TooMany,
    Unauthenticated,
    UnknownMethod,
    VersionUnsupported,
)
from dragoman.core.lifecycle import WAITING
from dragoman.core.model import Message, State, Task
from dragoman.dialects import DIALECTS
from dragoman.security.outbound.guarded_http import Rules, parse

from .waiting import RESPONSE_TIMEOUT_SECONDS, Wait

DONE, NOT_DONE, MISTAKE, NOBODY, WAITS, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""The exit codes; `docs/guide/cli.md` has the table."""


Url = Annotated[
    str,
    Parameter(
        help="Address of the agent, or of its card (ends in .json); with a dialect in front: "
        "iat+http://, iat+ws://, a2a+grpc://."
    ),
]
HEADER = Parameter(
    alias="-H", help="Header of every request: 'Authorization: Bearer {TOKEN}' reads $TOKEN."
)
TaskId = Annotated[str, Parameter(help="Id of the task.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """The flags of every command that connects to agents."""

    dialect: Annotated[
        str,
        Parameter(
            help="Use only this: a2a-1.0, a2a-0.3-rest, GRPC, 0.3... [default: the card's best]"
        ),
    ] = ""
    origin: Annotated[
        tuple[str, ...],
        Parameter(help="Another origin that may receive your credentials; repeatable."),
    ] = ()
    header: Annotated[tuple[str, ...], HEADER] = ()
    to: Annotated[
        str,
        Parameter(help="Name of the agent that you share a secret with. [secret: IAT_SECRET]"),
    ] = ""
    ca: Annotated[
        Path | None, Parameter(help="File (PEM) with the certificate authority to trust.")
    ] = None
    allow_private: Annotated[
        bool, Parameter(help="Allow addresses on the card that are in private networks.")
    ] = False
    timeout: Annotated[
        float | None,
        Parameter(
            help="Give up after this many seconds, even if a task still runs. "
            "[default: 30 for a response, no limit for a task]"
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SessionOptions(ConnectionOptions):
    """The flags of every command that calls an agent: the connection and the output format."""

    json: Annotated[bool, Parameter(alias="-j", help="Print JSON in the form of A2A 1.0.")] = False


@asynccontextmanager
async def agent_at(
    url: str,
    way: ConnectionOptions,
    *,
    card: Card | None = None,
    extensions: Sequence[str] = (),
    limits: ClientLimits | None = None,
    wait: Wait | None = None,
) -> AsyncIterator[RemoteAgent]:
    """Connects to the agent with the user's own credentials. `wait` limits the whole block;
    without one `--timeout` limits each response."""
    address = completed(url)
    if way.ca is not None and not way.ca.is_file():
        raise ConfigError(f"There is no file {way.ca} (--ca).")
    if way.timeout is not None and way.timeout <= 0:
        raise ConfigError("--timeout must be more than 0.")
    try:
        own, *others = origins_of(address, way.origin)
    except BadParams as exc:
        raise ConfigError(f"{exc.message}.") from None
    seconds = way.timeout or RESPONSE_TIMEOUT_SECONDS
    limits = limits or ClientLimits()
    limits = replace(
        limits,
        answer=seconds,
        connect=min(limits.connect, seconds),
        patience=min(limits.patience, seconds),
    )
    async with AsyncExitStack() as stack:
        if wait is not None:
            await stack.enter_async_context(wait.limited())
        auth = await stack.enter_async_context(
            CardAuth.of(
                os.environ, allow_private=way.allow_private, shared=dict.fromkeys(others, own)
            )
        )
        agent = await stack.enter_async_context(
            connect(
                address,
                card=card,
                dialect=way.dialect or None,
                auth=_with_secret(auth, address, way),
                origins=others,
                headers=headers_of(way.header),
                ca=way.ca or "",
                allow_private=way.allow_private,
                extensions=extensions,
                limits=limits,
            )
        )
        if wait is not None:
            wait.begin_calls(agent)
        yield agent


def headers_of(given: Sequence[str]) -> dict[str, str]:
    """Reads headers of the form `Name: value`, with {VARIABLE} from the environment, so that no
    secret is in a command."""
    found: dict[str, str] = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not re.fullmatch(r"[A-Za-z0-9-]+", name):
            raise ConfigError(f"--header must be 'Name: value', not {name!r}.")
        for variable in re.findall(r"\{(\w+)\}", value):
            if variable not in os.environ:
                raise ConfigError(
                    f"--header {name} needs the variable {variable}, which is not set."
                )
        found[name] = re.sub(r"\{(\w+)\}", lambda one: os.environ[one[1]], value.strip())
    return found


def _with_secret(auth: Auth, address: str, way: ConnectionOptions) -> Auth:
    """Returns the secret that is shared with the agent, beside other credentials, if its name is
    given: a signature is valid for that name alone."""
    if not way.to:
        return auth
    proof = proof_at(address, way.dialect)
    if proof is None:
        raise ConfigError(
            "--to is for dialects that prove a shared secret: iat+http://, iat+ws://."
        )
    secret = os.environ.get(proof.variable, "")
    if not secret:
        raise ConfigError(f"--to needs the secret that you share with the agent: {proof.variable}.")
    return SharedSecret(secret, to=way.to, beside=auth)


def proof_at(address: str, dialect: str = "") -> SharedSecretProof | None:
    """Returns how a shared secret is proved at this address, or None if it is not."""
    named = [*dialects_of(address), *filter(None, (DIALECTS.get(dialect),))]
    return next((how.proof for how in named if how.proof is not None), None)


def completed(url: str) -> str:
    """Returns the address with its scheme: https if none is given, or http on this machine."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        near = is_loopback(f"http://{url}")
        scheme, rest = "http" if near else "https", url
    if scheme not in schemes() or not rest.strip("/") or any(c.isspace() for c in rest):
        raise ConfigError(f"This is no address of an agent: {printable(url)}")
    address = f"{scheme}://{rest}"
    try:
        parse(web_form(address).partition("#")[0], Rules(allow_private=True, allow_loopback=True))
    except BadParams as exc:  # the address is not printed: it may contain a password
        raise ConfigError(f"This is no address of an agent. {exc.message}.") from None
    return address


def run(work: Callable[[], Coroutine[Any, Any, int]], url: str, *, as_json: bool) -> None:
    """Runs a command and exits with its code. Errors are printed in one or two lines."""

    async def main() -> int:
        with interruptible():
            return await work()

    try:
        code = asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        code = INTERRUPTED
    except DragomanError as exc:
        code = complained(exc, url, as_json=as_json)
    if code:
        sys.exit(code)


def run_with(
    url: str,
    way: SessionOptions,
    work: Callable[[RemoteAgent], Awaitable[int | None]],
    *,
    extensions: Sequence[str] = (),
    wait: Wait | None = None,
) -> None:
    """Runs a command that needs only the agent. `work` returns the exit code; None means 0."""
    wait = wait or Wait(url, way.timeout)

    async def main() -> int:
        async with agent_at(url, way, extensions=extensions, wait=wait) as agent:
            return await work(agent) or DONE

    run(main, url, as_json=way.json)


class interruptible:  # noqa: N801  reads as a word: with interruptible()
    """Has Ctrl-C, or each of these signals, cancel the task of the caller every time, instead of
    Python's own handling."""

    def __init__(self, *signals: int) -> None:
        self._signals = signals or (signal.SIGINT,)

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  only used in a coroutine
        with suppress(NotImplementedError):  # Windows: asyncio.run does it, once
            for number in self._signals:
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)

    def __exit__(self, *error: object) -> None:
        with suppress(NotImplementedError):
            for number in self._signals:
                asyncio.get_running_loop().remove_signal_handler(number)


NEXT: tuple[tuple[type[DragomanError], str], ...] = (
    (Unauthenticated, "Log in with: dragoman login {url}"),
    (PeerUnreachable, "Is it running, and is the address right?"),
    (CardUntrusted, "Look at it with: dragoman card {url}"),
    (VersionUnsupported, "See what it speaks: dragoman card {url}; choose with --dialect"),
    (UnknownMethod, "See what it speaks: dragoman card {url}; choose with --dialect"),
    (ContentTypeUnsupported, "See what it takes: dragoman card {url}"),
    (ExtensionRequired, "See what it requires: dragoman card {url}"),
    (TaskNotFound, "See yours with: dragoman tasks list {url}"),
    (TaskFinished, "Say it without --task to begin another one."),
    (PushUnsupported, "It calls nobody; follow the task with: dragoman tasks watch {url} ID"),
    (TooMany, "Wait a little, then try again."),
    (PeerMisbehaved, "Find out more with: dragoman doctor {url}"),
)
"""Hints about what the user can do about an error; the first that matches counts."""


def advice(error: DragomanError, url: str) -> str:
    """Returns a hint about what to do next, unless the error contains it."""
    named = isinstance(error, Unauthenticated) and "+" in url.partition("://")[0]
    if named and (proof := proof_at(url)) is not None:
        return f"If you share a secret with it, set {proof.variable} and name it: --to NAME"
    if "agents" in error.public:  # the message names their addresses
        return ""
    if "dragoman " in error.message or " --" in error.message:
        return ""
    found = (text for kind, text in NEXT if isinstance(error, kind))
    return next(found, "").format(url=printable(url))


def complained(error: DragomanError, url: str, *, as_json: bool) -> int:
    """Prints what went wrong and what to do, and returns the exit code."""
    if as_json:
        told = {"error": error.reason, "message": error.message}
        print(msgspec.json.encode(told | ({"code": error.code} if error.code else {})).decode())
    print("dragoman:", printable(error.message, 1000), file=sys.stderr)
    if hint := advice(error, url):
        print(hint, file=sys.stderr)
    if isinstance(error, ConfigError):
        return MISTAKE
    return NOBODY if isinstance(error, PeerUnreachable) else NOT_DONE


def named(task: Task) -> str:
    """Returns the id of a task as it can be typed in a shell; the other side chose it."""
    return shlex.quote(printable(task.id))


def code_of(result: Task | Message) -> int:
    """Returns the exit code for the state of a task."""
    if isinstance(result, Message) or result.state is State.COMPLETED:
        return DONE
    return WAITS if result.state in WAITING else NOT_DONE
