"""`dragoman replicas`: the processes that serve from one store, from a running server or the
store."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dragoman.server.services.replica import PATH, queues_of, replicas_out
from dragoman.store import Store
from dragoman.store.clock import wall_clock
from dragoman.store.replicas import ReplicaReport, ReplicaState

from ..formatting import line
from ..server_document import AllowPrivate, Authority, read_from_server
from ..store_access import AsJson, StoreUrl, opened

_COLOURS = {
    ReplicaState.ALIVE: "green",
    ReplicaState.STOPPING: "yellow",
    ReplicaState.LOST: "red",
}
_WORDS = ("replica", "state", "up", "agents")
_FIGURES = ("runs", "waits", "streams", "links", "req/s", "ev/s", "err/s")
WIDE = 200
"""The width of a table that no person reads."""


class _Answer(Struct):
    replicas: list[ReplicaReport]
    queues: dict[str, int]


def replicas(
    *,
    url: Annotated[
        str, Parameter(help="The address of a running server. [default: use the store]")
    ] = "",
    ca: Authority = None,
    allow_private: AllowPrivate = False,
    as_json: AsJson = False,
    store: StoreUrl = None,
) -> None:
    """Show the processes that serve from one store: whether they are alive, what each of them
    holds, and how busy it is; and how many tasks wait for a worker. The exit code is 1 if one is
    lost."""
    if url:
        what = "the list of the replicas of a server"
        body, found = read_from_server(url, PATH, _Answer, what, ca=ca, allow_private=allow_private)
    else:
        found = opened(store, _look)
        body = msgspec.json.encode(replicas_out(found.replicas, found.queues))
    if as_json:
        print(body.decode(), flush=True)
    else:
        _print(found)
    if any(each.state is ReplicaState.LOST for each in found.replicas):
        raise SystemExit(1)


async def _look(kept: Store) -> _Answer:
    found = await kept.replicas.all()
    return _Answer(found, await queues_of(kept, found))


def _print(found: _Answer) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDE)
    if not found.replicas:
        console.print("No process serves from this store.")
        return
    table = Table(box=None, pad_edge=False)
    for name in _WORDS:
        table.add_column(name, overflow="fold")
    for name in _FIGURES:
        table.add_column(name, justify="right", no_wrap=True)
    now = wall_clock()
    for each in found.replicas:
        colour = _COLOURS[each.state]
        state = each.state.value
        if each.state is ReplicaState.LOST:
            state += f" {_span(each.silent)} ago"
        figures = (each.running, each.waiting, each.streams, each.links)
        rates = (each.request_rate, each.event_rate, each.error_rate)
        table.add_row(
            escape(line(_name(each))),
            f"[{colour}]{state}[/{colour}]",
            _span(now - each.started_at),
            escape(line(", ".join(each.agents))),
            *map(str, figures),
            *(f"{rate:g}" for rate in rates),
        )
    console.print(table)
    for agent, n in found.queues.items():
        console.print(f"{n} tasks wait for a worker of {escape(line(agent))}.")


def _name(each: ReplicaReport) -> str:
    return f"{each.host}:{each.pid}" + (f"/{each.number}" if each.number else "")


def _span(millis: int) -> str:
    seconds = max(0, millis) // 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
