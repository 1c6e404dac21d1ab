"""`dragoman gateway --watch`: agents come, change and go with the settings file."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cli.run import AGENT, Served, serving
from dragoman import Agent, Turn, connect
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.testing.served import served
from waiting import until

pytestmark = pytest.mark.slow  # starts processes

DESK = AGENT.replace("Tester", "Desk")


class Watched:
    """A gateway that follows its file, and what it logs."""

    def __init__(self, home: Path, at: Served) -> None:
        self.home, self.url, self.process = home, at.url, at.process
        self.lines: list[str] = []
        for stream in (at.process.stdout, at.process.stderr):
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: Any) -> None:
        self.lines.extend(iter(stream.readline, ""))

    def write(self, text: str) -> None:
        """Replaces the file as editors do."""
        new = self.home / "new.toml"
        new.write_text(text)
        new.replace(self.home / "dragoman.toml")

    async def names(self) -> list[str]:
        """The agents that are served."""
        async with httpx2.AsyncClient(timeout=60) as client:
            found = (await client.get(f"{self.url}/agents")).json()
        return [each["name"] for each in found["agents"]]

    async def serves(self, *names: str) -> None:
        """Waits until these agents are served."""

        async def same() -> bool:
            return sorted(await self.names()) == sorted(names)

        await until(same)

    async def logs(self, what: str) -> None:
        """Waits until it has said something."""
        await until(lambda: any(what in line for line in self.lines))


@contextmanager
def watched(home: Path, text: str) -> Iterator[Watched]:
    (home / "desk.py").write_text(DESK)
    (home / "dragoman.toml").write_text(text)
    args = ("--watch", "--store", "memory:")
    with serving(*args, cwd=home, command="gateway") as at:
        yield Watched(home, at)


def section(name: str, url: str = "", more: str = "") -> str:
    what = f'url = "{url}"' if url else 'file = "desk.py"'
    return f"[agents.{name}]\n{what}\n{more}\n"


def counter(name: str) -> tuple[Agent, asyncio.Event]:
    """An agent that says one word, and the second when the event is set."""
    agent, go = Agent(name), asyncio.Event()

    @agent.skill("count", default=True)
    async def count(turn: Turn) -> Any:
        yield "one "
        await go.wait()
        yield "two"

    return agent, go


async def test_agents_come_and_go_and_streams_of_others_go_on(tmp_path: Path) -> None:
    agent, go = counter("Counter")
    async with asyncio.timeout(240), served(agent) as url:
        with watched(tmp_path, section("a", url) + section("b")) as door:
            await door.serves("a", "b")
            async with connect(f"{door.url}/agents/a") as caller:
                stream = caller.stream("go")
                assert await _word(stream) == "one "
                door.write(section("a", url) + section("c"))
                await door.serves("a", "c")
                go.set()
                assert await _word(stream) == "two"
            async with connect(f"{door.url}/agents/c") as caller:
                assert (await caller.send("hi")).text == "HI"


async def _word(stream: Any) -> str:
    async for entry in stream:
        if isinstance(entry, Stamped) and isinstance(entry.event, ArtifactChunk):
            text = entry.event.artifact.text
            if text:
                return text
    raise AssertionError("the stream has ended")


async def test_a_changed_agent_is_another_from_now_on_and_its_streams_go_on(
    tmp_path: Path,
) -> None:
    first, go = counter("First")
    second, _ = counter("Second")
    async with asyncio.timeout(240), served(first) as url, served(second) as other:
        with watched(tmp_path, section("a", url) + section("b")) as door:
            async with connect(f"{door.url}/agents/a") as caller:
                stream = caller.stream("go")
                assert await _word(stream) == "one "
                door.write(section("a", other) + section("b"))

                async def changed() -> bool:
                    async with connect(f"{door.url}/agents/a") as new:
                        return new.card.name == "Second"

                await until(changed)
                go.set()
                assert await _word(stream) == "two"
            assert not any(
                "An agent was replaced" in line and "agent=b" in line for line in door.lines
            )


async def test_a_broken_file_is_told_with_its_line_and_changes_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(240):
        with watched(tmp_path, section("a") + section("b")) as door:
            door.write(section("a") + section("c") + "[agents.d]\nfil = 1\n")
            await door.logs("dragoman.toml:8")
            assert sorted(await door.names()) == ["a", "b"]
            door.write("")
            await door.logs("names no agents")
            door.write(section("a") + section("c", "ftp://x"))
            await door.logs("dragoman.toml:5: [agents.c] url")
            assert sorted(await door.names()) == ["a", "b"]
            door.write(section("a") + section("c"))
            await door.serves("a", "c")


async def test_sections_that_need_a_restart_are_named(tmp_path: Path) -> None:
    async with asyncio.timeout(240):
        with watched(tmp_path, section("a")) as door:
            door.write("[limits]\nconnections = 77\n" + section("a") + section("b"))
            await door.logs("[limits]")
            await door.serves("a", "b")


async def test_a_host_may_move_to_another_agent(tmp_path: Path) -> None:
    one, two = 'host = "one.example"', 'host = "two.example"'
    async with asyncio.timeout(240):
        with watched(tmp_path, section("a", more=one) + section("b")) as door:
            door.write(section("b", more=one) + section("a", more=two))
            await door.logs("The settings were taken over")
            async with httpx2.AsyncClient(timeout=60) as client:
                headers = {"host": "two.example"}
                card = f"{door.url}/.well-known/agent-card.json"
                assert (await client.get(card, headers=headers)).status_code == 200
            assert not any("is not served" in line for line in door.lines)


async def test_a_hangup_has_the_file_read_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(240):
        with watched(tmp_path, section("a")) as door:
            await door.serves("a")
            door.write(section("a") + section("b"))
            os.kill(door.process.pid, signal.SIGHUP)
            await door.serves("a", "b")
            assert door.process.poll() is None
