"""`dragoman doctor`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from threading import Timer
from typing import Annotated

from cyclopts import Parameter

from dragoman.client.auth.origins import printable
from dragoman.core.errors import ConfigError
from dragoman.doctor import Orders, examine
from dragoman.doctor.check import CHECKS, GROUPS, Level
from dragoman.doctor.probes import FORMS
from dragoman.doctor.report import MARKS, Report, counted
from dragoman.doctor.run import unknown

from ..session_options import HEADER, Url, completed, headers_of
from ..waiting import NOTICE_DELAY_SECONDS

SOUND, BROKEN, NOBODY = 0, 1, 3
"""Exit codes; 2 is a mistake in the command itself, as everywhere."""
INTERFACES = tuple(f"{binding}-{version}" for binding, version in FORMS)
COLOURS = {"pass": "green", "fail": "bold red", "warning": "yellow", "skipped": "dim"}


def doctor(
    url: Url,
    /,
    *,
    text: Annotated[
        str, Parameter(help="A message that the agent completes. [default: a skill's example]")
    ] = "",
    slow_text: Annotated[
        str,
        Parameter(help="A message that keeps the agent busy for some seconds, for more checks."),
    ] = "",
    ask_text: Annotated[
        str, Parameter(help="A message that makes the agent ask a question, for more checks.")
    ] = "",
    only: Annotated[
        tuple[str, ...], Parameter(help="Run only these checks: ids or patterns like 'card.*'.")
    ] = (),
    skip: Annotated[tuple[str, ...], Parameter(help="Skip these checks.")] = (),
    on: Annotated[
        tuple[str, ...],
        Parameter(help="Check only these interfaces: jsonrpc-1.0, rest-0.3, jsonrpc-0.1 ..."),
    ] = (),
    header: Annotated[tuple[str, ...], HEADER] = (),
    ca: Annotated[
        Path | None, Parameter(help="File (PEM) with the certificate authority to trust.")
    ] = (None),
    allow_private: Annotated[
        bool, Parameter(help="Allow addresses on the card that are in private networks.")
    ] = False,
    timeout: Annotated[float, Parameter(help="Seconds for one request.")] = 10.0,
    strict: Annotated[bool, Parameter(help="Count warnings as failures in the exit code.")] = False,
    verbose: Annotated[bool, Parameter(name=("--verbose", "-v"), help="Show every check.")] = False,
    as_json: Annotated[
        bool, Parameter(name=("--json", "-j"), help="Print everything as JSON.")
    ] = False,
    junit: Annotated[Path | None, Parameter(help="Also write a JUnit report to this file.")] = None,
) -> None:
    """Check any A2A agent against the specification.

    Exit code 0: no mandatory rule is broken; 1: one is; 2: the command line is invalid;
    3: no agent was found at this address, or it asks for credentials.
    """
    if odd := unknown((*only, *skip)):
        groups = ", ".join(f"{group}.*" for group in GROUPS)
        raise ConfigError(f"No check fits {odd[0]!r}. There are {groups}; --verbose names each.")
    if strange := [name for name in on if name not in INTERFACES]:
        raise ConfigError(f"--on takes {', '.join(INTERFACES)}, not {strange[0]!r}.")
    if not 0 < timeout <= 300:
        raise ConfigError("--timeout must be more than 0 and at most 300 seconds.")
    if ca is not None and not ca.is_file():
        raise ConfigError(f"There is no file {ca} (--ca).")
    url = completed(url)
    if not re.match(r"https?://", url):
        raise ConfigError("The address must be one of http or https.")
    orders = Orders(
        text=text,
        slow_text=slow_text,
        ask_text=ask_text,
        only=only,
        skip=skip,
        on=on,
        ca=str(ca or ""),
        headers=headers_of(header),
        timeout=timeout,
        allow_private=allow_private,
    )
    notice = Timer(NOTICE_DELAY_SECONDS, _print_progress, (url, timeout))
    notice.start()
    try:
        report = examine(url, orders)
    finally:
        notice.cancel()
    if junit is not None:
        junit.write_text(report.as_junit(), "utf-8")
    if as_json:
        print(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        show(report, verbose=verbose)
    if not report.reached:
        sys.exit(NOBODY)
    warned = any(result.outcome == "warning" for result in report.results)
    sys.exit(BROKEN if report.broken or (strict and warned) else SOUND)


def _print_progress(url: str, timeout: float) -> None:
    line = f"Checking {printable(url)}; each request may take up to {timeout:g} s"
    print(line, file=sys.stderr, flush=True)


def show(report: Report, *, verbose: bool) -> None:
    """Prints the findings as a table, with colours on a terminal only."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    if report.reached:
        console.print(f"[bold]{escape(report.agent)}[/bold] at {escape(report.url)}")
    elif report.locked:
        name = f"{escape(report.agent)} at " if report.agent else ""
        console.print(f"{name}{escape(report.url)} {escape(report.locked)}")
    else:
        console.print(f"No A2A agent at {escape(report.url)}: {escape(report.why_not)}")
    for line in report.left_out:
        console.print(f"  left out: {escape(line)}")
    card_read = bool(report.locked and report.agent)
    if not report.reached and not card_read and not verbose:  # the checks would only repeat this
        if not report.locked:
            console.print("Is it running, and is the address right? --verbose shows every check.")
        return
    for place in report.places:
        found = [result for result in report.results if result.on == place]
        count = counted(found)
        console.print(
            f"\n[bold]{place}[/bold]  {count.passed} ok, {count.failed} failed, "
            f"{count.warned} warnings, {count.skipped} skipped"
        )
        for result in found:
            if result.outcome in ("pass", "skipped") and not verbose:
                continue
            colour = COLOURS[result.outcome]
            mark = f"[{colour}]{MARKS[result.outcome]:4}[/{colour}]"
            level = result.check.level.value
            console.print(f"  {mark} {result.id:24} {level:6} {escape(result.check.says)}")
            if result.outcome == "pass":
                continue
            console.print(f"       {escape(result.why)}  [dim]({escape(result.check.spec)})[/dim]")
            if result.sent:
                console.print(f"       [dim]sent {escape(result.sent[:160])}[/dim]")
                console.print(f"       [dim]came {escape(result.came[:160])}[/dim]")
    console.print(f"\n{_sum(report)}")


def _sum(report: Report) -> str:
    score = report.score()
    told = ", ".join(
        f"{level.value} {score['levels'][level.value]['percent']:g} %" for level in Level
    )
    total = score["total"]
    return (
        f"Score {total['percent']:g} %  ({told})  "
        f"{total['passed']} ok, {total['failed']} failed, {total['warned']} warnings, "
        f"{total['skipped']} skipped; {len(CHECKS)} kinds of checks, {report.requests} requests"
    )
