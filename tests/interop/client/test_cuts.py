"""Streams survive the servers of others: every connection is cut at random.

They have no cursor. So nothing is told twice, nothing is lost that the server still tells, and the
task in our hands equals theirs.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from client.cutter import cutting
from client.our_server import QUICK
from dragoman import State, connect
from dragoman.client import RemoteAgent
from dragoman.core.card import Card
from dragoman.core.errors import PeerUnreachable
from dragoman.core.events import ArtifactChunk, Snapshot, Stamped
from interop.client.operations import counted, joined, untimed
from interop.client.servers import ROWS, Row, Started
from interop.peers import PeerUnavailable

FULL = bool(os.environ.get("DRAGOMAN_FULL"))
CUTS = 20 if FULL else 3
"""In each of 17 rows."""
CHUNKS = 40
pytestmark = pytest.mark.slow


def through(card: Card, ports: dict[int, int]) -> Card:
    """The card with other ports."""

    def moved(url: str) -> str:
        for old, new in ports.items():
            url = url.replace(f":{old}", f":{new}")
        return url

    return replace(
        card, interfaces=tuple(replace(each, url=moved(each.url)) for each in card.interfaces)
    )


async def one_count(agent: RemoteAgent, direct: RemoteAgent) -> bool:
    """A stream through the cutter, compared with the task on the server; whether it began.

    A send that broke before it was answered is not sent again: nobody could tell whether it
    arrived. That is told, and not what is tried here.
    """
    events = agent.stream(f"count {CHUNKS}")
    told: list[Stamped] = []
    try:
        async for event in events:
            assert isinstance(event, Stamped)
            told.append(event)
    except PeerUnreachable:
        assert not told, "a stream that had begun was given up"
        return False
    task = events.task
    assert task is not None
    assert task.state is State.COMPLETED
    there = joined(await direct.get(task.id, history_length=1000))
    assert untimed(task) == untimed(there)
    if there.status.at and task.status.at:
        assert task == there
    # What was told of the text, without what is told anew from its beginning (a server that wrote
    # something into its task that it never told).
    text = ""
    for stamp in told:
        if isinstance(stamp.event, Snapshot):
            text = stamp.event.task.text
        elif isinstance(stamp.event, ArtifactChunk) and stamp.event.artifact.artifact_id in MADE:
            text += stamp.event.artifact.text
    assert text == there.text
    if agent.dialect.startswith("a2a-1.0"):
        assert text == counted(CHUNKS)
    return True


MADE = ("result", "artifact-0")
"""What the text is called; python-a2a has only numbers."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_nothing_twice_and_the_task_is_theirs(started: Started, row: Row) -> None:
    try:
        there = started[row.server]
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        direct = await enter(connect(there.url, dialect=row.dialect, limits=QUICK))
        cutters, ports = [], {}
        for number, port in enumerate(there.ports.values()):
            cutter, own = await enter(cutting(port, len(row.name) + number))
            # python-a2a's whole stream is a few hundred bytes.
            cutter.least, cutter.most = (200, 1600) if row.server.dialect else (300, 12000)
            cutters.append(cutter)
            ports[port] = own
        card = through(direct.card, ports)
        address = f"http://127.0.0.1:{ports[there.ports['JSONRPC']]}"
        agent = await enter(connect(address, card=card, dialect=row.dialect, limits=QUICK))
        begun = 0
        for _ in range(CUTS * 6):
            begun += await one_count(agent, direct)
            if begun and sum(cutter.cuts for cutter in cutters) >= CUTS:
                return
        raise AssertionError(f"only {sum(c.cuts for c in cutters)} cuts, {begun} streams")
