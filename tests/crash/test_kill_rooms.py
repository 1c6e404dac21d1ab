"""`kill -9` of a gateway whose agent lives in a real IRC room: what was acknowledged comes to an
end, and nothing is executed twice. The agent is a stranger: raw lines, and a reader of A2A-Lite
made from the source text alone."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from counts import count
from crash.client import Client, Lost, Refused, message, sending
from crash.server import Server
from lite.irc_stranger import Stranger, stranger
from lite.test_room_agents import appears
from net.chat.ngircd import NEEDS_NGIRCD, Ngircd
from waiting import until

pytestmark = [NEEDS_NGIRCD, pytest.mark.slow]  # starts processes
ROOM = "#works"
KILLS = count(1, 3, 25)
SENDS_PER_LIFE = 6
FINAL = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
HONEST = "nobody can tell"
"""What a task says whose message was on its way when the gateway died, or whose agent says nothing
again."""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    server = Ngircd(tmp_path)
    server.start()
    yield server.port
    server.stop()


class Gateway(Server):
    """`dragoman gateway` with an account in the room, life after life."""

    def __init__(self, folder: Path, irc_port: int) -> None:
        super().__init__(folder, f"sqlite:///{folder}/gateway.db", name="gateway")
        self.toml = folder / "dragoman.toml"
        self.toml.write_text(
            f"""
[server]
store = "{self.store}"
port = {self.port}
[channels.works]
kind = "irc"
host = "127.0.0.1"
port = {irc_port}
tls = false
nick = "gate"
rooms = ["{ROOM}"]
messages_per_second = 1000
patience = 5
"""
        )

    def arguments(self) -> list[str]:
        """The command after `dragoman`."""
        return ["gateway", str(self.toml)]


class Smith:
    """An agent that works a moment on each task. It does whatever it is asked: one that is asked
    twice works twice. Who asks for the status of a task is told it again, if it `remembers`."""

    def __init__(self, member: Stranger, seed: int, *, remembers: bool) -> None:
        self._member, self._remembers = member, remembers
        self._random = random.Random(seed)
        self._expects: dict[str, tuple[str, str]] = {}
        """The type and the task of the last marker of each sender, until its body has come."""
        self._last: dict[str, str] = {}
        """The last message about each task."""
        self.done: list[str] = []
        """What was executed."""
        self._work: set[asyncio.Task[None]] = set()
        member.on_line = self._hear

    async def _hear(self, sender: str, room: str, text: str) -> None:
        marker = re.fullmatch(r"\[A2A:([a-z]+)((?: [a-z0-9_-]+=[^ \]]+)*)\]", text)
        if marker is None:
            type, task = self._expects.pop(sender, ("", ""))
            if type == "task":
                self._begin(self._execute(task, text.removeprefix("@smith ")))
            return
        params = dict(each.split("=", 1) for each in marker[2].split())
        type, task = marker[1], params.get("id") or params.get("task", "")
        self._expects[sender] = type, task
        if type == "discover":
            await self._member.say(
                "[A2A:card]",
                '{"protocol": "a2a-lite/1.0", "skills": [],'
                ' "agent": {"id": "smith", "name": "Smith", "framework": "other"}}',
            )
        elif type == "status" and self._remembers and task in self._last:
            await self._tell(task, self._last[task])

    async def _execute(self, task: str, text: str) -> None:
        self.done.append(text)
        await self._tell(task, f"[A2A:status task={task} state=working]")
        await asyncio.sleep(self._random.uniform(0.0, 1.5))  # its work
        await self._tell(task, f"[A2A:result task={task} state=completed]\nForged {text}")

    async def _tell(self, task: str, said: str) -> None:
        self._last[task] = said
        await self._member.say(*said.split("\n"))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


class Callers:
    """Callers that note what they were told."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.acknowledged: dict[str, str] = {}
        """The text of each task that a caller was told of."""
        self.unanswered = 0

    async def send(self, delay: float) -> None:
        await asyncio.sleep(delay)  # callers come at any moment
        text = f"nail-{uuid4().hex}"
        try:
            sent = sending(message(text, uuid4().hex), wait=False)
            answer = await self._client.call("SendMessage", sent)
        except (Lost, Refused):
            self.unanswered += 1
            return
        self.acknowledged[answer["task"]["id"]] = text

    async def end_of(self, task_id: str) -> Any:
        """Returns a task when it has ended."""

        async def ended() -> Any:
            found = await self._client.task(task_id)
            return found if found["status"]["state"].removeprefix("TASK_STATE_") in FINAL else None

        return await until(ended, 180)


@pytest.mark.parametrize("remembers", [True, False], ids=["remembers", "says-it-once"])
async def test_kill_9_with_an_agent_in_a_room(
    remembers: bool, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("CRASH_SEED", "1"))
    chance = random.Random(seed)
    async with stranger(port, "smith", ROOM) as member:
        smith = Smith(member, seed, remembers=remembers)
        with Gateway(tmp_path, port) as gateway:
            callers = Callers(Client(f"{gateway.url}/agents/smith"))
            for life in range(KILLS + 1):
                gateway.start()
                await gateway.ready()
                await appears(gateway.url, "smith")
                async with asyncio.TaskGroup() as group:
                    for _ in range(SENDS_PER_LIFE):
                        group.create_task(callers.send(chance.uniform(0.0, 1.0)))
                    if life < KILLS:
                        await asyncio.sleep(chance.uniform(0.2, 1.8))  # a life of its own length
                        gateway.kill()
            tasks = list(callers.acknowledged)
            ends = dict(zip(tasks, await asyncio.gather(*map(callers.end_of, tasks)), strict=True))
            log = gateway.logged()
    executed = Counter(smith.done)
    states = Counter(each["status"]["state"] for each in ends.values())
    with capsys.disabled():
        told = f"acked={len(ends)} unanswered={callers.unanswered} executed={len(executed)}"
        print(f"\n  kill -9, gateway with a room agent, {KILLS} kills: {told} {dict(states)}")
    assert len(ends) >= KILLS
    assert [text for text, times in executed.items() if times > 1] == []
    for task_id, task in ends.items():
        text = callers.acknowledged[task_id]
        if task["status"]["state"] == "TASK_STATE_COMPLETED":
            assert task["artifacts"][0]["parts"] == [{"text": f"Forged {text}"}]
            assert executed[text] == 1
        else:
            end = task["status"]["message"]
            assert end["metadata"]["reason"] == "unknown_outcome", f"{task}\n{log}"
            assert HONEST in end["parts"][0]["text"]
    if remembers:
        assert states["TASK_STATE_COMPLETED"] > len(ends) // 2
