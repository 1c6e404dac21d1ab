"""`dragoman demo`: the tour of everything, as its user sees it."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import pages
from cli.run import ENVIRON, dragoman
from dragoman.cli.serve.tour.steps import TICK, program, ticking
from waiting import until

pytestmark = pytest.mark.slow
FAREWELL = "Still serving."


def test_the_demo_shows_everything_and_ends_by_itself(tmp_path: Path) -> None:
    shown = dragoman("demo", "--port", "0", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for words in (
        "The gateway listens there",
        "144 of 144 answers were right",
        "lite asks lite: hello from lite -> HELLO FROM LITE",
        "29 chunks",
        "How many days in Kyoto?   (input-required)",
        "Day 3 in Kyoto",
        "10 steps done in attempt 2",
        "Try it yourself",
    ):
        assert words in shown.stdout, shown.stdout
    first = shown.stdout.splitlines()[:3]
    assert re.fullmatch(r" *http://127\.0\.0\.1:\d+/", first[2]), first
    assert "\nStarting the agents and the gateway ..." in shown.stdout
    rows = re.findall(r"^ {3}(\S+) +(?:\d+ +){11}\d+$", shown.stdout, re.MULTILINE)
    assert len(rows) == 12, shown.stdout
    assert os.listdir(tmp_path) == []
    picture = pages.docs_module("pictures").words_of("demo").removeprefix("$ dragoman demo")
    now = re.sub(r"\S*python[\d.]* -m dragoman|\S+/dragoman", "dragoman", shown.stdout)
    assert pages.squeezed(picture) == pages.squeezed(now), "run: make pictures"


def test_its_commands_run_as_they_are_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "demo", "--port", "0", "--stay"],
        cwd=tmp_path,
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs these tests in the background has us ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert demo.stdout is not None
        said = ""
        for line in demo.stdout:
            said += line
            if FAREWELL in line:
                break
        _, _, ending = said.partition("Try it yourself")
        commands = [each for each in ending.split("\n\n") if "http://" in each or "grpc" in each]
        assert len(commands) == 7, said
        found = {}
        for command in commands:
            ran = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=tmp_path,
                env=ENVIRON,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert ran.returncode == 0, (command, ran.stderr)
            found[command.strip()] = ran.stdout
        metrics, card, stream, _chat, older, iat, grpc = found.values()
        assert "dragoman_" in metrics
        assert '"Showcase"' in card
        assert "dragoman " in stream
        assert [each.strip() for each in (older, iat, grpc)] == ["HELLO"] * 3
        pids = re.findall(r"\(process (\d+)\)", said) + re.findall(r"process (\d+) takes", said)
        demo.send_signal(signal.SIGINT)
        rest, wrong = demo.communicate(timeout=120)
        assert (demo.returncode, wrong) == (0, "")
        assert "The demo has ended" in rest
        assert len(pids) == 5
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)
    finally:
        if demo.poll() is None:
            demo.kill()
        demo.communicate()


def test_make_demo_installs_what_runs_and_not_what_tests(tmp_path: Path) -> None:
    planned = subprocess.run(
        ["make", "-n", "demo", f"VENV={tmp_path}/env"],
        cwd=pages.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert "-r requirements.lock" not in planned
    slow = [
        line for line in planned.splitlines() if re.search(r"pip install|packages|-m venv", line)
    ]
    assert len(slow) == 4
    assert all(line.startswith("while sleep 2; do printf .") for line in slow)


async def test_what_takes_long_shows_that_it_goes_on() -> None:
    said = io.StringIO()
    async with ticking(Console(file=said), "Starting ...", every=0.01):
        await until(lambda: said.getvalue().endswith("......"))
    assert re.fullmatch(r"Starting \.{6,}\n", said.getvalue())
    assert TICK < 3


def test_commands_name_the_program_as_the_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "dragoman"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    assert program([str(there)]) == str(there)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program([str(there)]) == "dragoman"
