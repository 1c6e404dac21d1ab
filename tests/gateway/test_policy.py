"""The policy of a gateway: which callers may ask which agents for what, in every dialect."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from msgspec.structs import replace

from dragoman import Task, connect
from dragoman.cli import main
from dragoman.client.agent import RemoteAgent
from dragoman.core.errors import DragomanError, Forbidden, TaskNotFound, UnknownMethod, Unsupported
from dragoman.core.model import State
from dragoman.settings import PolicyRule, load
from dragoman.testing import served
from gateway.behind import DIALECTS, gateway, section, settings, worker
from gateway.matrix import calling
from ports import own_port

LIMIT = 240.0
RULES = (
    PolicyRule(operations=("CancelTask",), skills=("trip",), allow=False),
    PolicyRule(agents=("worker",), skills=("echo", "trip", "slow")),
    PolicyRule(operations=("ListTasks",), agents=("worker",)),
)


async def refused(caller: RemoteAgent, skill: str) -> str:
    with pytest.raises(DragomanError) as failed:
        await caller.send("1", skill=skill)
    return failed.value.message


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_policy_holds_in_the_dialect_of_the_caller(tmp_path: Path, dialect: str) -> None:
    grpc_port = own_port()
    own = settings(tmp_path, grpc_port=grpc_port, policy=RULES)
    async with (
        asyncio.timeout(LIMIT),
        served(worker(), settings(tmp_path, name="worker")) as url,
        gateway({"worker": section(tmp_path, url), "other": section(tmp_path, url)}, own) as door,
        calling(
            door.at("worker"), dialect, agent="worker", to="worker", grpc_port=grpc_port
        ) as caller,
        calling(
            door.at("other"), dialect, agent="other", to="other", grpc_port=grpc_port
        ) as stranger,
    ):
        done = await caller.send("hi", skill="echo")
        assert isinstance(done, Task)
        assert done.text == "HI"
        assert "policy" in await refused(caller, "count")
        assert "policy" in await refused(stranger, "echo")
        # What a task is about counts for later calls too, although the agent elsewhere has it.
        asking = await caller.send("x", skill="trip")
        assert isinstance(asking, Task)
        assert asking.state is State.INPUT_REQUIRED
        with pytest.raises(DragomanError) as failed:
            await caller.cancel(asking)
        assert "policy" in failed.value.message
        assert not isinstance(failed.value, TaskNotFound | UnknownMethod | Unsupported)


async def test_a_policy_holds_for_tools_of_mcp(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(LIMIT),
        served(worker(), settings(tmp_path, name="worker")) as url,
        gateway({"worker": section(tmp_path, url)}, settings(tmp_path, policy=RULES)) as door,
        Client(f"{door.url}/mcp", mode="2026-07-28") as mcp,
    ):
        allowed = await mcp.call_tool("echo", {"message": "hi"})
        assert not allowed.is_error
        denied = await mcp.call_tool("count", {"message": "3"})
        assert denied.is_error
        assert "policy" in str(denied.content)


@pytest.mark.slow  # takes several seconds
async def test_the_skill_of_a_relayed_task_is_known_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    async with (
        asyncio.timeout(LIMIT),
        served(worker(), settings(tmp_path, name="worker")) as url,
    ):
        sections = {"worker": section(tmp_path, url)}
        async with (
            gateway(sections, settings(tmp_path, store=store, policy=RULES)) as door,
            calling(door.url, "a2a-1.0") as caller,
        ):
            asking = await caller.send("x", skill="trip")
            slow = await caller.send("x", skill="slow", wait=False)
            assert isinstance(asking, Task)
            assert isinstance(slow, Task)
        async with (
            gateway(sections, settings(tmp_path, store=store, policy=RULES)) as door,
            calling(door.url, "a2a-1.0") as caller,
        ):
            with pytest.raises(DragomanError, match="policy"):
                await caller.cancel(asking)
            canceled = await caller.cancel(slow)
            assert canceled.state is State.CANCELED
            again = await caller.send("Bern", task=asking)
            assert isinstance(again, Task)
            assert again.state is State.INPUT_REQUIRED


async def test_a_skill_is_asked_of_an_agent_that_the_caller_may_ask(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    rules = (PolicyRule(agents=("beta",), skills=("echo",)),)
    own = settings(tmp_path, policy=rules)
    own = replace(own, server=replace(own.server, audit=str(log)))
    async with (
        asyncio.timeout(LIMIT),
        served(worker(), settings(tmp_path, name="worker")) as url,
        gateway({name: section(tmp_path, url) for name in ("alpha", "beta")}, own) as door,
        connect(f"{door.url}/agents/-/skills/echo", dialect="a2a-1.0") as caller,
    ):
        for _ in range(3):
            done = await caller.send("hi")
            assert isinstance(done, Task)
            assert done.text == "HI"
        async with connect(f"{door.url}/agents/-/skills/count", dialect="a2a-1.0") as other:
            with pytest.raises(Forbidden, match="policy"):
                await other.send("1")
    lines = [json.loads(each) for each in log.read_text().splitlines()]
    calls = [each["agent"] for each in lines if each["operation"] != "ChooseAgent"]
    assert calls == ["beta"] * 3


URL = '[agents.a]\nurl = "http://127.0.0.1:9001"\n'


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ('[[policy]]\ncaller = ["a"]\n', "toml:4: [[policy]] caller: this is not a key here; did"),
        ('[[policy]]\ncallers = "a"\n', 'toml:4: [[policy]] callers: write a list: callers = ["a"'),
        ("[[policy]]\n\n[[policy]]\nallow = 1\n", "toml:6: [[policy]] allow: Expected `bool`"),
        (
            '[[policy]]\noperations = ["SendMesage"]\n',
            "toml:4: [[policy]] operations: 'SendMesage' is not an operation; did you mean `SendM",
        ),
        ('[[policy]]\nagents = ["A"]\n', "toml:4: [[policy]] agents: 'A' cannot be the name of an"),
        ('[[policy]]\nskills = ["a*b"]\n', "toml:4: [[policy]] skills: 'a*b': a * may only stand"),
        ("[[policy]]\ncallers = []\n", "toml:4: [[policy]] callers: an empty list fits nothing"),
        ("[[policy]]\ncalls_per_minute = -1\n", "toml:4: [[policy]] calls_per_minute: Expected"),
        ("[policy]\nallow = true\n", "toml:3: write [[policy]], in double brackets"),
        ("[[policy]]\nallow = false\n", "toml:3: [[policy]]: every rule refuses"),
        (
            "[[policy]]\n[[policy]]\nallow = false\ncalls_per_minute = 3\n",
            "toml:6: [[policy]] calls_per_minute: a rule that refuses allows no calls",
        ),
    ],
)
def test_a_wrong_rule_is_told_with_its_line(
    tmp_path: Path,
    rules: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "dragoman.toml").write_text(URL + rules)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["gateway", "check"])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_rules_are_read_in_their_order(tmp_path: Path) -> None:
    text = """
[[policy]]
callers = ["sso:*"]
agents = ["a"]
skills = ["book"]
operations = ["SendMessage", "Get*", "method:hotels/search"]
calls_per_minute = 30

[[policy]]
allow = false
"""
    (tmp_path / "dragoman.toml").write_text(URL + text)
    found: Any = load(None, {}, tmp_path / "dragoman.toml").policy
    assert [each.allow for each in found] == [True, False]
    assert found[0].operations == ("SendMessage", "Get*", "method:hotels/search")
