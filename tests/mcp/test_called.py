"""Skills that call the tools of a real MCP server: recorded, limited, canceled, and failures."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.types import TextContent

from cli.run import serving
from dragoman import Agent, SyncTurn, Turn, connect
from dragoman import settings as config
from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.model import State, Task
from dragoman.mcp import extra
from dragoman.server.engines import mcp_servers
from dragoman.settings import McpServer, Settings
from dragoman.testing import Client, served
from ports import own_port
from waiting import until, wait_until

pytestmark = pytest.mark.slow
TOOLS = str(Path(__file__).parent / "tools_server.py")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls.log"


def lines(log: Path) -> list[str]:
    return log.read_text("utf-8").splitlines() if log.exists() else []


def stdio(log: Path, **options: Any) -> dict[str, McpServer]:
    return {"tools": McpServer(command=(sys.executable, TOOLS, str(log)), **options)}


@pytest.fixture
def over_http(log: Path) -> Iterator[str]:
    """The same server at an address."""
    port = own_port()
    with subprocess.Popen(
        [sys.executable, TOOLS, str(log), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:

            def listens() -> bool:
                try:
                    httpx2.get(f"http://127.0.0.1:{port}/")
                except httpx2.TransportError:
                    return False
                return True

            wait_until(listens)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@pytest.fixture(params=["stdio", "http"])
async def tools(request: pytest.FixtureRequest, log: Path) -> AsyncIterator[dict[str, McpServer]]:
    if request.param == "stdio":
        yield stdio(log)
        return
    yield {"tools": McpServer(url=request.getfixturevalue("over_http"))}


def caller(tool: str, **arguments: Any) -> Agent:
    """An agent that calls one tool, and tells what came of it."""
    agent = Agent("Caller", output_modes=["*/*"])

    @agent.skill("call")
    async def call(turn: Turn) -> Any:
        try:
            result = await turn.mcp("tools").call(tool, arguments)
        except DragomanError as exc:
            return f"{exc.reason}: {exc.message}"
        return [result.data or result.text, *result.files]

    return agent


async def test_a_skill_calls_a_tool(tools: dict[str, McpServer]) -> None:
    async with Client(caller("add", a=2, b=3), mcp=tools) as client:
        task = await client.send("go")
        assert isinstance(task, Task)
        assert task.artifacts[0].parts[0].value == {"result": 5}


async def test_a_skill_lists_the_tools(tools: dict[str, McpServer]) -> None:
    agent = Agent("Caller")

    @agent.skill("list")
    async def list_tools(turn: Turn) -> dict[str, Any]:
        found = {each.name: each for each in await turn.mcp("tools").tools()}
        return {
            "about": found["add"].description,
            "takes": list(found["add"].parameters["required"]),
        }

    async with Client(agent, mcp=tools) as client:
        task = await client.send("go")
        value = task.artifacts[0].parts[0].value
        assert value == {"about": "Adds two numbers.", "takes": ["a", "b"]}


async def test_files_of_a_tool_arrive(log: Path) -> None:
    async with Client(caller("picture"), mcp=stdio(log)) as client:
        task = await client.send("go")
        (image,) = [each for each in task.artifacts[0].parts if hasattr(each, "content")]
        assert (image.content, image.media_type) == (b"\x89PNG", "image/png")


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("fail", {}, r"peer_refused: The tool `tools.fail` failed: .*no such row"),
        ("nobody", {}, r"peer_refused: .*nobody"),
        ("add", {"a": "x", "b": 1}, r"peer_refused: The tool `tools.add` failed: .*valid integer"),
    ],
    ids=["fails", "unknown", "arguments"],
)
async def test_an_error_of_a_tool_is_told(
    tools: dict[str, McpServer], tool: str, arguments: dict[str, Any], said: str
) -> None:
    async with Client(caller(tool, **arguments), mcp=tools) as client:
        assert re.match(said, (await client.send("go")).text, re.S)


async def test_a_plain_function_calls_tools_too(log: Path) -> None:
    agent = Agent("Caller")

    @agent.skill("call")
    def call(turn: SyncTurn) -> str:
        return str(turn.mcp("tools").call("add", a=1, b=1).data["result"])

    async with Client(agent, mcp=stdio(log)) as client:
        assert (await client.send("go")).text == "2"


async def test_one_session_serves_all_calls_and_ends_with_the_engine(log: Path) -> None:
    async with Client(caller("add", a=1, b=1), mcp=stdio(log)) as client:
        await asyncio.gather(*(client.send("go") for _ in range(5)))
        assert lines(log).count("start") == 1
        assert lines(log).count("add") == 5


async def test_a_tool_that_is_too_slow_is_canceled(log: Path) -> None:
    async with Client(caller("slow"), mcp=stdio(log, timeout=10.0)) as client:
        task = await client.send("go")
        assert task.text == ("peer_unreachable: The MCP server `tools` did not answer within 10 s")
        await until(lambda: "slow ended" in lines(log))


async def test_a_canceled_task_cancels_its_tool(log: Path) -> None:
    async with Client(caller("slow"), mcp=stdio(log)) as client:
        task = await client.send("go", wait=False)
        await until(lambda: "slow began" in lines(log))
        await client.cancel(task.id)
        await until(lambda: "slow ended" in lines(log))


async def test_a_server_that_dies_is_started_again_by_the_next_call(log: Path) -> None:
    agent = Agent("Caller")

    @agent.skill("call")
    async def call(turn: Turn) -> str:
        try:
            await turn.mcp("tools").call("die")
        except DragomanError as exc:
            await turn.say(exc.message)
        return str((await turn.mcp("tools").call("add", a=1, b=2)).data["result"])

    async with Client(agent, mcp=stdio(log)) as client:
        task = await client.send("go")
        assert task.text == "3"
        said = [each.text for each in task.history]
        assert "The MCP server `tools` ended during the call" in said
        assert lines(log) == ["start", "die", "start", "add"]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (McpServer(command=("no-such-program",)), "No such file or directory"),
        (McpServer(command=(sys.executable, "-c", "print('hello')")), "cannot be reached"),
        (McpServer(url="http://127.0.0.1:{port}/mcp"), "cannot be reached"),
        (McpServer(command=("sleep", "3600"), timeout=1.0), "did not start within 1 s"),
    ],
    ids=["program", "exits", "address", "silent"],
)
async def test_a_server_that_cannot_be_reached_is_told(server: McpServer, said: str) -> None:
    if server.url:
        server = McpServer(url=server.url.format(port=own_port()))
    async with Client(caller("add"), mcp={"tools": server}) as client:
        text = (await client.send("go")).text
        assert text.startswith("peer_unreachable: The MCP server `tools`")
        assert said in text


async def test_an_answer_that_is_too_large_is_not_read(log: Path) -> None:
    async with Client(caller("flood", size=200_000), mcp=stdio(log, max_size=50_000)) as client:
        assert (await client.send("go")).text.startswith("peer_unreachable")


async def test_a_program_gets_the_variables_of_its_settings_and_no_others(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOL_SECRET", "a-secret-of-tools")
    monkeypatch.setenv("OUR_SECRET", "not-for-tools")
    given = {"TOKEN": Secret(env="TOOL_SECRET"), "PLAIN": "yes"}
    found = []
    for name in ("TOKEN", "PLAIN", "OUR_SECRET"):
        async with Client(caller("env", name=name), mcp=stdio(log, env=given)) as client:
            found.append((await client.send("go")).artifacts[0].parts[0].value["result"])
    assert found == ["a-secret-of-tools", "yes", "-"]


async def test_a_server_that_the_settings_do_not_name_is_told(log: Path) -> None:
    async with Client(caller("add")) as client:
        assert "There is no MCP server `tools` in the settings" in (await client.send("go")).text


async def test_a_call_has_the_same_key_in_every_run(log: Path) -> None:
    async with Client(caller("key"), mcp=stdio(log)) as client:
        task = await client.send("go")
        (part,) = task.artifacts[0].parts
        assert part.value["result"] == f"{task.id}:mcp:tools.key {{}}"


AGENT = """
from dragoman import Agent, Turn

