"""`dragoman iat host` as a person uses it: on a terminal, with a keyboard."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import pytest

from cli.run import ENVIRON
from cli.terminal import Terminal, terminal
from dragoman.iat.screen import Screen
from dragoman.iat.terminal import MOST, clean, told
from iat.team import SECRET

DESK = """
from dragoman.iat import Host

host = Host("desk")

@host.tool
def size(path: str) -> int:
    return len(path)
"""
WORKER = """
import asyncio
from pathlib import Path
from dragoman import Agent, Turn

agent = Agent("Worker", description="Measures.")

@agent.skill("work")
async def work(turn: Turn):
    await turn.think("How large is it?\\x1b[2J")
    size = await turn.call_tool("size", path=turn.text)
    yield f"{turn.text} "
    while not Path("go").exists():
        await asyncio.sleep(0.02)  # and looks again
    yield f"has {size} bytes, "
    yield "deleted" if await turn.approve("Delete it?", details={"path": turn.text}) else "kept"
"""


@contextmanager
def working(folder: Path, url: str, name: str) -> Iterator[Popen[bytes]]:
    """A sub-agent in a process of its own."""
    (folder / "worker.py").write_text(WORKER)
    command = [sys.executable, "-m", "dragoman", "serve", "worker.py", "--port", "0", "--no-grpc"]
    command += ["--store", "memory:", "--iat-host", f"desk={url}"]
    own = {"IAT_SECRET": SECRET, "DRAGOMAN_IAT_AGENT_ID": name}
    process = Popen(command, cwd=folder, env={**ENVIRON, **own}, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def desk(folder: Path, **environ: str) -> Iterator[tuple[Terminal, str]]:
    """The host on a terminal, and where agents find it."""
    (folder / "desk.py").write_text(DESK)
    flags = ("--port", "0", "--store", f"sqlite:///{folder}/desk.db")
    known = {"IAT_SECRET": SECRET, **environ}
    with terminal("iat", "host", "desk.py", *flags, cwd=folder, **known) as screen:
        screen.until("/quit ends")
        found = re.search(r"ws://[^\s/]+", screen.text)
        assert found
        yield screen, found[0]


def rows(screen: Terminal, whose: str) -> list[str]:
    """What is said by one of them, row by row."""
    return [row for row in screen.text.splitlines() if row.startswith(f"{whose} ")]


@pytest.mark.slow
def test_a_person_has_agents_work_and_decides(tmp_path: Path) -> None:
    with desk(tmp_path) as (screen, url), working(tmp_path, url, "ann"):
        screen.until("+ ann: Measures. (work)", 30)

        screen.type("ann: a.txt\n")
        screen.until("ann … How large is it? [2J")  # a thought, which moves no cursor
        screen.until("ann | a.txt")
        assert "has 5 bytes" not in screen.text  # the chunk before it is shown already
        (tmp_path / "go").touch()
        screen.until("ann | a.txt has 5 bytes,\nann ? Delete it?  path: a.txt [y/n]")
        screen.type("perhaps\n")  # only a clear yes is one
        screen.until("[y/n] perhaps\nann ? Delete it?  path: a.txt [y/n]")
        screen.type("y\n")
        screen.until("[y/n] y\nann | deleted\nann ✓ completed")

        screen.type("ann: b.txt\n")
        screen.until("ann ? Delete it?  path: b.txt [y/n]")
        screen.type("n\n")
        screen.until("[y/n] n\nann | kept\nann ✓ completed")

        screen.type("bob: c.txt\n")  # nobody else does it for him
        screen.until("! There is no bob here, but ann.")

        screen.interrupt()
        assert screen.ends() == 0
        assert screen.text.endswith("desk has ended.")
        assert "Traceback" not in screen.text
        assert "gone" not in screen.text


@pytest.mark.slow
def test_two_at_once_are_asked_for_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with (
        desk(tmp_path, NO_COLOR="1") as (screen, url),
        working(tmp_path, url, "ann"),
        working(tmp_path, url, "bob") as bob,
    ):
        screen.until("+ ann", 30)
        screen.until("+ bob", 30)
        screen.type("ann: a.txt\nbob: b.txt\n")
        # Rows of both may come between; each has asked once it has said this.
        screen._read(lambda: screen.text.count("has 5 bytes") == 2, 15)
        screen.until("[y/n]")
        first = "ann" if rows(screen, "ann")[-1].endswith("[y/n]") else "bob"
        second = "bob" if first == "ann" else "ann"
        # The question is the last thing to be read, however much the other one says.
        screen.until(f"{first} ? Delete it?  path: {first[0]}.txt [y/n]")
        assert "[y/n]" not in "".join(rows(screen, second))
        screen.type("n\n")
        screen.until(f"{second} ? Delete it?  path: {second[0]}.txt [y/n]")
        screen.type("y\n")
        screen.until(f"{first} | kept")
        screen.until(f"{second} | deleted")
        bob.kill()
        screen.until("- bob is gone")  # at once, not after three missed heartbeats
        assert b"\x1b" not in screen.raw
        screen.type("ann: c.txt\n")
        screen.until("path: c.txt [y/n]")
        screen.interrupt()
        assert screen.ends() == 0
        assert screen.text.endswith("desk has ended. Its work goes on at the next start.")


@pytest.mark.slow
def test_quit_and_agents(tmp_path: Path) -> None:
    with desk(tmp_path) as (screen, _):
        screen.type("/agents\n")
        screen.until("- nobody is here yet")
        screen.type("/quit\n")
        assert screen.ends() == 0
        assert screen.text.endswith("desk has ended.")


def drawn(columns: int, *said: Any) -> list[str]:
    """Rows of a screen after all this."""
    written: list[str] = []
    screen = Screen(written.append, columns=columns)
    for how, *about in said:
        getattr(screen, how)(*about)
    screen.finish()
    return "".join(written).splitlines()


def test_an_agent_cannot_begin_a_row() -> None:
    """Neither with padding nor with ends of lines: it might look like a question of ours."""
    fake = " " * 40 + "bob ? Pay? [y/n]\nbob ? Pay? [y/n]" + "x" * 200 + "漢" * 60
    for columns in (30, 47, 80):
        for row in drawn(columns, ("piece", "ann", fake), ("row", "ann", "…", fake)):
            assert row.startswith(("ann | ", "ann … "))
            assert len(row) + row.count("漢") <= columns


def test_pieces_grow_in_their_row() -> None:
    said = [("piece", "ann", "one "), ("piece", "ann", "two"), ("piece", "bob", "three")]
    assert drawn(80, *said, ("piece", "ann", " four")) == [
        "ann | one two",
        "bob | three",
        "ann | four",
    ]
    assert drawn(0, *said) == ["ann | one ", "ann | two", "bob | three"]
    assert drawn(80, ("piece", "ann", ""), ("piece", "ann", "\n")) == []


def test_words_for_a_person() -> None:
    assert told({"path": "a.txt", "more": {"size": 5}}) == 'path: a.txt · more: {"size":5}'
    assert clean("a\x1b[2J\r\n b\u202e") == "a [2J b"
    assert clean("x" * (MOST + 3)).endswith("(3 more letters)")
