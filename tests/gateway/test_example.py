"""The files of examples/gateway run as they stand, with the commands of its README."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cli.run import ENVIRON
from ports import own_port

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "gateway"


def blocks(folder: Path) -> list[list[str]]:
    """The commands of each block of the README."""
    text = (folder / "README.md").read_text("utf-8")
    return [found.strip().splitlines() for found in re.findall(r"```sh\n(.*?)```", text, re.S)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, on ports that nobody else has: 9001, 9002 and 8420 may be taken."""
    found = shutil.copytree(EXAMPLE, tmp_path / "gateway")
    ports = {port: str(own_port()) for port in ("9001", "9002", "8420")}
    for file in (found / "README.md", found / "dragoman.toml"):
        text = file.read_text("utf-8")
        for port, own in ports.items():
            text = text.replace(port, own)
        file.write_text(text.replace("dragoman gateway\n", f"dragoman gateway --port {own}\n"))
    return found


def words(command: str) -> list[str]:
    program, *rest = shlex.split(command)
    assert program == "dragoman"
    return [sys.executable, "-m", "dragoman", *rest]


@contextmanager
def running(command: str, folder: Path) -> Iterator[None]:
    """Runs a server, from when it listens."""
    process = subprocess.Popen(
        words(command),
        cwd=folder,
        env={**ENVIRON, "IAT_SECRET": "any-words-you-like"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "listens at" in process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.communicate(timeout=120)


def test_three_agents_of_three_dialects_answer_callers_of_any(folder: Path) -> None:
    servers, calls = blocks(folder)
    assert len(servers) == 3
    with ExitStack() as stack:
        for command in servers:
            stack.enter_context(running(command, folder))
        found = [
            subprocess.run(
                words(command),
                cwd=folder,
                env={**ENVIRON, "IAT_SECRET": "any-words-you-like"},
                capture_output=True,
                text=True,
                timeout=120,
            )
            for command in calls
        ]
    gamma, beta, beta_by_iat, alpha = found
    assert gamma.stdout.strip() == "HELLO", gamma.stderr
    assert beta.stdout.strip() == "one two three", beta.stderr
    assert beta_by_iat.stdout.strip() == "one two", beta_by_iat.stderr
    assert (alpha.returncode, "How many days in Kyoto?" in alpha.stderr) == (4, True), alpha.stderr


def test_the_settings_are_checked_without_calling_anybody(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "dragoman", "gateway", "check", str(EXAMPLE / "dragoman.toml")],
        cwd=tmp_path,
        env={**ENVIRON, "IAT_SECRET": "any-words-you-like"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "3 agents" in found.stdout
