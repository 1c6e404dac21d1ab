"""`dragoman lite serve` in a process of its own, killed in the middle of a conversation: tasks go
on, and nothing is lost or answered twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.run import ENVIRON, dragoman
from counts import count
from lite.room import ROOM, Member, member
from waiting import until, within

pytestmark = pytest.mark.slow  # starts processes
KILLS = count(1, 3, 20)
SOURCE = """
import asyncio
from pathlib import Path
from dragoman import Agent, Turn

agent = Agent("Desk", description="Answers in rooms.")

@agent.skill("talk")
async def talk(turn: Turn) -> str:
    if turn.text == "ask":
        return f"You said {await turn.ask('Which city?')}."
    await turn.say("Started.")
    if not Path("go").exists():
        await asyncio.Event().wait()  # until it is killed
    return turn.text.upper()
"""


@asynccontextmanager
async def living(folder: Path, hub: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command; killed when the block ends."""
    (folder / "desk.py").write_text(SOURCE)
    with (folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "lite", "serve", "desk.py"),
            *("--channel", "loopback", "--server", hub, "--user", "desk", "--room", ROOM),
            cwd=folder,
            env={**ENVIRON, "PATH": os.environ["PATH"]},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def kill(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def arrives(anna: Member) -> None:
    """Waits until the agent is in the room."""

    async def there() -> bool:
        before = len(anna.of_type("card"))
        await anna.say("[A2A:discover]")
        return bool(await within(2, lambda: len(anna.of_type("card")) > before))

    await until(there)


@pytest.fixture
def hub(tmp_path: Path) -> str:
    return f"kill-{os.getpid()}-{abs(hash(tmp_path)) % 100_000}"


async def test_a_killed_agent_goes_on_and_answers_once(tmp_path: Path, hub: str) -> None:
    async with member(hub, "anna", shared=True) as anna:
        for number in range(KILLS):
            task = f"t{number}"
            (tmp_path / "go").unlink(missing_ok=True)
            async with living(tmp_path, hub) as process:
                await arrives(anna)
                await anna.say(f"[A2A:task id={task}]\nnumber {number}")
                await anna.hears_state("working", task)
                await kill(process)
            # Said while nobody is there; heard after the restart.
            await anna.say(f"@desk [A2A:task id=late{number}]\nlate {number}")
            (tmp_path / "go").touch()
            async with living(tmp_path, hub):
                assert (await anna.hears("result", task=task)).body == f"NUMBER {number}"
                late = await anna.hears("result", task=f"late{number}")
                assert late.body == f"LATE {number}"
        told = [(each.type, each.task) for each in anna.markers if each.type in ("ack", "result")]
        tasks = [f"{kind}{number}" for number in range(KILLS) for kind in ("t", "late")]
        assert sorted(told) == sorted((kind, task) for kind in ("ack", "result") for task in tasks)


async def test_a_question_is_answered_after_a_restart(tmp_path: Path, hub: str) -> None:
    async with member(hub, "anna", shared=True) as anna:
        async with living(tmp_path, hub) as process:
            await arrives(anna)
            await anna.say("[A2A:task id=t1]\nask")
            await anna.hears_state("input-required", "t1")
            await kill(process)
        await anna.say("[A2A:task id=t1]\nKyoto")
        async with living(tmp_path, hub):
            assert (await anna.hears("result", task="t1")).body == "You said Kyoto."
        asked = [each for each in anna.of_type("status") if each.task == "t1"]
        assert len(asked) == 1


async def test_it_stops_at_once_when_it_is_told_to(tmp_path: Path, hub: str) -> None:
    async with member(hub, "anna", shared=True) as anna, living(tmp_path, hub) as process:
        await arrives(anna)
        process.send_signal(signal.SIGTERM)
        await process.wait()
        assert process.returncode == 0


def test_a_channel_that_does_not_exist_is_a_mistake_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(SOURCE)
    done = dragoman("lite", "serve", "desk.py", "--channel", "pigeon", cwd=tmp_path)
    assert done.returncode == 2
    assert "There is no channel 'pigeon'" in done.stderr
    done = dragoman("lite", "serve", "desk.py", "--channel", "matrix", cwd=tmp_path)
    assert done.returncode == 2
    assert "homeserver" in done.stderr


async def test_send_and_chat_talk_to_an_agent_in_a_room(tmp_path: Path, hub: str) -> None:
    (tmp_path / "go").touch()
    async with member(hub, "anna", shared=True) as anna, living(tmp_path, hub):
        await arrives(anna)
        address = f"lite+loopback://{hub}/{ROOM}?agent=desk"
        sent = await asyncio.to_thread(dragoman, "send", address, "hello", cwd=tmp_path)
        assert sent.returncode == 0, sent.stderr
        assert "HELLO" in sent.stdout
        chat = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "chat", address),
            cwd=tmp_path,
            env={**ENVIRON, "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        shown, complaints = await chat.communicate(b"ask\nKyoto\n/quit\n")
        assert b"Which city?" in shown, complaints
        assert b"You said Kyoto." in shown, complaints
