"""Sub-agents in other languages, without Dragoman: the examples in Node.js and in Go."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman import State
from dragoman.core.events import ArtifactChunk, Asked, Note, Noted
from dragoman.testing.served import served
from iat.team import SECRET, at, engine_host, settings, story
from interop.peers import GO, PeerUnavailable
from waiting import LIMIT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def node(url: str) -> list[str]:
    """Over a WebSocket."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("needs node on PATH")
    return [found, str(EXAMPLES / "iat-node" / "agent.mjs"), f"{at(url, 'ws')}/iat/ws"]


def go(url: str) -> list[str]:
    """Over HTTP/2, called back by the host."""
    return [built_go(EXAMPLES / "iat-go" / "agent.go"), f"{url}/iat"]


def built_go(source: Path) -> str:
    """The program of a source file in Go."""
    try:
        folder = GO.ready()
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    built = folder / f"{source.parent.name}-agent"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        own = {"GOCACHE": str(folder / "cache"), "GOPATH": str(folder / "path")}
        own |= {"GO111MODULE": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        environ = {**os.environ, **own}
        command = [*GO.start(folder), "build", "-o", str(built), str(source)]
        subprocess.run(command, env=environ, check=True, timeout=600)
    return str(built)


def node_http2(url: str) -> list[str]:
    """Over HTTP/2 alone, by a server that announces no limit of concurrent streams."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("needs node on PATH")
    return [found, str(Path(__file__).parent / "http2_agent.mjs"), f"{url}/iat"]


@contextmanager
def running(command: list[str], secret: str = SECRET) -> Iterator[subprocess.Popen[str]]:
    """The sub-agent in a process of its own."""
    process = subprocess.Popen(
        command,
        env={**os.environ, "IAT_SECRET": secret, "IAT_AGENT": "foreign", "IAT_HOST_NAME": "engine"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("language", [node, go])
async def test_a_foreign_sub_agent_does_it_all(
    tmp_path: Path, language: Callable[[str], list[str]]
) -> None:
    language("")  # built before anyone waits for it
    host = engine_host()
    async with served(host, settings(tmp_path, "engine")) as url:
        with running(language(url)):
            await host.find("foreign", LIMIT)
            for decision, end in ((True, "deleted"), (False, "kept")):
                seen, task = await story(host, "b.txt", decision, agent="foreign")
                assert task.state is State.COMPLETED, task.status
                assert task.text == f"b.txt has 5 bytes, {end}"
                events = [entry.event for entry in seen]
                notes = [event for event in events if isinstance(event, Noted)]
                assert [note.kind for note in notes] == [Note.THOUGHT, Note.LOG]
                assert notes[0].body == {"text": "How large is b.txt?"}
                assert sum(isinstance(event, ArtifactChunk) for event in events) == 4
                (asked,) = [event for event in events if isinstance(event, Asked)]
                assert asked.message.text == "Delete it?"
                assert asked.body == {"agent": "foreign", "details": {"path": "b.txt"}}
            seen, task = await story(host, "b.txt", True, agent="foreign", allowed_tools=["shout"])
            assert task.state is State.FAILED
            assert task.status.message is not None
            assert "size" in task.status.message.text


@pytest.mark.slow
@pytest.mark.parametrize("language", [node, go])
async def test_without_the_secret_nobody_registers(
    tmp_path: Path, language: Callable[[str], list[str]]
) -> None:
    language("")
    host = engine_host()
    async with served(host, settings(tmp_path, "engine")) as url:
        with running(language(url), "a-guess-that-is-long-enough"):
            with pytest.raises(Exception, match="Unreachable"):
                await host.find("foreign", 1.0)
            assert not host.agents


@pytest.mark.slow
async def test_a_tool_is_answered_over_http2_without_a_limit(tmp_path: Path) -> None:
    """The answer goes over the connection whose stream has asked for it."""
    host = engine_host()
    async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")) as url:
        with running(node_http2(url)):
            await host.find("foreign", LIMIT)
            told = await asyncio.gather(
                *(story(host, "b.txt", agent="foreign") for _ in range(5)),
            )
            assert [task.text for _, task in told] == ["b.txt has 5 bytes"] * 5
