"""`dragoman mcp`: what it reads, what it writes, and agents in three dialects behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import CallToolResult, ElicitResult, TextContent

from cli.run import ENVIRON, dragoman
from dragoman import Agent, Turn, connect
from dragoman.core.auth_schemes import Secret
from dragoman.settings import Iat, Server, Settings
from dragoman.testing import served
from ports import own_port

pytestmark = pytest.mark.slow
SECRET = "a-secret-that-both-know"
DESK = str(Path(__file__).parent / "desk.py")
PING = b'{"jsonrpc":"2.0","id":7,"method":"ping"}\n'
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def text(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))


def talk(folder: Path, *lines: bytes, answers: int) -> list[dict[str, Any]]:
    """What `dragoman mcp` answers to these lines."""
    with subprocess.Popen(
        [sys.executable, "-m", "dragoman", "mcp", DESK, "--store", "memory:"],
        cwd=folder,
        env=ENVIRON,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(lines))
        process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for _ in range(answers)]
        rest, logged = process.communicate(timeout=120)
    assert process.returncode == 0, logged
    assert rest == b""
    assert b"Traceback" not in logged
    return found


def test_garbage_gets_a_clear_error_and_the_next_line_is_answered(tmp_path: Path) -> None:
    opening = json.dumps(OPENING).encode() + b"\n"
    broken, wrong, nothing, opened, ping = talk(
        *(tmp_path, b"{garbage\n", b"[1, 2]\n", b"\n", b"\xff\xfe\n", opening, PING), answers=5
    )
    assert broken["error"]["code"] == -32700
    assert "not JSON" in broken["error"]["message"]
    assert wrong["error"]["code"] == -32600
    assert nothing["error"]["code"] == -32700
    assert opened["result"]["serverInfo"]["name"] == "Dragoman"
    assert ping == {"jsonrpc": "2.0", "id": 7, "result": {}}


def test_a_line_that_is_too_long_is_refused_and_the_next_one_is_answered(tmp_path: Path) -> None:
    long = b'{"jsonrpc":"2.0","id":3,"method":"' + b"x" * (9 << 20) + b'"}\n'
    opening = json.dumps(OPENING).encode() + b"\n"
    refused, opened, ping = talk(tmp_path, long, opening, PING, answers=3)
    assert refused["error"]["code"] == -32600
    assert "more than 4194304 bytes" in refused["error"]["message"]
    assert opened["id"] == 1
    assert ping["id"] == 7


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "Which agents?"),
        (("nowhere.py",), "There is no file nowhere.py"),
        (("a=b=c://x",), "no address of an agent"),
        ((f"one={DESK}", f"one={DESK}"), "Two agents are called 'one'"),
        (("http://127.0.0.1:{port}",), "None of these agents can be reached"),
    ],
    ids=["none", "file", "scheme", "twice", "down"],
)
def test_a_mistake_is_told_in_words(tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    given = [each.format(port=own_port()) if "{port}" in each else each for each in args]
    done = dragoman("mcp", *given, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


async def test_without_arguments_the_agents_of_the_settings_are_offered(
    stdio: Callable[..., Any], client: Callable[..., Client], tmp_path: Path
) -> None:
    """As `dragoman serve` offers them: those in files, and those elsewhere."""
    async with served(agent("Far")) as far:
        (tmp_path / "dragoman.toml").write_text(
            f'[server]\nstore = "memory:"\n[agents.near]\nfile = "{DESK}"\n'
            f'[agents.far]\nurl = "{far}"\n'
        )
        async with client(stdio()) as mcp:
            names = {each.name for each in (await mcp.list_tools()).tools}
            assert {"near__greet", "far__hello", "far__ask"} <= names
            assert text(await mcp.call_tool("near__say", {"message": "hi"})) == "hi"
            greeted = await mcp.call_tool("far__hello", {"who": "Ada"})
            assert text(greeted) == "Far (a2a-1.0) greets Ada"


async def test_the_only_agent_of_the_settings_needs_no_name_in_its_tools(
    stdio: Callable[..., Any], client: Callable[..., Client], tmp_path: Path
) -> None:
    (tmp_path / "dragoman.toml").write_text(
        f'[server]\nstore = "memory:"\n[agents.near]\nfile = "{DESK}"\n'
    )
    async with client(stdio()) as mcp:
        assert text(await mcp.call_tool("say", {"message": "hi"})) == "hi"


def agent(name: str) -> Agent:
    made = Agent(name, description=f"It is {name}.")

    @made.skill("hello", default=True)
    async def hello(turn: Turn, who: str) -> str:
        return f"{name} ({turn.caller.dialect}) greets {who}"

    @made.skill("ask")
    async def ask(turn: Turn) -> str:
        return f"{name} heard {await turn.ask('What?')}"

    return made


async def test_agents_of_three_dialects_are_offered_together(
    stdio: Callable[..., Any],
    user: Callable[..., Any],
    client: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = user(*(ElicitResult(action="accept", content={"answer": str(n)}) for n in range(2)))
    monkeypatch.setenv("IAT_SECRET", SECRET)
    with_secret = Settings(server=Server(store="memory:"), iat=Iat(secret=Secret(env="IAT_SECRET")))
    async with (
        served(agent("Alpha")) as alpha,
        served(agent("Beta"), grpc=True) as beta,
        served(agent("Gamma"), with_secret) as gamma,
    ):
        async with connect(beta) as found:
            grpc = next(each.url for each in found.card.interfaces if each.binding == "GRPC")
        addresses = (
            alpha,
            f"beta=a2a+grpc://{grpc}",
            f"gamma=iat+{gamma}/iat",
            f"gone=http://127.0.0.1:{own_port()}",
        )
        async with client(stdio(*addresses, "--to", "Gamma", IAT_SECRET=SECRET), person) as mcp:
            tools = {each.name: each for each in (await mcp.list_tools()).tools}
            names = ("alpha", "beta", "gamma")
            assert list(tools) == [
                *(f"{name}__{skill}" for name in names for skill in ("hello", "ask")),
                "answer_task",
            ]
            said = []
            for name in ("alpha__hello", "beta__hello", "gamma__hello"):
                (argument,) = tools[name].input_schema["properties"]
                said.append(text(await mcp.call_tool(name, {argument: "Ada"})))
            assert said == [
                "Alpha (a2a-1.0) greets Ada",
                "Beta (a2a-1.0-grpc) greets Ada",
                "Gamma (iat) greets Ada",
            ]
            for number, name in enumerate(("alpha", "gamma")):
                answered = await mcp.call_tool(f"{name}__ask", {"message": "x"})
                assert text(answered) == f"{name.title()} heard {number}"
