"""The guide for those who come from a2a-sdk: both of its agents say the same."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.servers import wait_for
from dragoman import State, Task, connect
from dragoman.client import RemoteAgent
from dragoman.server.agent_loader import load_agent
from dragoman.testing import served
from interop.peers import A2A_SDK
from pages import DOCS, blocks
from ports import own_port

pytestmark = pytest.mark.slow  # starts a server of the SDK
FILES = {block.file: block.text for block in blocks(DOCS / "guide" / "from-a2a-sdk.md", "python")}


async def talk(agent: RemoteAgent) -> None:
    assert (agent.card.name, [skill.id for skill in agent.card.skills]) == ("Travel desk", ["plan"])
    asked = await agent.send("A trip, please")
    assert isinstance(asked, Task)
    assert asked.state is State.INPUT_REQUIRED
    assert asked.status.message is not None
    assert asked.status.message.text == "Which city?"
    events = agent.stream("Kyoto", task=asked)
    assert [event async for event in events]
    assert events.task is not None
    assert (events.task.state, events.task.text) == (State.COMPLETED, "Three days in Kyoto")


@pytest.fixture
def sdk_agent(tmp_path: Path) -> Iterator[str]:
    """The address of the agent that the SDK serves."""
    port = own_port()
    script, log = tmp_path / "desk_sdk.py", tmp_path / "log"
    script.write_text(FILES["desk_sdk.py"].replace("9999", str(port)))
    with log.open("w") as output:
        process = subprocess.Popen(
            [*A2A_SDK.start(A2A_SDK.ready()), str(script)], stdout=output, stderr=output
        )
    try:
        wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def test_the_agent_of_the_sdk(sdk_agent: str) -> None:
    async with connect(sdk_agent) as agent:
        await talk(agent)


async def test_ours(tmp_path: Path) -> None:
    file = tmp_path / "desk.py"
    file.write_text(FILES["desk.py"])
    async with served(load_agent(str(file))) as url, connect(url) as agent:
        await talk(agent)


def ask(url: str, folder: Path) -> str:
    """What the SDK's client of the guide prints."""
    (folder / "ask_sdk.py").write_text(FILES["ask_sdk.py"])
    done = subprocess.run(
        [*A2A_SDK.start(A2A_SDK.ready()), str(folder / "ask_sdk.py"), url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_the_client_of_the_sdk_and_our_agent(tmp_path: Path) -> None:
    file = tmp_path / "desk.py"
    file.write_text(FILES["desk.py"])
    async with served(load_agent(str(file))) as url:
        assert await asyncio.to_thread(ask, url, tmp_path) == "Three days in Kyoto"


def test_the_client_and_the_agent_of_the_sdk(sdk_agent: str, tmp_path: Path) -> None:
    assert ask(sdk_agent, tmp_path) == "Three days in Kyoto"
