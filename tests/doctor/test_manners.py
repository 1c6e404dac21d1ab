"""A doctor who leaves things as they were, and who does not talk when nobody is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.run import Served, dragoman, serving
from dragoman import connect
from dragoman.doctor import Orders, examine

AGENT = Path(__file__).with_name("agent.py")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("patient")
    with serving(str(AGENT), "--store", "memory:", "--no-grpc", cwd=folder) as served:
        yield served


async def test_webhooks_are_taken_back(served: Served) -> None:
    report = examine(served.url, Orders(only=("push.*",), text="one two three"))
    assert {r.outcome for r in report.results if r.id == "push.set"} == {"pass"}
    async with connect(served.url) as agent:
        left = [
            hook.url
            async for task in agent.tasks()
            for hook in (await agent.list_hooks(task)).hooks
        ]
    assert left == []


def test_nobody_there_is_said_once(tmp_path: Path) -> None:
    done = dragoman("doctor", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 3
    first, *rest = done.stdout.splitlines()
    assert first.startswith("No A2A agent at http://127.0.0.1:1: it cannot be reached")
    assert len(rest) == 1
    assert "--verbose" in rest[0]
    whole = dragoman("doctor", "127.0.0.1:1", "--verbose", cwd=tmp_path)
    assert "FAIL card.found" in whole.stdout


def test_an_interface_must_be_one(served: Served, tmp_path: Path) -> None:
    strange = dragoman("doctor", served.url, "--on", "jsonrpc-1", cwd=tmp_path)
    assert strange.returncode == 2
    assert "jsonrpc-1.0" in strange.stderr
    absent = dragoman("doctor", served.url, "--on", "grpc-1.0", cwd=tmp_path)
    assert absent.returncode == 3
    assert "no interface that was asked for" in absent.stdout


def test_an_address_needs_no_scheme(served: Served, tmp_path: Path) -> None:
    done = dragoman("doctor", served.url.partition("//")[2], "--only", "card.name", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_check_that_is_none_is_told_which_there_are(served: Served, tmp_path: Path) -> None:
    done = dragoman("doctor", served.url, "--only", "crad.*", cwd=tmp_path)
    assert done.returncode == 2
    assert "card.*" in done.stderr
