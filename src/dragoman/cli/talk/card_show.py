"""`dragoman card URL`: a card as a readable sheet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from cyclopts import Parameter

from dragoman.client.addresses import dialects_of
from dragoman.client.auth import CardAuth
from dragoman.client.cards import Finder, FoundCard
from dragoman.client.credentials import Wallet, auth_of
from dragoman.client.limits import ClientLimits
from dragoman.client.transports.http import Http
from dragoman.core.card import ApiKey, Card, HttpAuth, MutualTls, OAuth2, OpenId, Scheme
from dragoman.core.errors import CallError, CardUntrusted
from dragoman.dialects.a2a.cards import documents, validate
from dragoman.dialects.a2a.cards.canonical import Uncanonical, document_in

from .. import formatting, json_output
from ..session_options import (
    DONE,
    HEADER,
    NOT_DONE,
    SessionOptions,
    Url,
    agent_at,
    completed,
    headers_of,
    run,
)
from ..waiting import Wait

UNSIGNED, GOOD, UNKNOWN, BROKEN = "not signed", "good", "unknown key", "broken"


def sheet(
    url: Url,
    /,
    *,
    header: Annotated[tuple[str, ...], HEADER] = (),
    to: Annotated[str, Parameter(help="Name of the agent that you share a secret with.")] = "",
    json: Annotated[bool, Parameter(alias="-j", help="Print JSON.")] = False,
) -> None:
    """Show an agent's card: skills, interfaces, security, signature and problems.

    For an agent without a card, the command shows its manifest or introduction (iat+http://,
    iat+ws://) or its extended card (a2a+grpc://).

    A signature is checked with the keys that the card's own host publishes. A valid signature shows
    that the card was not changed, not that you can trust its owner; `dragoman card verify` does.

    Exit code 0: the card is valid; 1: it has errors, or its signature is invalid; 2: the command
    line is invalid; 3: the agent cannot be reached.
    """

    async def work() -> int:
        address = completed(url)
        if dialects_of(address):
            found = await _described(address, SessionOptions(to=to, header=header))
            state, about, problems = UNSIGNED, "", []
        else:
            async with CardAuth.of(os.environ) as auth:
                found = await card_at(address, auth, headers_of(header))
            state, about = await _signature(found)
            problems = _problems(found)
        if json:
            json_output.show(_told(found, state, about, problems))
        else:
            _show(found, state, about, problems)
        bad = state == BROKEN or any(not problem.warning for problem in problems)
        return NOT_DONE if bad else DONE

    run(work, url, as_json=json)


async def _described(address: str, way: SessionOptions) -> FoundCard:
    """Returns the self-description of an agent without a card, in the form of a card."""
    async with agent_at(address, way, wait=Wait(address)) as agent:
        if agent.dialect.endswith("-grpc"):
            # There is no other error for it, and not every agent has an extended card.
            with suppress(CallError):
                await agent.extended_card()
        return FoundCard(agent.card, agent.url, documents.merged(agent.card))


def _problems(found: FoundCard) -> list[validate.Problem]:
    try:
        return validate.problems(document_in(found.raw))
    except Uncanonical as exc:
        return [validate.Problem("", str(exc))]


async def card_at(url: str, auth: CardAuth, headers: Mapping[str, str] | None = None) -> FoundCard:
    """Fetches the card at this address with the user's own credentials."""
    parts = urlsplit(url)
    host, certificate = parts.hostname or "", auth.keyring.certificate
    http = Http(ClientLimits(), host=host, scheme=parts.scheme, certificate=certificate)
    try:
        async with Wait(url).limited():
            return await Finder(http, Wallet(auth_of(auth, headers), [url])).find(url)
    finally:
        await http.close()


async def _signature(found: FoundCard) -> tuple[str, str]:
    if not found.card.signatures:
        return UNSIGNED, ""
    from dragoman.security.card_trust import Trust  # with cryptography, which is slow to import

    trust = Trust("if-present", jku=("self",), allow_private=True)
    try:
        verdict = await trust.check(found.raw, found.url)
    except CardUntrusted as exc:
        state = UNKNOWN if exc.public.get("why") == "unknown_key" else BROKEN
        return state, exc.message
    finally:
        await trust.close()
    return GOOD, f"{verdict.kid} ({verdict.alg}), with a key that its own host publishes"


def _told(
    found: FoundCard, state: str, about: str, problems: list[validate.Problem]
) -> dict[str, Any]:
    return {
        "url": found.url,
        "card": msgspec.json.decode(found.raw),
        "signature": {"state": state, "about": about},
        "problems": listed(problems),
    }


def _show(found: FoundCard, state: str, about: str, problems: list[validate.Problem]) -> None:
    from rich.text import Text

    from ..terminal_view import console

    card, out = found.card, console()

    def head(title: str) -> None:
        out.print(Text(f"\n{title}", "bold"))

    def row(text: str, style: str = "", first: str = "") -> None:
        out.print(Text(f"  {first}{formatting.line(text, 400)}", style), soft_wrap=True)

    version = f"  {formatting.line(card.version, 40)}" if card.version else ""
    out.print(Text.assemble((formatting.line(card.name, 80), "bold"), version), soft_wrap=True)
    if card.description:
        out.print(Text(formatting.line(card.description, 1000)))
    out.print(Text(found.url, "dim"), soft_wrap=True)
    if card.provider is not None:
        out.print(
            Text(f"by {formatting.line(f'{card.provider.organization} {card.provider.url}')}")
        )
    head("Skills")
    for skill in card.skills:
        row(skill.description, first=f"{formatting.line(skill.id, 40):16} ")
    head("Interfaces")
    for each in card.interfaces:
        row(
            each.url,
            first=f"{formatting.line(each.binding, 40):10} {formatting.line(each.version, 9):5} ",
        )
    head("Can do")
    row(", ".join(_abilities(card)))
    for extension in card.extensions:
        row(extension.uri + ("  (required)" if extension.required else ""), "dim")
    head("Security")
    for line in _security(card):
        row(line)
    head("Signature")
    row(f"{state}: {about}" if about else state, "red" if state == BROKEN else "")
    head("Problems")
    for problem in problems:
        row(f"{level(problem):7}  {problem}", "yellow" if problem.warning else "red")
    if not problems:
        row("none")


def listed(problems: list[validate.Problem]) -> list[dict[str, str]]:
    """Returns the problems of a card for programs."""
    return [{"field": p.field, "text": p.text, "level": level(p)} for p in problems]


def level(problem: validate.Problem) -> str:
    """Returns the level of a problem in a word."""
    return "warning" if problem.warning else "error"


def _abilities(card: Card) -> list[str]:
    offered = (
        ("streams", card.streaming),
        ("webhooks", card.push),
        ("an extended card", card.extended),
    )
    return [name for name, has in offered if has] or ["only plain answers"]


def _security(card: Card) -> list[str]:
    lines = [f"{name:16} {_scheme(scheme)}" for name, scheme in card.schemes.items()]
    asked = [" and ".join(way) for way in card.security if way]
    if asked:
        lines.append(f"asked for: {', or '.join(asked)}")
    return lines or ["nothing is asked for"]


def _scheme(scheme: Scheme) -> str:
    match scheme:
        case ApiKey():
            return f"API key in the {scheme.location}, {scheme.name}"
        case HttpAuth():
            return f"HTTP {scheme.scheme}"
        case OAuth2():
            return f"OAuth 2: {', '.join(flow.kind for flow in scheme.flows)}"
        case OpenId():
            return f"OpenID Connect, {scheme.url}"
        case MutualTls():
            return "a client certificate"
