"""`dragoman xiaoyi status`: the state of the links, as their processes report it in the store."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from dragoman.core.model import Json
from dragoman.store import Store
from dragoman.store.clock import wall_clock
from dragoman.store.link_status import LinkState, LinkStatus
from dragoman.xiaoyi.link_figures import RENEWED

from ..formatting import line
from ..json_output import show
from ..store_access import AsJson, StoreUrl, opened, shown_time

LOST = "lost"
"""The state of a link whose process does not report any more: it was killed."""
_SILENT = int(3 * RENEWED * 1000)
_COLOURS = {LinkState.OPEN.value: "green", LinkState.DOWN.value: "yellow", LOST: "red"}
_COLOURS[LinkState.ENDED.value] = "red"
_SIDES = {"agent": "to", "server": "at"}


def status(
    *,
    agent_id: Annotated[
        str | None, Parameter(help="Only the links of this agent. [default: all]")
    ] = None,
    as_json: AsJson = False,
    store: StoreUrl = None,
) -> None:
    """Show the state of all XiaoYi links: of agents that dial out, and of agents that dialled in.

    It is read from the store of the process that has the links. The exit code is 1 if an agent has
    no open link.
    """

    async def found(kept: Store) -> list[LinkStatus]:
        return await kept.link_status.all()

    known = [each for each in opened(store, found) if agent_id in (None, each.agent_id)]
    now = wall_clock()
    if as_json:
        for each in known:
            show(_fields(each, now))
    else:
        _print(known, now)
    states = defaultdict(set)
    for each in known:
        states[each.side, each.agent_id].add(_state(each, now))
    if any(LinkState.OPEN not in each for each in states.values()):
        raise SystemExit(1)


def _state(status: LinkStatus, now: int) -> str:
    runs = status.state in (LinkState.OPEN, LinkState.DOWN)
    return LOST if runs and now - status.reported_at > _SILENT else status.state.value


def _fields(status: LinkStatus, now: int) -> dict[str, Json]:
    return {
        "side": status.side,
        "agentId": status.agent_id,
        "server": status.server,
        "host": status.host,
        "state": _state(status, now),
        "since": status.since,
        "links": status.links,
        "reconnects": status.reconnects,
        "failures": status.failures,
        "latency": status.latency or None,
        "lastError": status.last_error or None,
        "failedAt": status.failed_at or None,
        "reportedAt": status.reported_at,
    }


def _print(known: list[LinkStatus], now: int) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if not known:
        console.print("There are no links.")
    for each in known:
        state = _state(each, now)
        since = each.reported_at if state == LOST else each.since
        words = [f"since {shown_time(since)}", f"{each.reconnects} reconnects"]
        if each.links > 1:
            words.append(f"{each.links} links")
        if each.latency:
            words.append(f"{each.latency * 1000:.0f} ms")
        words.append(f"on {each.host}")
        colour = _COLOURS.get(state, "cyan")
        console.print(
            f"[bold]{escape(line(each.agent_id))}[/bold]  {_SIDES[each.side]} "
            f"{escape(line(each.server))}  [{colour}]{state}[/{colour}]  "
            f"{escape(line(', '.join(words)))}"
        )
        if each.last_error:
            last = f"{shown_time(each.failed_at)}  {each.last_error}"
            console.print(f"    last error {escape(line(last, 400))}")
