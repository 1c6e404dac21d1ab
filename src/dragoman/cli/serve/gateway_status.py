"""`dragoman gateway status`: the state of the agents behind a running gateway."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from dragoman.gateway.status import PATH

from ..formatting import line
from ..server_document import AllowPrivate, Authority, read_from_server
from ..store_access import AsJson

HERE = "http://127.0.0.1:8420"
_COLOURS = {"healthy": "green", "half-open": "yellow", "open": "red"}


class _Address(Struct, rename="camel"):
    address: str
    state: str
    in_flight: int = 0
    latency: float = 0.0
    last_seen: str = ""
    last_error: str = ""


class _Agent(Struct, rename="camel"):
    name: str
    addresses: list[_Address]
    dialect: str = ""
    queued: int = 0
    fallbacks: list[str] = []


class _Status(Struct):
    agents: list[_Agent]


def status(
    *,
    url: Annotated[str, Parameter(help="Where the gateway listens.")] = HERE,
    ca: Authority = None,
    allow_private: AllowPrivate = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of the agents behind a running gateway: their addresses, whether they can be
    reached, their load, and their last errors. The exit code is 1 if an agent cannot be reached at
    any of its addresses."""
    body, found = read_from_server(
        url, PATH, _Status, "the status of a gateway", ca=ca, allow_private=allow_private
    )
    if as_json:
        print(body.decode(), flush=True)
    else:
        _print(found)
    if any(all(each.state == "open" for each in agent.addresses) for agent in found.agents):
        raise SystemExit(1)


def _print(found: _Status) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if not found.agents:
        console.print("All agents of this server are in files; none is elsewhere.")
    for agent in found.agents:
        about = [agent.dialect or "not reached yet", f"{agent.queued} queued"]
        if agent.fallbacks:
            about.append(f"then {', '.join(agent.fallbacks)}")
        console.print(f"[bold]{escape(line(agent.name))}[/bold]  {escape(line(', '.join(about)))}")
        for each in agent.addresses:
            colour = _COLOURS.get(each.state, "cyan")
            words = [f"{each.in_flight} in flight", f"{each.latency * 1000:.0f} ms"]
            if each.last_seen:
                words.append(f"last seen {each.last_seen}")
            console.print(
                f"  [{colour}]{escape(line(each.state))}[/{colour}]  {escape(line(each.address))}  "
                f"{escape(line(', '.join(words)))}"
            )
            if each.last_error and each.state != "healthy":
                console.print(f"    {escape(line(each.last_error))}")
