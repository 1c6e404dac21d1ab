"""`kill -9` of a gateway at any moment, with agents of others behind it: two that speak IAT, one of
which knows nothing but the requirement, and one that dials in as XiaoYi's agents do. No task that
was acknowledged is lost, and none is executed twice. The agents import nothing of ours."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from cli.run import dragoman
from counts import count
from crash.client import Client, Lost, Refused, message, sending
from crash.fire import fire_at
from crash.load import FINAL
from gateway.under_fire import HONEST, Gateway
from iat.keeping_stranger import KeepingStranger, KeptTask
from iat.stranger import Asked, Reply, done, envelope, running, stream
from iat.stranger import Stranger as IatStranger
from waiting import before_again, pace, until
from xiaoyi.links import PATH
from xiaoyi.strangers import Request
from xiaoyi.strangers import Stranger as XiaoYiStranger
from xiaoyi.strangers import stranger as dialling

pytestmark = pytest.mark.slow  # starts processes
KILLS = count(1, 2, 40)
SEED = int(os.environ.get("CRASH_SEED", "1"))
LIMIT = 240.0 + 30.0 * KILLS
CALLERS = 2
"""Of each agent."""
PIECES = 4
PIECE_SECONDS = 0.1
"""How long an agent works on each piece of its answer."""
ANSWER_GAP_SECONDS = 3.0
"""The agent that dials in may say nothing about a task for so long after it is back."""


def answer_to(text: str) -> str:
    return "".join(f"{text}.{number} " for number in range(PIECES))


# The agents


def keep(task: KeptTask, say: Callable[[str], None]) -> None:
    """The work of the IAT agent that keeps tasks and idempotency keys."""
    for number in range(PIECES):
        say(f"{task.query}.{number} ")
        asyncio.run(pace(PIECE_SECONDS))


def forget(agent: IatStranger, asked: Asked) -> Reply:
    """The work of the IAT agent that knows nothing but `execute`."""

    def events() -> Iterator[dict[str, Any]]:
        text = asked.payload["query"]
        for number in range(PIECES):
            yield envelope("chunk", {"text": f"{text}.{number} "}, asked.id)
            asyncio.run(pace(PIECE_SECONDS))
        yield done(asked, answer_to(text))

    return stream(events())


async def dial(agent: XiaoYiStranger, request: Request) -> None:
    """The work of the agent that dials in. Its last frame repeats the whole answer."""
    text = agent.said(request)
    for number in range(PIECES):
        await agent.text(request, f"{text}.{number} ", append=number > 0)
        await pace(PIECE_SECONDS)
    await agent.text(request, answer_to(text), final=True)


# The callers


class StrangerLoad:
    """Callers that send messages to every agent until it is enough. Each message has a key, and is
    sent again until the gateway has said something about it."""

    def __init__(self, gateway: Gateway, agents: tuple[str, ...], seed: int) -> None:
        self.enough = asyncio.Event()
        self.acknowledged: dict[str, dict[str, str]] = {name: {} for name in agents}
        """The task of each text, by agent."""
        self.unknown: Counter[str] = Counter()
        """How many callers were told that nobody can know, by agent."""
        self._gateway, self._dice = gateway, random.Random(seed)

    def client(self, name: str) -> Client:
        return Client(f"{self._gateway.url}/agents/{name}")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in self.acknowledged:
                for _ in range(CALLERS):
                    group.create_task(self._call(name))

    async def _call(self, name: str) -> None:
        while not self.enough.is_set():
            text = uuid4().hex
            task_id = await self._send(name, text)
            if task_id:
                self.acknowledged[name][text] = task_id
            await pace(self._dice.random() / 4)

    async def _send(self, name: str, text: str) -> str:
        asked, key = sending(message(text, uuid4().hex), wait=False), uuid4().hex
        while True:
            try:
                answer = await self.client(name).call("SendMessage", asked, idempotency_key=key)
                return str(answer["task"]["id"])
            except Lost:
                pass
            except Refused as exc:
                if HONEST[1] in str(exc):
                    self.unknown[name] += 1
                    return ""
            await before_again()

    async def outcome(self, name: str, task_id: str) -> tuple[str, str, str]:
        """The state, the text and the reason of a task that is over."""

        async def over() -> Any:
            try:
                found = await self.client(name).task(task_id)
            except (Lost, Refused):  # an agent that dials in is unknown until it has done so
                return None
            return found if found["status"]["state"] in FINAL else None

        found = await until(over)
        parts = [part for each in found.get("artifacts", ()) for part in each["parts"]]
        about = found["status"].get("message", {}).get("metadata", {})
        text = "".join(part.get("text", "") for part in parts)
        return found["status"]["state"], text, str(about.get("reason", ""))


async def test_kill_9_with_strangers_behind_the_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper, plain = KeepingStranger(keep), IatStranger(forget, "*")
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        for each in (keeper, plain):
            stack.enter_context(running(each))
        servers = {
            "keeper": (SimpleNamespace(url=f"iat+{keeper.url}/"), ""),
            "plain": (SimpleNamespace(url=f"iat+{plain.url}/"), ""),
        }
        gateway = stack.enter_context(Gateway(tmp_path, servers))  # type: ignore[arg-type]
        with gateway.toml.open("a") as settings:
            settings.write(f"[xiaoyi]\nanswer_gap = {ANSWER_GAP_SECONDS}\n")
        made = dragoman(
            *("xiaoyi", "keys", "add", "--agent-id", "phone", "--json", "--store", gateway.store),
            cwd=tmp_path,
        )
        keys = json.loads(made.stdout)
        gateway.start()
        await gateway.ready()
        phone: XiaoYiStranger = await stack.enter_async_context(
            dialling(f"ws://127.0.0.1:{gateway.port}{PATH}", keys["ak"], keys["sk"], "phone", dial)
        )
        await until(lambda: phone.sockets)
        load = StrangerLoad(gateway, ("keeper", "plain", "phone"), SEED)
        await fire_at(gateway, load, KILLS, SEED, gateway.unsettled)

        executed = {
            "keeper": Counter(task.query for task in tuple(keeper.tasks.values())),
            "plain": Counter(asked.payload["query"] for asked in plain.executes()),
            "phone": Counter(
                phone.said(each) for each in phone.requests if each["method"] == "message/stream"
            ),
        }
        faults: list[str] = []
        for name, tasks in load.acknowledged.items():
            ended: Counter[str] = Counter()
            for text, task_id in tasks.items():
                state, answer, reason = await load.outcome(name, task_id)
                ended[reason or state] += 1
                if state == "TASK_STATE_COMPLETED":
                    if answer != answer_to(text):
                        faults.append(f"{name}: {task_id} has the answer {answer!r} to {text}")
                    if not executed[name][text]:
                        faults.append(f"{name}: {task_id} was completed by nobody")
                elif name == "keeper" or reason != "unknown_outcome":
                    faults.append(f"{name}: {task_id} ended as {state}, {reason}")
            twice = [text for text, times in executed[name].items() if times > 1]
            faults += [f"{name}: {text} was executed twice" for text in twice]
            with capsys.disabled():
                told = f"{len(tasks)} acknowledged, {dict(ended)}, {len(twice)} executed twice"
                print(f"\n  {KILLS} x kill -9, {name}: {told}, {load.unknown[name]} not known")
            assert ended["TASK_STATE_COMPLETED"] > 0, f"{name}: {ended}\n{gateway.logged()}"
        assert not faults, "\n".join([*faults[:20], gateway.logged()])