agent = Agent("Caller")

@agent.skill("call")
async def call(turn: Turn) -> str:
    found = await turn.mcp("tools").call("add", a=2, b=3)
    await turn.ask("Go on?")
    again = await turn.mcp("tools").call("add", a=2, b=3)
    return f"{found.data['result']} and {again.data['result']}"
"""


async def test_a_run_that_starts_again_after_a_crash_does_not_repeat_a_call(
    tmp_path: Path, log: Path
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "dragoman.toml").write_text(
        f"[mcp.tools]\ncommand = [{sys.executable!r}, {TOOLS!r}, {str(log)!r}]\n"
    )
    with serving("agent.py", cwd=tmp_path) as first:
        async with connect(first.url) as agent:
            task = await agent.send("go")
            assert task.state is State.INPUT_REQUIRED
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    with serving("agent.py", cwd=tmp_path) as second:
        async with connect(second.url) as agent:
            done = await agent.answer(task, "yes")
            assert done.text == "5 and 5"
    assert lines(log).count("add") == 2


async def test_tools_are_offered_and_called_in_one_chain(log: Path) -> None:
    """An MCP client calls a skill, which calls a tool of an MCP server."""
    server = config.Server(store="memory:", allow_private=True)
    async with (
        served(caller("add", a=20, b=3), Settings(server=server, mcp=stdio(log))) as url,
        McpClient(f"{url}/mcp") as client,
    ):
        result = await client.call_tool("call", {"message": "x"})
        (text,) = result.content
        assert isinstance(text, TextContent)
        assert text.text == '{"result":23}'


# The settings.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs either a command or a url"),
        ('command = ["x"]\nurl = "http://x/mcp"', "needs either a command or a url"),
        ('url = "ftp://x"', "url must start with http"),
        ('comand = ["x"]', "comand"),
        ('command = "x"', "Expected `array`, got `str`"),
        ('url = "http://x"\nenv = {A = "b"}', "env is for a command"),
        ('command = ["x"]\nheaders = {A = "b"}', "headers and secret are for a url"),
        ('url = "http://x"\nheaders = {Authorization = "b"}', "give the token as secret"),
        ('url = "http://x"\nsecret = "b"', "a secret is never written here"),
        ('command = ["x"]\ntimeout = 0.0', "must be more than 0"),
    ],
)
def test_a_wrong_section_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(f"[mcp.tools]\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        config.load({}, {}, file)
    assert "mcp" in caught.value.message


def test_a_secret_that_is_not_set_is_told_before_anything_starts() -> None:
    wanted = McpServer(url="http://127.0.0.1:1/mcp", secret=Secret(env="NOT_THERE"))
    with pytest.raises(ConfigError, match=r"\[mcp.tools\] secret: the variable NOT_THERE"):
        mcp_servers(Settings(mcp={"tools": wanted}))


def test_without_the_extra_the_settings_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extra, "installed", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'dragoman\[mcp\]'"):
        mcp_servers(Settings(mcp={"tools": McpServer(command=("x",))}))
