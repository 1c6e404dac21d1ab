"""turn.workspace: in async and plain skills, narrowed by callers, over the wire."""

from __future__ import annotations

import os
from pathlib import Path

import httpx2
import pytest

from cli.run import dragoman, serving
from dragoman import Agent, SyncTurn, Turn
from dragoman.core.errors import TooLarge, WorkspaceViolation
from dragoman.core.model import State
from dragoman.settings import load
from dragoman.testing import Client
from dragoman.workspace import Space


def reader(workspace: Space | Path | None) -> Agent:
    """Reads the file it is told to, and writes beside it."""
    agent = Agent("Reader", workspace=workspace)

    @agent.skill("read")
    async def read(turn: Turn) -> str:
        return await turn.workspace.read_text(turn.text)

    @agent.skill("all")
    async def everything(turn: Turn) -> str:
        files = turn.workspace
        await files.mkdir("a/b")
        await files.write_text("a/b/x.txt", "one")
        await files.write_bytes("a/y", b"two")
        with await files.open("a/z", "w") as file:
            file.write("three")
        await files.rename("a/z", "a/b/z")
        names = [entry.name for entry in await files.list("a/b")]
        inner = files.inside("a/b")
        found = [await inner.read_text("x.txt"), await files.read_bytes("a/y"), *names]
        await files.remove("a/y")
        return f"{found} {await files.exists('a/y')}"

    @agent.skill("plain")
    def plain(turn: SyncTurn) -> str:
        files = turn.workspace
        files.write_text("x.txt", "one")
        with files.open("x.txt", "a") as file:
            file.write(" more")
        return f"{files.read_text('x.txt')} {[entry.name for entry in files.list()]}"

    return agent


async def test_a_skill_uses_its_workspace(tmp_path: Path) -> None:
    async with Client(reader(tmp_path)) as client:
        task = await client.send("go", skill="all")
        assert task.text == "['one', b'two', 'x.txt', 'z'] False"
        assert (tmp_path / "tasks" / task.id / "a" / "b" / "z").read_text() == "three"
        plain = await client.send("go", skill="plain")
        assert plain.text == "one more ['x.txt']"


async def test_without_one_there_is_none() -> None:
    async with Client(reader(None)) as client:
        task = await client.send("x", skill="read")
        assert task.state is State.FAILED
        assert task.status is not None
        assert "no workspace" in str(task.status)


async def test_a_way_out_fails_the_task_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    async with Client(reader(tmp_path / "space")) as client:
        for path in ("../secret.txt", "../../secret.txt", str(tmp_path / "secret.txt")):
            task = await client.send(path, skill="read")
            assert task.state is State.FAILED
            assert "workspace_violation" in str(task)
            assert "secret'" not in str(task.artifacts)


async def test_a_caller_narrows_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "x.txt").write_text("outer")
    (tmp_path / "sub" / "x.txt").write_text("inner")
    async with Client(reader(Space(root=str(tmp_path), per="shared"))) as client:
        assert (await client.send("x.txt", skill="read")).text == "outer"
        for wish in ("sub", f"{tmp_path}/sub"):
            about = {"workspace_root": wish}
            task = await client.send("x.txt", skill="read", metadata=about)
            assert task.text == "inner"
        for wish in ("..", "/", str(tmp_path.parent), f"{tmp_path}/../x"):
            about = {"workspace_root": wish}
            with pytest.raises(WorkspaceViolation):  # before a task is opened
                await client.send("x.txt", skill="read", metadata=about)


async def test_a_full_workspace_fails_the_task(tmp_path: Path) -> None:
    async with Client(reader(Space(root=str(tmp_path), size=2))) as client:
        task = await client.send("go", skill="plain")
        assert task.state is State.FAILED
        assert TooLarge().reason in str(task)


def test_settings_and_flag(tmp_path: Path) -> None:
    config = tmp_path / "dragoman.toml"
    config.write_text('[workspace]\nroot = "a"\nper = "shared"\nsize = 5\n')
    assert load({}, {}, config).workspace == Space(root="a", per="shared", size=5)
    environ = {"DRAGOMAN_WORKSPACE_ROOT": "b"}
    assert load({}, environ, config).workspace.root == "b"
    assert load({"workspace": "c"}, environ, config).workspace.root == "c"


AGENT = """
from dragoman import Agent
agent = Agent("Reader")
@agent.skill("read")
async def read(turn):
    return await turn.workspace.read_text(turn.text)
"""


@pytest.mark.slow  # starts a process
def test_served(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "x.txt").write_text("found it")
    (tmp_path / "dragoman.toml").write_text('[workspace]\nper = "shared"\n')
    flags = ("--store", "memory:", "--workspace", "shared")
    with serving("agent.py", *flags, cwd=tmp_path) as server:

        def asked(text: str, **metadata: str) -> dict[str, object]:
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
            params = {"message": message, "metadata": metadata}
            call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
            found = httpx2.post(server.url, json=call, headers={"A2A-Version": "1.0"})
            answer: dict[str, object] = found.json()
            return answer

        assert "found it" in str(asked("x.txt"))
        out = str(asked("../agent.py"))
        assert "workspace_violation" in out
        assert "import" not in out
        refused = asked("x.txt", workspace_root=str(tmp_path))["error"]
        assert isinstance(refused, dict)
        assert refused["code"] == -31403


@pytest.mark.slow  # starts a process
def test_a_shared_workspace_around_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "dragoman.toml").write_text('[workspace]\nper = "shared"\nroot = "."\n')
    done = dragoman("serve", "agent.py", "--port", "0", cwd=tmp_path)
    assert done.returncode != 0
    assert "workspace" in done.stderr + done.stdout
    assert "dragoman.db" not in os.listdir(tmp_path)
