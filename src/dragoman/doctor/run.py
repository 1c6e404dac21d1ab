"""Runs an examination: reads the card, finds the interfaces and runs the checks one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.core.errors import BadParams
from dragoman.net.http.addresses import web_url
from dragoman.security.outbound.address_scopes import Unreachable

from .card_fields import header_hint, spoken, tenant_at
from .check import CHECKS, Broken, Check, Level, Unknowable, in_order
from .guard import Guard
from .http import RawHttp
from .probes import FORMS, RpcProbe, probe_for
from .report import CheckResult, Outcome, Report
from .subject import NO_TASK, AgentUnderTest, Case, TestTexts

BINDINGS = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"}


class Orders(Struct, frozen=True, kw_only=True):
    """The options of an examination."""

    text: str = ""
    slow_text: str = ""
    ask_text: str = ""
    only: tuple[str, ...] = ()
    """The checks to run, by id or pattern (`card.*`)."""
    skip: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    """The interfaces to examine (`jsonrpc-1.0`); none means all that the card declares."""
    timeout: float = 10.0
    ca: str = ""
    """The file of the certificate authority to trust instead of the system's."""
    headers: Mapping[str, str] = {}
    allow_private: bool = False
    """Whether addresses on the card may lead into private networks."""


def examine(
    url: str, orders: Orders, tell: Callable[[CheckResult], None] = lambda _: None
) -> Report:
    """Examines the agent at this address, and returns the report."""
    began = time.monotonic()
    guard = Guard(url, allow_private=orders.allow_private)
    wire = RawHttp(guard, orders.timeout, orders.headers, orders.ca)
    words = TestTexts(text=orders.text, slow=orders.slow_text, ask=orders.ask_text)
    agent = AgentUnderTest(url, wire, words)
    locked = ""
    left_out: list[str] = []
    results: list[CheckResult] = []
    try:
        _find(agent, orders, left_out)
        locked = _set_locked_aside(agent, left_out)
        wanted = [check for check in in_order() if _wanted(check.id, orders)]
        card = [check for check in wanted if check.group == "card"]
        results += [_run(check, "card", agent, wire, tell) for check in card]
        results += _each(agent.locked, [check for check in wanted if check.group == "auth"], tell)
        # Checks with bad input come last, since what an agent stores of it could disturb others.
        kind = [check for check in wanted if not check.once and check.group != "input"]
        results += _each(agent.cases, kind, tell)
        whole = [check for check in wanted if check.once and check.group != "card"]
        results += [_run(check, "all", agent, wire, tell) for check in whole]
        bad_input = [check for check in wanted if check.group == "input"]
        results += _each(agent.cases, bad_input, tell)
    finally:
        for case in (*agent.cases, *agent.locked):
            case.close()
        wire.close()
    return Report(
        url=url,
        agent=_name(agent),
        interfaces=tuple(case.name for case in agent.cases),
        left_out=tuple(left_out),
        locked=locked,
        requests=wire.requests,
        seconds=time.monotonic() - began,
        results=tuple(results),
    )


def _each(
    cases: list[Case], wanted: list[Check], tell: Callable[[CheckResult], None]
) -> list[CheckResult]:
    """Runs the checks on every interface that they apply to."""
    return [
        _run(check, case.name, case, case.agent.wire, tell)
        for case in cases
        for check in wanted
        if case.binding in check.bindings and case.version in check.versions
    ]


def _wanted(id: str, orders: Orders) -> bool:
    named = not orders.only or any(fnmatch(id, pattern) for pattern in orders.only)
    return named and not any(fnmatch(id, pattern) for pattern in orders.skip)


def _find(agent: AgentUnderTest, orders: Orders, left_out: list[str]) -> None:
    """Returns the interfaces that can be examined, each once."""
    try:
        declared = list(spoken(agent.card))
    except (Broken, Unknowable):
        declared = []
    seen: set[str] = set()
    for url, binding, version in declared:
        if agent.first_days and binding == "JSONRPC":
            version = _oldest(agent, url)
        version = "0.3" if version == "0.2" else version
        name = f"{BINDINGS.get(binding.upper(), binding)}-{version}"
        if name in seen:
            continue
        seen.add(name)
        tenant = tenant_at(agent.card, url, binding) if version == "1.0" else ""
        _add(agent, name, url, orders, left_out, tenant)
    for name in orders.on:
        if name == "jsonrpc-0.1" and name not in seen:  # cards cannot declare 0.1
            url = next((u for u, b, _ in declared if b == "JSONRPC"), agent.url)
            _add(agent, name, url, orders, left_out)


