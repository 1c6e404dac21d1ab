"""`dragoman card`: sign, verify and validate cards.

Exit codes: 0 the card is valid, 1 it is not, 2 the command line is invalid (no such file, no key).
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import App, Parameter

from dragoman.core.errors import CardUntrusted, ConfigError, DragomanError
from dragoman.dialects.a2a.cards import documents
from dragoman.dialects.a2a.cards import validate as checks
from dragoman.dialects.a2a.cards.canonical import Uncanonical, document_in
from dragoman.security.outbound.guarded_http import GuardedHttp, Rules, Unreachable

from ..stdin_argument import DASH
from ..waiting import Wait
from .card_show import level, listed, sheet

if TYPE_CHECKING:
    from dragoman.security.card_trust import TrustVerdict

card = App(
    name="card", help="Show an agent's card (`dragoman card URL`); sign, verify and validate cards."
)
card.default(sheet)

WELL_KNOWN = "/.well-known/agent-card.json"
NOWHERE = "https://card.invalid"
"""The origin of a card in a file, if none is given."""
NOT_SO = 1
"""The exit code for a card that is not valid."""

Source = Annotated[
    str,
    DASH,
    Parameter(help="A file, - for standard input, or the address of an agent or its card."),
]
AsJson = Annotated[bool, Parameter(name=("--json", "-j"), help="Print JSON.")]


@card.command
def sign(
    file: Annotated[str, DASH, Parameter(help="The card as JSON; - reads standard input.")],
    /,
    *,
    key: Annotated[Path, Parameter(help="The file with the private key.")],
    jku: Annotated[str, Parameter(help="The address of the published key set (https).")] = "",
    add: Annotated[bool, Parameter(help="Keep the existing signatures.")] = False,
    out: Annotated[Path | None, Parameter(help="File to write. [default: standard output]")] = None,
    json: Annotated[
        bool, Parameter(name=("--json", "-j"), help="Print only the signatures, as JSON.")
    ] = False,
) -> None:
    """Sign a card for the readers of each of its versions, and write the signed card."""
    from dragoman.dialects.a2a.cards import signatures
    from dragoman.security.card_signing import load

    if jku and not jku.startswith("https://"):
        raise ConfigError(
            "--jku must start with https://, so that nobody can change the keys in transit."
        )
    document = _document(_read(file))
    held = next(iter(load([str(key)], time.time())), None)
    if held is None:
        raise ConfigError(f"{key} contains no key that is valid now.")
    try:
        made = msgspec.to_builtins(signatures.sign_all([document], held.key, jku))
    except Uncanonical as exc:
        raise ConfigError(f"This card cannot be signed: {exc}.") from None
    if json:
        print(msgspec.json.encode(made).decode())
        return
    before = document.get("signatures") if add else None
    document["signatures"] = [*(before if isinstance(before, list) else ()), *made]
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if out is None:
        sys.stdout.buffer.write(text)
    else:
        _write(out, text)


@card.command
def verify(
    source: Source,
    /,
    *,
    key: Annotated[
        tuple[str, ...], Parameter(help="Keys to trust: a file, or the address of a key set.")
    ] = (),
    jku: Annotated[
        tuple[str, ...],
        Parameter(help="Key sets that the card may refer to: an address, an origin, or self."),
    ] = (),
    policy: Annotated[
        Literal["require", "if-present"], Parameter(help="Policy for cards without a signature.")
    ] = "require",
    strict: Annotated[
        bool, Parameter(help="Accept only the canonical form of the specification.")
    ] = False,
    pins: Annotated[
        Path | None,
        Parameter(help="File of hosts whose cards were signed once and must stay signed."),
    ] = None,
    origin: Annotated[str, Parameter(help="Where a card in a file came from.")] = "",
    allow_private: Annotated[bool, Parameter(help="Allow key sets in private networks.")] = False,
    json: AsJson = False,
) -> None:
    """Check whether a card is signed with a key that you trust (exit code 1 if not)."""
    from dragoman.security.card_trust import Trust

    raw = _read(source)
    place = origin or (source if _is_url(source) else NOWHERE)
    trust = Trust(policy, keys=key, jku=jku, pins=pins, strict=strict, allow_private=allow_private)

    async def checked() -> TrustVerdict:
        try:
            return await trust.check(raw, place)
        finally:
            await trust.close()

    try:
        found = asyncio.run(checked())
    except CardUntrusted as exc:
        told = exc.message.replace(f"The card of {NOWHERE}", f"The card in {source}")
        if json:
            why = exc.public.get("why", "")
            print(msgspec.json.encode({"ok": False, "why": why, "message": told}).decode())
        else:
            print(told)
        sys.exit(NOT_SO)
    bare = ", ".join(found.uncovered)
    if json:
        said = {"ok": not bare, "proved": found.proved, "kid": found.kid, "alg": found.alg}
        more = {"form": found.form, "versions": found.versions, "uncovered": found.uncovered}
        print(msgspec.json.encode({**said, **more, "name": found.card.name}).decode())
    elif found.proved:
        print(f"{found.card.name}: signed by {found.kid} ({found.alg}, {found.form} form).")
        if bare:
            print(f"Its signatures do not cover: {bare}.")
    else:
        print(f"{found.card.name}: not signed.")
    if bare:
        sys.exit(NOT_SO)


@card.command
def validate(source: Source, /, *, json: AsJson = False) -> None:
    """Check whether a card follows the rules of its version (exit code 1 if not).

    The source may also be a Python file with an agent.
    """
    if source.partition(":")[0].endswith(".py"):
        document = _of_agent(source)
    else:
        document = _document(_read(source))
    found = checks.problems(document)
    bad = [problem for problem in found if not problem.warning]
    if json:
        print(msgspec.json.encode({"ok": not bad, "problems": listed(found)}).decode())
    else:
        for problem in found:
            print(f"{level(problem):7}  {problem}")
        if not found:
            print("The card is valid.")
    if bad:
        sys.exit(NOT_SO)


def _of_agent(where: str) -> dict[str, Any]:
    from dragoman.net.http.addresses import chosen, interfaces
    from dragoman.server.agent_loader import load_agent
    from dragoman.settings import Server

    agent = load_agent(where)
    listed = interfaces("http://127.0.0.1:8420", (), chosen(Server()))
    return document_in(documents.merged(agent.card(listed, agent.skills)))


def _document(raw: bytes) -> dict[str, Any]:
    try:
        return document_in(raw)
    except Uncanonical as exc:
        raise ConfigError(f"This is not a card: {exc}.") from None


def _is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _read(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read(documents.MOST_BYTES + 1)
    if _is_url(source):
        return asyncio.run(_fetched(source))
    try:
        return Path(source).read_bytes()
    except OSError as exc:
        raise ConfigError(f"{source} cannot be read: {exc.strerror}.") from None


async def _fetched(url: str) -> bytes:
    """Fetches the card at an address that the user typed, which may be a machine nearby."""
    if not url.endswith(".json"):
        url = url.rstrip("/") + WELL_KNOWN
    egress = GuardedHttp(Rules(allow_private=True))
    try:
        # No version is requested, so that the card has the members that readers of any version use.
        headers = {"accept": "application/json"}
        async with Wait(url, document=True).limited():
            reply = await egress.request("GET", url, headers=headers, max_size=documents.MOST_BYTES)
    except Unreachable as exc:
        raise ConfigError(f"{url} cannot be read: {exc}.") from None
    except DragomanError as exc:
        raise ConfigError(f"{url}: {exc.message}.") from None
    finally:
        await egress.close()
    if reply.status != 200 or not reply.whole:
        raise ConfigError(f"{url} answers with status {reply.status}, not with a card.")
    return reply.body


def _write(path: Path, text: bytes) -> None:
    try:
        path.write_bytes(text)
    except OSError as exc:
        raise ConfigError(f"{path} cannot be written: {exc.strerror}.") from None
