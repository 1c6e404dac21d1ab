"""`deploy/Dockerfile` and its page: what they run works, as far as that can be seen here."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pages import DOCS, ROOT, blocks
from ports import own_port
from waiting import wait_until

PAGE = DOCS / "guide" / "container.md"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
TOKEN = "only-for-this-test-0123456789"


def told(word: str) -> str:
    found = re.search(rf"^{word} (.+)$", DOCKERFILE, re.M)
    assert found, word
    return found[1]


def test_the_page_shows_the_file() -> None:
    assert [block.text for block in blocks(PAGE, "dockerfile")] == [DOCKERFILE]


@pytest.mark.slow  # starts processes
def test_its_command_serves_is_healthy_and_stops(tmp_path: Path) -> None:
    port = own_port()
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "agent.py").write_text((ROOT / "examples" / "hello.py").read_text("utf-8"))
    (config,) = blocks(PAGE, "toml")
    (tmp_path / "dragoman.toml").write_text(config.text)
    stored = told("ENV").replace("/data", str(data))
    env = dict(word.split("=", 1) for word in shlex.split(stored))
    env |= {"DRAGOMAN_SERVER_PORT": str(port), "ANN_TOKEN": TOKEN, "PATH": "/usr/bin:/bin"}
    command = json.loads(told("CMD"))
    assert command[0] == "dragoman"
    health = json.loads(told("HEALTHCHECK CMD"))
    check = [sys.executable, *health[1:-1], health[-1].replace("8420", str(port))]

    def healthy() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        done = subprocess.run(check, capture_output=True, check=False)
        return done.returncode == 0

    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=tmp_path, env=env, stdout=log, stderr=log
        )
    try:
        wait_until(healthy)
        assert (data / "tasks.db").is_file()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
