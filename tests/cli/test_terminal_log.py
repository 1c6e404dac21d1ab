"""What a developer sees on the terminal while an agent is served."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx2
import pytest

from cli.run import AGENT, dragoman, serving
from cli.terminal import terminal

pytestmark = pytest.mark.slow  # starts processes
CRASHES = """

@agent.skill("crash")
async def crash(turn: Turn) -> str:
    return helper(turn.text)


def helper(text: str) -> str:
    return text + 1
"""


def test_a_terminal_shows_one_line_for_each_call_and_tracebacks_of_the_authors_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "agent.py").write_text(AGENT + CRASHES)
    options = ("agent.py", "--store", "memory:", "--port", "0")
    with terminal("serve", *options, cwd=tmp_path) as screen:
        screen.until("Ctrl-C stops it")
        found = re.search(r"http://[\d.:]+", screen.text)
        assert found
        task = dragoman("send", found[0], "hi", "--json", cwd=tmp_path).stdout
        task_id = re.search(r'"id":"([^"]+)"', task)
        assert task_id
        screen.until("ms")
        screen.until(task_id[1][-4:])
        flat = "".join(screen.text.split())  # a terminal breaks a long line anywhere
        assert re.search(rf"a2a-1.0SendMessageechocompleted\d+ms{task_id[1]}", flat), flat
        dragoman("send", found[0], "hi", "--skill", "crash", cwd=tmp_path)
        screen.until("TypeError: can only concatenate")
        after = "".join(screen.text.split("The skill crashed")[1].split())
        frames = re.findall(r'File"[^"]+/(\w+\.py)",line\d+,in(crash|helper|\w+?)return', after)
        assert frames == [("agent.py", "crash"), ("agent.py", "helper")]
        assert "skill_driver" not in after
        httpx2.post(found[0], content=b"{", headers={"content-type": "application/json"})
        screen.until("unparseable")
        assert b"\x1b[32mcompleted" in screen.raw
        screen.interrupt()
        assert screen.ends() == 0


def test_without_colours_where_they_are_not_wanted(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    options = ("agent.py", "--store", "memory:", "--port", "0")
    with terminal("serve", *options, cwd=tmp_path, NO_COLOR="1") as screen:
        screen.until("Ctrl-C stops it")
        screen.until("started")
        assert b"\x1b[2m" not in screen.raw


def test_a_pipe_gets_lines_for_programs_and_none_for_calls(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT + CRASHES)
    with serving("agent.py", "--store", "memory:", cwd=tmp_path) as server:
        dragoman("send", server.url, "hi", "--skill", "crash", cwd=tmp_path)
        _, _, logged = server.end()
    day = time.strftime("%Y-")
    assert all(line.startswith(day) for line in logged.splitlines())
    assert "completed" not in logged
    assert "traceback=" in logged
