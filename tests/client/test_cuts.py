"""Streams survive: every connection is cut at random, and nothing is lost or told twice."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from client.cutter import cutting
from client.our_server import NAMES, QUICK, OurServer, open_server
from dragoman import connect
from dragoman.client import RemoteAgent
from dragoman.core.errors import PeerUnreachable
from dragoman.core.events import ArtifactChunk, Snapshot, Stamped
from dragoman.core.model import State, Task

FULL = bool(os.environ.get("DRAGOMAN_FULL"))
CUTS = 40 if FULL else 6
"""In each combination of dialect and cursor."""
CHUNKS = 40


def plain(task: Task, dialect: str) -> Task:
    """What this dialect can tell of a task: 0.1 has no ids in its history, a2a-go no history."""
    if dialect in ("a2a-0.1", "a2a-go"):
        return replace(task, history=(), context_id="", metadata=None)
    return task


async def one_story(agent: RemoteAgent, direct: RemoteAgent, *, numbered: bool) -> int:
    """A stream through the cutter, compared with the task on the server. How many connections."""
    events = agent.stream(str(CHUNKS), skill="story")
    told = [event async for event in events]
    assert all(isinstance(event, Stamped) for event in told)
    stamps = [event for event in told if isinstance(event, Stamped)]
    if numbered:
        assert [stamp.seq for stamp in stamps] == list(range(1, len(stamps) + 1))
    text = ""
    for number, stamp in enumerate(stamps):
        if isinstance(stamp.event, ArtifactChunk):
            text += stamp.event.artifact.text
        elif isinstance(stamp.event, Snapshot) and not number:
            text = stamp.event.task.text  # the stream may begin when something is there already
    assert text == "".join(f"{number} " for number in range(CHUNKS))
    task = events.task
    assert task is not None
    assert task.state is State.COMPLETED
    there = await direct.get(task.id, history_length=100)
    assert plain(task, agent.dialect) == plain(there, agent.dialect)
    return events.connections


@pytest.mark.parametrize("cursor", [True, False], ids=["cursor", "no-cursor"])
@pytest.mark.parametrize("dialect", NAMES)
async def test_every_event_once_in_order_through_cuts(dialect: str, cursor: bool) -> None:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        served: OurServer = await enter(open_server())
        seed = len(dialect) * 10 + cursor
        http, http_port = await enter(cutting(served.port, seed, strip=not cursor))
        if dialect == "iat":
            # Over HTTP/2 a task that is done before its first event is read comes in frames of
            # 16 KiB, and the reader sees nothing of a frame that is cut.
            http.most = 40_000
        grpc, grpc_port = await enter(cutting(served.app.ports["grpc"], seed))
        card = served.card(cursor=cursor, http=http_port, grpc=grpc_port)
        agent = await enter(served.connect(dialect, port=http_port, card=card))
        direct = await enter(served.connect(dialect))
        for _ in range(CUTS * 3):
            # 0.1 numbers artifacts anew in every stream, so there the task is compared always.
            numbered = cursor and dialect not in ("a2a-0.1", "a2a-go")
            await one_story(agent, direct, numbered=numbered)
            if http.cuts + grpc.cuts >= CUTS:
                return
        raise AssertionError(f"only {http.cuts + grpc.cuts} cuts")


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-0.3-rest"])
async def test_a_proxy_that_takes_the_numbers_away_is_noticed(dialect: str) -> None:
    """The card declares a cursor, but what stands between does not let it through."""
    async with (
        open_server() as served,
        cutting(served.port, 7, strip=True) as (cutter, port),
        connect(
            f"http://127.0.0.1:{port}",
            card=served.card(http=port),
            dialect=dialect,
            limits=QUICK,
        ) as agent,
        connect(served.url, dialect=dialect) as direct,
    ):
        while cutter.cuts < 5:
            await one_story(agent, direct, numbered=False)


async def test_the_cutter_cuts() -> None:
    """Without a second connection a stream breaks: the tests above can fail."""
    async with open_server() as served, cutting(served.port, 1) as (cutter, port):
        limits = replace(QUICK, patience=0, retries=0)
        card = served.card(http=port)
        broken = 0
        for _ in range(5):
            async with connect(
                f"http://127.0.0.1:{port}", card=card, dialect="a2a-1.0", limits=limits
            ) as agent:
                try:
                    await agent.stream(str(CHUNKS), skill="story").result()
                except PeerUnreachable:
                    broken += 1
        assert cutter.cuts >= broken > 0
