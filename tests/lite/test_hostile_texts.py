"""A member of a room that writes texts which are made to take long. It is a script at the other end
of two pipes, and imports nothing of Dragoman."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from cli.run import ENVIRON

AGENT = """
from dragoman import Agent, Turn

agent = Agent("Desk", description="Shouts.")

@agent.skill("shout")
async def shout(turn: Turn) -> str:
    return turn.text.upper()
"""
HOSTILE = {
    "attachment": "[A2A:task id=m1]\n[附件:" + " " * 60_000 + "x",
    "data": "[A2A:task id=m2]\n" + "```json data\n" * 15_000,
    "card": "[A2A:card]\n" + "```json\n" * 30_000,
    "brackets": "[A2A:task id=m3]\n" + "[" * 200_000,
}


@pytest.mark.slow  # starts a process
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_one_message_does_not_stop_the_room(text: str, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(AGENT)
    command = (sys.executable, "-m", "dragoman", "lite", "serve", "desk.py", "--channel", "stdio")
    with subprocess.Popen(
        [*command, "--user", "desk", "--room", "town"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=ENVIRON,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        hung = Timer(120, process.kill)
        hung.start()
        try:
            for sender, said in (("mallory", text), ("anna", "[A2A:task id=a1]\nhello")):
                line = {"room": "town", "from": sender, "text": said}
                process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            answers = (json.loads(line)["text"] for line in process.stdout)
            assert any("task=a1 state=completed" in each and "HELLO" in each for each in answers)
        finally:
            hung.cancel()
            process.kill()
