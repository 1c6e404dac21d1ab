"""What agno's RemoteAgent does over A2A, by its default REST: `agno_client.py FOLDER URL`."""

from __future__ import annotations

import asyncio
import os
import sys

os.environ["AGNO_TELEMETRY"] = "false"  # nothing leaves this machine
verdicts_to, sys.stdout = sys.stdout, sys.stderr  # it logs where the verdicts go

from agno.agent import RemoteAgent  # noqa: E402
from agno.run.agent import RunCompletedEvent, RunContentEvent  # noqa: E402

folder, url = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import Cannot, judge  # noqa: E402


def desk() -> RemoteAgent:
    return RemoteAgent(base_url=url, agent_id="desk", protocol="a2a", timeout=60)


async def send(_: None) -> None:
    assert (await desk().arun("hello")).content == "HELLO"


async def stream(_: None) -> None:
    events = [event async for event in desk().arun("write one two", stream=True)]
    pieces = [event.content for event in events if isinstance(event, RunContentEvent)]
    assert pieces == ["one ", "two "], events
    assert isinstance(events[-1], RunCompletedEvent), events
    assert events[-1].content == "one two ", events


async def answer(_: None) -> None:
    asked = await desk().arun("trip", session_id="a-conversation")
    assert asked.content == "Which city?", asked
    again = await desk().arun("Kyoto", session_id="a-conversation")
    assert again.content == "KYOTO", again  # a new task in the same context
    raise Cannot("it tells the question, but none of its messages names the task that it answers")


async def answer_streamed(_: None) -> None:
    events = [event async for event in desk().arun("trip", stream=True)]
    assert isinstance(events[-1], RunCompletedEvent), events
    raise Cannot("it shows no status message of a stream, and names no task that it answers")


async def nothing() -> None:
    """Every question connects by itself."""


asyncio.run(judge([send, stream, answer, answer_streamed], nothing, verdicts_to))
