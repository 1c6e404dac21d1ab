"""QwenPaw, a client of others, dials our server; A2A callers see normal tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman import State
from dragoman.client import connect
from dragoman.core.events import ArtifactChunk, Stamped
from interop.peers import QWENPAW
from waiting import until
from xiaoyi.links import AGENT, Gateway, gateway

SCRIPT = Path(__file__).parent / "peers" / "qwenpaw_agent.py"


@asynccontextmanager
async def qwenpaw(door: Gateway, folder: Path) -> AsyncIterator[None]:
    """QwenPaw in a process of its own, which has dialled in."""
    python, *flags = QWENPAW.start(await asyncio.to_thread(QWENPAW.ready))
    said = (door.link_url, door.ak, door.sk, AGENT, str(folder / "media"))
    with (folder / "qwenpaw.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(python, *flags, str(SCRIPT), *said),
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(folder), "QWENPAW_WORKING_DIR": str(folder)},
        )
    try:
        await door.appears()
        yield
    finally:
        process.kill()
        await process.wait()


@pytest.mark.slow  # starts a process
async def test_qwenpaw_answers_streams_and_is_canceled_and_cleared(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(300),
        gateway() as door,
        qwenpaw(door, tmp_path),
        connect(f"{door.url}/agents/{AGENT}", dialect="a2a-1.0") as agent,
    ):
        task = await agent.send("one two three")
        assert (task.state, task.text.split()) == (State.COMPLETED, ["one", "two", "three"])
        again = await agent.get(task)
        assert (again.state, again.text) == (task.state, task.text)

        pieces = [
            event.event.artifact.text
            async for event in agent.stream("four five", context_id=task.context_id)
            if isinstance(event, Stamped) and isinstance(event.event, ArtifactChunk)
        ]
        assert [piece.strip() for piece in pieces if piece.strip()] == ["four", "five"]

        waiting = await agent.send("wait", wait=False, context_id=task.context_id)

        async def begun() -> bool:
            return (await agent.get(waiting)).text == "begun"

        await until(begun)
        assert (await agent.cancel(waiting)).state is State.CANCELED

        cleared = await agent.invoke("xiaoyi.link/clearContext", contextId=task.context_id)
        assert cleared == {"status": {"state": "cleared"}}
        assert (await agent.send("still there")).text.split() == ["still", "there"]
