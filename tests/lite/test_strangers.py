"""Agents in a real IRC room with strangers, at the default penalties of the server: what we write
is read by a parser made from the source text, and what an agent with that parser writes is
understood."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from cli.run import ENVIRON, dragoman
from dragoman import Agent, State, Task, Turn
from dragoman.client import connect
from dragoman.settings import Server, Settings
from dragoman.settings.chat import IrcSettings
from dragoman.testing.served import served
from lite.irc_stranger import Stranger, stranger
from net.chat.ngircd import NEEDS_NGIRCD, Ngircd
from ports import own_port
from waiting import stays, until

pytestmark = [NEEDS_NGIRCD, pytest.mark.slow]  # starts processes, and says things slowly
ROOM = "#town"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    server = Ngircd(tmp_path, penalties=True)
    server.start()
    yield server.port
    server.stop()


def poet() -> Agent:
    agent = Agent("Poet", description="Writes three lines about anything.")

    @agent.skill("write")
    async def write(turn: Turn) -> str:
        if turn.text == "ask":
            return f"You said {await turn.ask('Which city?')}."
        return "\n".join(f"{turn.text}, line {number}" for number in (1, 2, 3))

    return agent


@asynccontextmanager
async def living(port: int, nick: str = "desk", **more: Any) -> AsyncIterator[None]:
    """An agent of ours in the room, at the pace that servers take."""
    channel = IrcSettings(host="127.0.0.1", port=port, tls=False, nick=nick, rooms=(ROOM,), **more)
    server = Server(store="memory:", allow_private=True)
    async with served(poet(), Settings(server=server, channels={"town": channel})):
        yield


def address(port: int, agent: str = "", nick: str = "gate", room: str = ROOM) -> str:
    query = f"?tls=false&agent={agent}" if agent else "?tls=false"
    return f"lite+irc://{nick}@127.0.0.1:{port}/{room.replace('#', '%23')}{query}"


async def test_concurrent_answers_are_not_mixed(port: int) -> None:
    async with stranger(port, "anna", ROOM) as anna, living(port):
        words = ("snow", "rain", "wind", "fog")
        for word in words:
            await anna.say(f"[A2A:task id=t-{word} lines=1]", word)
        await until(lambda: len(anna.of_type("result")) == 4 and len(anna.lines) >= 20)
        told = {each.params["task"]: each.body for each in anna.of_type("result")}
        expected = {
            f"t-{word}": [f"{word}, line {number}" for number in (1, 2, 3)] for word in words
        }
        assert told == expected
        assert {each.params["task"] for each in anna.of_type("ack")} == set(told)


async def test_a_marker_inside_a_body_ends_it_and_nothing_of_it_runs(port: int) -> None:
    async with stranger(port, "anna", ROOM) as anna, living(port):
        await anna.say("[A2A:task id=a lines=3]", "snow", "[A2A:task id=b lines=1]", "rain")
        await until(lambda: anna.of_type("result"))
        await until(lambda: anna.of_type("status"))
        (result,) = anna.of_type("result")
        assert result.params["task"] == "b"
        (refused,) = anna.of_type("status")
        assert (refused.params["task"], refused.params["state"]) == ("a", "rejected")


async def test_the_lines_behind_a_foreign_marker_are_its_body_and_no_request(port: int) -> None:
    async with stranger(port, "anna", ROOM) as anna, living(port):
        await anna.say("[A2A:task id=t1]", "snow")
        await until(lambda: anna.of_type("result") and len(anna.of_type("result")[0].body) == 3)
        assert anna.of_type("result")[0].body[0] == "snow, line 1"
        before = len(anna.lines)
        await anna.say("[A2A:ack task=zz]", "I take it.", "[A2A:status task=zz state=working]")
        await anna.say("Halfway through.", "Nearly there.")
        await stays(lambda: len(anna.lines) == before, 6)


@pytest.mark.parametrize(
    "lines",
    [
        ("[A2A:task id=t1 to=desk]", "snow"),
        ("[A2A:task id=t1]", "@desk snow"),
        ("[A2A:task id=t1]", "desk: snow"),
        ("@desk [A2A:task id=t1]", "snow"),
        ("desk: [A2A:task id=t1]", "snow"),
    ],
    ids=["to", "mention in the body", "nick in the body", "mention before", "nick before"],
)
async def test_a_task_in_a_group_is_heard_however_it_is_addressed(
    port: int, lines: tuple[str, ...]
) -> None:
    async with (
        stranger(port, "anna", ROOM) as anna,
        stranger(port, "bob", ROOM),
        living(port),
    ):
        await anna.say("[A2A:task id=t0]", "for nobody")
        await anna.say(*lines)
        await until(lambda: anna.of_type("result") and len(anna.lines) >= 5)
        (result,) = anna.of_type("result")
        assert result.params["task"] == "t1"
        assert result.body == ["snow, line 1", "snow, line 2", "snow, line 3"]


class Kiln:
    """An agent that knows the source text and nothing else. In a group it takes what names it."""

    def __init__(self, member: Stranger, *, group: bool = False) -> None:
        self.member, self.group, self.done = member, group, 0
        member.on_line = self.hear

    async def hear(self, who: str, room: str, text: str) -> None:
        member = self.member
        asked = member.of_type("task", who)
        if member.of_type("discover", who) and not member.of_type("task", who):
            if text.startswith("[A2A:discover"):
                await member.say("[A2A:card]", "I am Kiln. I fire pots.")
            return
        if len(asked) <= self.done or not asked[-1].body:
            return
        task = asked[-1]
        if self.group and "kiln" not in " ".join((*task.params.values(), *task.body)):
            return
        self.done += 1
        name, words = task.params["id"], task.body[0].removeprefix("@kiln ")
        await member.say(
            f"[A2A:ack task={name}]",
            "I have it.",
            f"[A2A:result task={name} state=completed sha256=9f86d081 x1=3]",
            f"Fired: {words}",
            "It took two hours.",
            "Mind the handle.",
        )


RESULT = "\nIt took two hours.\nMind the handle."


async def test_a_foreign_agent_is_called_and_its_whole_answer_arrives(port: int) -> None:
    async with stranger(port, "kiln", ROOM) as member, stranger(port, "bob", ROOM) as bob:
        Kiln(member, group=True)
        async with connect(address(port, "kiln"), timeout=60) as agent:
            task = await agent.send("a pot")
            assert isinstance(task, Task)
            assert (task.state, task.text) == (State.COMPLETED, f"Fired: a pot{RESULT}")
        ours = [text for who, _, text in bob.lines if who == "gate" and "A2A:" in text]
        assert ours
        assert all(text.startswith("[A2A:") and text.endswith("]") for text in ours)


async def test_calls_go_on_when_a_third_member_joins(port: int) -> None:
    async with stranger(port, "kiln", ROOM) as member:
        kiln = Kiln(member)
        async with connect(address(port, "kiln"), timeout=60) as agent:
            assert (await agent.send("a pot")).text == f"Fired: a pot{RESULT}"
            async with stranger(port, "carol", ROOM):
                kiln.group = True  # it now takes only what names it
                assert (await agent.send("a cup")).text == f"Fired: a cup{RESULT}"


async def test_an_agent_without_markers_is_called_in_a_room_of_two(port: int) -> None:
    async with stranger(port, "oracle", ROOM) as oracle:

        async def answer(who: str, room: str, text: str) -> None:
            await oracle.say(f"You said: {text}", "So it will be.")

        oracle.on_line = answer
        async with connect(address(port), timeout=60) as agent:
            task = await agent.send("rain tomorrow")
            assert isinstance(task, Task)
            assert task.text == "You said: rain tomorrow\nSo it will be."


async def test_nobody_completes_the_task_of_another_with_its_id(port: int) -> None:
    async with stranger(port, "mallory", ROOM) as mallory, living(port):

        async def repeat(who: str, room: str, text: str) -> None:
            if who == "gate" and (asked := re.search(r"A2A:task id=([^ \]]+)", text)):
                await mallory.say(f"desk: [A2A:task id={asked[1]} lines=1]", "ransom")

        mallory.on_line = repeat
        async with connect(address(port, "desk"), timeout=60) as agent:
            task = await agent.send("snow")
            assert isinstance(task, Task)
            assert task.text == "snow, line 1\nsnow, line 2\nsnow, line 3"
        assert not any("ransom, line" in text for _, _, text in mallory.lines)


async def test_the_command_that_is_printed_answers_the_question(port: int, tmp_path: Path) -> None:
    """`dragoman send` asks in one process, and answers in the next one, as the first has said."""
    async with living(port):
        sent = await asyncio.to_thread(
            dragoman, "send", address(port, "desk", nick="anna"), "ask", cwd=tmp_path
        )
        (command,) = re.findall(r"Answer with: dragoman (.*)", sent.stderr + sent.stdout)
        words = [word if word != "ANSWER" else "Kyoto" for word in shlex.split(command)]
        done = await asyncio.to_thread(dragoman, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "You said Kyoto." in done.stdout


async def test_a_gateway_with_nothing_but_channels_starts(port: int, tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(
        f'''
[server]
store = "memory:"
[channels.town]
kind = "irc"
host = "127.0.0.1"
port = {port}
tls = false
nick = "gate"
rooms = ["{ROOM}"]
'''
    )
    http = own_port()
    async with stranger(port, "kiln", ROOM) as member:
        Kiln(member)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "gateway", "--port", str(http)),
            cwd=tmp_path,
            env={**ENVIRON, "PATH": os.environ["PATH"]},
        )
        try:

            async def called() -> str:
                with suppress(httpx2.HTTPError):
                    return await ask_over_a2a(f"http://127.0.0.1:{http}/agents/kiln", "a pot")
                return ""

            assert RESULT in await until(called)
        finally:
            process.terminate()
            await process.wait()


async def ask_over_a2a(url: str, text: str) -> str:
    """What an A2A client that nobody here wrote gets as the text of the answer."""
    message = {"messageId": uuid4().hex, "role": "user", "parts": [{"kind": "text", "text": text}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = (await client.post(url, json=call)).json()
    artifacts = answer.get("result", {}).get("artifacts", [])
    return "".join(part.get("text", "") for each in artifacts for part in each["parts"])