def _set_locked_aside(agent: AgentUnderTest, left_out: list[str]) -> str:
    """Takes out the interfaces that ask for credentials, and returns what to do about it.

    Every check would only repeat the 401, which is no fault of the agent.
    """
    try:
        hint = header_hint(agent.card)
    except (Broken, Unknowable):
        hint = header_hint({})
    given_ones = bool(agent.wire.credentials)
    why = "refuses the credentials of --header" if given_ones else "asks for credentials"
    advice = "" if given_ones else f": pass them with {hint}"
    said = ""
    for case in list(agent.cases):
        try:
            refusal = case.ask("get", id=NO_TASK).refusal
        except (Broken, Unknowable):
            continue  # the checks will say so
        if refusal is not None and refusal.unauthenticated:
            agent.cases.remove(case)
            agent.locked.append(case)
            said = f"{why} ({refusal.grpc or refusal.status or refusal.code}){advice}"
            left_out.append(f"{case.name}: {said}")
    try:
        card_locked = agent.answer.status == 401
    except Broken:
        card_locked = False
    return f"{why} (401){advice}" if card_locked else said


def _oldest(agent: AgentUnderTest, url: str) -> str:
    """Returns the version behind a card without one: an agent without message/send speaks 0.1."""
    probe = RpcProbe(agent.wire, url, "0.3", FORMS["jsonrpc", "0.3"])
    try:
        refusal = probe.ask("send", {}).refusal
    except Broken:
        return "0.3"
    return "0.1" if refusal is not None and refusal.code == -32601 else "0.3"


def _add(
    agent: AgentUnderTest,
    name: str,
    url: str,
    orders: Orders,
    left_out: list[str],
    tenant: str = "",
) -> None:
    if orders.on and name not in orders.on:
        return
    binding, _, version = name.partition("-")
    if (binding, version) not in FORMS:
        left_out.append(f"{name}: not a binding and version of A2A that the doctor knows")
        return
    if binding == "grpc":
        url = web_url(url, agent.url.partition("://")[0])
    try:
        parts = urlsplit(url)
        agent.wire.guard.addresses(parts.hostname or "", parts.port or 0)
    except BadParams:
        left_out.append(f"{name}: {url[:200]} may not be called from here (--allow-private)")
        return
    except (Unreachable, ValueError):
        pass  # the checks will say so
    try:
        probe = probe_for(agent.wire, binding, version, url)
    except ValueError as exc:
        left_out.append(f"{name}: {url!r} is not a valid address ({exc})")
        return
    except ModuleNotFoundError as exc:
        if exc.name != "grpc":
            raise
        left_out.append(f"{name}: needs pip install 'dragoman[grpc]'")
        return
    probe.tenant = tenant
    agent.cases.append(Case(agent, probe))


def _run(
    check: Check,
    on: str,
    what: AgentUnderTest | Case,
    wire: RawHttp,
    tell: Callable[[CheckResult], None],
) -> CheckResult:
    wire.note("", "")
    outcome: Outcome = "pass"
    why = ""
    try:
        check.run(what)
    except Unknowable as exc:
        outcome, why = "skipped", str(exc)
    except Broken as exc:
        outcome, why = ("fail" if check.level is Level.MUST else "warning"), str(exc)
    except Exception as exc:  # an answer that breaks the check itself is a finding as well
        outcome = "fail" if check.level is Level.MUST else "warning"
        why = f"the answer is not what it should be ({type(exc).__name__}: {exc})"
    # A passed check needs no evidence.
    sent, came = ("", "") if outcome in ("pass", "skipped") else (wire.sent, wire.came)
    veiled = wire.veiled(why)
    result = CheckResult(id=check.id, on=on, outcome=outcome, why=veiled, sent=sent, came=came)
    tell(result)
    return result


def _name(agent: AgentUnderTest) -> str:
    try:
        return str(agent.card.get("name", ""))
    except (Broken, Unknowable):
        return ""


def unknown(patterns: Iterable[str]) -> list[str]:
    """Returns the patterns that match no check."""
    return [p for p in patterns if not any(fnmatch(id, p) for id in CHECKS)]
