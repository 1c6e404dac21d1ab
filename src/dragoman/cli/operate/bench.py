"""`dragoman bench`: measures how fast an agent responds, within limits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from msgspec import Struct
from msgspec.structs import replace

from dragoman.client import ClientLimits, RemoteAgent
from dragoman.client.auth.origins import is_loopback
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.model import State

from .. import json_output
from ..session_options import DONE, NOT_DONE, SessionOptions, Url, agent_at, completed, run
from ..waiting import Wait

MOST = {"count": 1_000_000, "seconds": 3600, "connections": 1000}


class BenchFigures(Struct):
    """The results of a measurement."""

    times: list[float] = []
    firsts: list[float] = []
    """The times to the first event of streams."""
    errors: Counter[str] = msgspec.field(default_factory=Counter)


def bench(
    url: Url,
    text: Annotated[str, Parameter(help="Text of every message.")] = "hello",
    /,
    *,
    skill: Annotated[str, Parameter(help="Id of the skill.")] = "",
    count: Annotated[int, Parameter(help="Send at most this many messages.")] = 1000,
    seconds: Annotated[float, Parameter(help="Stop after this many seconds.")] = 10.0,
    connections: Annotated[int, Parameter(help="Send this many messages concurrently.")] = 8,
    stream: Annotated[bool, Parameter(help="Stream the answers.")] = False,
    anywhere: Annotated[
        bool, Parameter(help="Allow agents on other machines; use it only for your own.")
    ] = False,
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """Measure how fast an agent responds. Only agents on this machine, unless --anywhere is given.

    Exit code 0: every message was answered; 1: some were not; 2: the command is wrong; 3: the
    agent cannot be reached; 130: Ctrl-C.
    """
    for name, value in (("count", count), ("seconds", seconds), ("connections", connections)):
        if not 0 < value <= MOST[name]:
            raise ConfigError(f"--{name} must be more than 0 and at most {MOST[name]:,}.")
    if not anywhere and not is_loopback(completed(url)):
        raise ConfigError("This agent is on another machine. If it is yours, add --anywhere.")

    async def work() -> int:
        limits = ClientLimits(retries=0, connections=connections)
        wait = Wait(url, response_timeout=way.timeout)
        async with agent_at(url, way, limits=limits, wait=wait) as agent:
            wait.rest()
            if anywhere:
                found, taken = await _measure(agent)
            else:
                near = _near(agent.card)
                async with agent_at(url, way, card=near, limits=limits) as agent:
                    found, taken = await _measure(agent)
        told = _told(found, taken, connections)
        if way.json:
            json_output.show(told)
        else:
            _show(told)
        return NOT_DONE if found.errors or not found.times else DONE

    async def _measure(agent: RemoteAgent) -> tuple[BenchFigures, float]:
        found, left = BenchFigures(), iter(range(count))
        began = time.monotonic()

        async def one() -> None:
            for _ in left:
                if time.monotonic() - began >= seconds:
                    return
                await _ask(agent, text, skill, found, stream=stream)

        try:
            async with asyncio.timeout(seconds + 5), asyncio.TaskGroup() as group:
                for _ in range(connections):
                    group.create_task(one())
        except TimeoutError:
            found.errors["too_slow"] += 1
        return found, time.monotonic() - began

    run(work, url, as_json=way.json)


def _near(card: Card) -> Card:
    """Returns the card without addresses on other machines."""
    near = tuple(each for each in card.interfaces if is_loopback(_web(each.url)))
    if not near:
        raise ConfigError("Its card names other machines only. If they are yours, add --anywhere.")
    return replace(card, interfaces=near)


def _web(url: str) -> str:
    """Returns the address with a scheme, which gRPC addresses may lack."""
    return url if "://" in url else f"http://{url}"


async def _ask(
    agent: RemoteAgent, text: str, skill: str, found: BenchFigures, *, stream: bool
) -> None:
    began = time.perf_counter()
    try:
        if stream:
            events = agent.stream(text, skill=skill)
            await anext(events)
            first = time.perf_counter() - began
            answer = await events.result()
        else:
            first, answer = 0.0, await agent.send(text, skill=skill)
    except DragomanError as exc:
        found.errors[exc.reason] += 1
        return
    if answer.state is not State.COMPLETED:
        found.errors[answer.state.value] += 1
        return
    found.times.append(time.perf_counter() - began)
    if stream:
        found.firsts.append(first)


def _told(found: BenchFigures, taken: float, connections: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "answered": len(found.times),
        "seconds": round(taken, 3),
        "rate": round(len(found.times) / taken, 1),
        "connections": connections,
        "latency_ms": _spread(found.times),
        "errors": dict(found.errors),
    }
    return told | ({"first_event_ms": _spread(found.firsts)} if found.firsts else {})


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    if not ordered:
        return {}
    last = len(ordered) - 1
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[round(last * part)] * 1000, 2) for name, part in at.items()}


def _show(told: dict[str, Any]) -> None:
    print(
        f"{told['answered']} answered in {told['seconds']:.1f} s: {told['rate']:g} a second, "
        f"{told['connections']} at a time"
    )
    for name, label in (("latency_ms", "latency"), ("first_event_ms", "first event")):
        if spread := told.get(name):
            print(f"{label:12}" + "  ".join(f"{k} {v:g} ms" for k, v in spread.items()))
    for reason, number in told["errors"].items():
        print(f"{number} x {reason}")
