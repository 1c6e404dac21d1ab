"""A server whose database is away: it waits for it at the start, and does not wait at the stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import httpx2
import pytest

from dragoman.store.postgres.address import parse_address
from net.served_peer import call, said
from ports import own_port
from postgres import Server
from waiting import LIMIT, wait_until

pytestmark = pytest.mark.slow

AGENT = """
from dragoman import Agent, Turn

agent = Agent("Desk", description="Asks.")


@agent.skill("ask")
async def ask(turn: Turn) -> str:
    return "You said " + await turn.ask("What?")
"""
V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}
STOPPED_WITHIN_SECONDS = 30.0
"""An orchestrator gives ten, and the stop takes about seven; it was a minute once."""


@contextmanager
def serving(folder: Path, store: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    (folder / "desk.py").write_text(AGENT)
    port = own_port()
    words = ["serve", str(folder / "desk.py"), "--store", store, "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", *words],
        env={**os.environ, "DRAGOMAN_SECRET_KEY": "k" * 40},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.communicate()


def status(url: str) -> int:
    try:
        with urlopen(url, timeout=LIMIT) as answer:
            return int(answer.status)
    except HTTPError as refused:
        return refused.code
    except OSError:
        return 0


def send(base: str, text: str, **about: str) -> httpx2.Response:
    params = said(text)
    params["message"] |= about
    content = call("SendMessage", params)
    return httpx2.post(f"{base}/", content=content, headers=V1, timeout=LIMIT)


def test_a_server_that_starts_before_its_database_waits_for_it(tmp_path: Path) -> None:
    database = Server("fsync = off")
    try:
        database.stop()
        with serving(tmp_path, database.url) as (base, process):
            wait_until(lambda: status(f"{base}/healthz") == 200)
            ready = httpx2.get(f"{base}/readyz")
            assert ready.status_code == 503
            where = rf"PostgreSQL at {re.escape(parse_address(database.url).place)}"
            said_away = where + r" is not reachable since \d\d:\d\d UTC\.\n"
            assert re.fullmatch(said_away, ready.text)
            refused = send(base, "hi")
            assert refused.status_code == 503
            assert "retry-after" in refused.headers
            assert "waits for its database" in refused.text
            database.start()
            wait_until(lambda: status(f"{base}/readyz") == 200)
            assert send(base, "hi").json()["result"]["task"]["status"]["state"].endswith("REQUIRED")
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)
            assert process.returncode == 0
            assert "We wait for the store" in log
            (line,) = [each for each in log.splitlines() if "is not reachable" in each]
            assert re.search(rf"Z error {where} is not reachable why=", line)
            assert len(re.findall(rf"Z info {where} is back seconds=", log)) == 1
            assert "Traceback" not in log
    finally:
        database.remove()


def test_a_server_that_waits_for_its_database_can_be_stopped(tmp_path: Path) -> None:
    database = Server("fsync = off")
    try:
        database.stop()
        with serving(tmp_path, database.url) as (base, process):
            wait_until(lambda: status(f"{base}/healthz") == 200)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT)
            assert process.returncode == 0
    finally:
        database.remove()


def test_a_stop_does_not_wait_for_a_database_that_is_away_and_loses_nothing(tmp_path: Path) -> None:
    database = Server("fsync = off")
    try:
        with serving(tmp_path, database.url) as (base, process):
            wait_until(lambda: status(f"{base}/readyz") == 200)
            task = send(base, "hi").json()["result"]["task"]["id"]
            database.stop()
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)
            assert time.monotonic() - began < STOPPED_WITHIN_SECONDS
            assert process.returncode == 0
            assert "before everything was returned to its store" in log
            assert "Traceback" not in log
        database.start()
        with serving(tmp_path, database.url) as (base, _):
            wait_until(lambda: status(f"{base}/readyz") == 200)
            done = send(base, "four", taskId=task).json()["result"]["task"]
            assert done["artifacts"][0]["parts"][0]["text"] == "You said four"
    finally:
        database.remove()


def test_a_database_that_goes_and_comes_back_is_one_line_each(tmp_path: Path) -> None:
    """Calls, looks for work and `/readyz` all fail meanwhile, hundreds of times."""
    database = Server("fsync = off")
    try:
        with serving(tmp_path, database.url) as (base, process):
            wait_until(lambda: status(f"{base}/readyz") == 200)
            database.stop()
            wait_until(lambda: status(f"{base}/readyz") == 503)
            for _ in range(3):
                assert send(base, "hi").status_code == 503
            ready = httpx2.get(f"{base}/readyz", timeout=LIMIT).text
            assert re.fullmatch(
                r"PostgreSQL at \S+ is not reachable since \d\d:\d\d UTC\.\n", ready
            )
            database.start()
            wait_until(lambda: status(f"{base}/readyz") == 200)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)
            lines = [each for each in log.splitlines() if "PostgreSQL at" in each]
            assert [each.split()[1] for each in lines] == ["error", "info"], log
            assert "Traceback" not in log
    finally:
        database.remove()
