"""`--log-format json`: whatever the server and its libraries log is one JSON object a line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.run import dragoman, serving
from cli.test_serve import message, send

pytestmark = pytest.mark.slow  # starts processes

AGENT = """
import logging
import threading
import warnings

from dragoman import Agent, Turn

agent = Agent("Loud", description="Says much to the log.")


@agent.skill("loud")
async def loud(turn: Turn) -> str:
    logging.getLogger("a.library").warning(
        "two\\nlines and %s", '"quotes"', extra={"level": "own", "size": 3, "odd": {1, 2}}
    )
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("a.library").exception("It broke")
    warnings.warn("old \\u2028 ways", stacklevel=1)
    thread = threading.Thread(target=lambda: 1 / 0, name="worker")
    thread.start()
    thread.join()
    raise RuntimeError("boom")
"""


def objects(text: str) -> list[dict[str, Any]]:
    """Reads a log as a collector does: each line by itself."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(each, dict) for each in found)
    assert all({"time", "level", "message"} <= each.keys() for each in found)
    return found


def test_every_line_is_an_object(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    with serving("agent.py", "--log-format", "json", "--store", "memory:", cwd=tmp_path) as server:
        assert "FAILED" in str(send(server.url, "SendMessage", message("go")))
        code, _, logged = server.end()
    assert code == 0
    lines = objects(logged)
    by_message = {each["message"]: each for each in lines}
    assert by_message["started"]["agent"] == "Loud"
    assert by_message["started"]["pid"] > 0
    library = by_message['two\nlines and "quotes"']
    assert (library["logger"], library["level"], library["size"]) == ("a.library", "warning", 3)
    assert "ZeroDivisionError: division by zero" in by_message["It broke"]["traceback"]
    assert any("old \u2028 ways" in each["message"] for each in lines)
    crashed = [each for each in lines if "RuntimeError: boom" in each.get("traceback", "")]
    assert crashed[0]["level"] == "error"
    threads = [each for each in lines if each.get("thread") == "worker"]
    assert "ZeroDivisionError" in threads[0]["traceback"]


def test_all_processes_of_a_server_log_objects(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    flags = ("--log-format", "json", "--workers", "2")
    with serving("agent.py", *flags, cwd=tmp_path) as server:
        send(server.url, "SendMessage", message("go"))
        _, _, logged = server.end()
    assert len({each["pid"] for each in objects(logged) if each["message"] == "started"}) == 3


def test_the_settings_and_variables_set_it_too(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "dragoman.toml").write_text('[server]\nlog_format = "json"\n')
    with serving("agent.py", "--store", "memory:", cwd=tmp_path) as server:
        _, _, logged = server.end()
    assert objects(logged)[0]["message"] == "started"


@pytest.mark.parametrize("broken", ["raise RuntimeError('at import')", "agent = 1"])
def test_a_start_that_fails_says_so_in_an_object(tmp_path: Path, broken: str) -> None:
    (tmp_path / "agent.py").write_text(broken)
    done = dragoman("serve", "agent.py", "--log-format", "json", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = objects(done.stderr)
    assert line["level"] == "error"
    assert "agent.py" in line["message"]


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    done = dragoman("serve", "agent.py", "--log-format", "xml", cwd=tmp_path)
    assert done.returncode == 2
    assert "xml" in done.stderr


def test_a_program_that_serves_by_itself_has_it_too(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        AGENT + '\nagent.serve(port=0, store="memory:", log_format="json", '
        "on_start=lambda url: 1 / 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "agent.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in objects(done.stderr)[-1]["traceback"]
