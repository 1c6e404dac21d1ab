"""Stores to run the engine on."""

from __future__ import annotations

from pathlib import Path

import pytest

from counts import FULL, QUICK
from engine.harness import Clock, EngineHarness
from postgres import store_url


@pytest.fixture(
    params=["memory", "sqlite", *(["file"] * (not QUICK)), *(["postgres"] if FULL else [])]
)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> EngineHarness:
    """A home for tasks, one of each kind."""
    return EngineHarness(url_of(request.param, tmp_path))


@pytest.fixture(params=["sqlite", "file"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> EngineHarness:
    """A home that outlives a process."""
    return EngineHarness(url_of(request.param, tmp_path))


@pytest.fixture
def memory() -> EngineHarness:
    """A home in memory."""
    return EngineHarness("memory:")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> EngineHarness:
    """A home for several engines at once."""
    return EngineHarness(url_of(request.param, tmp_path))


@pytest.fixture
def clock() -> Clock:
    """A clock to move by hand."""
    return Clock()


def url_of(kind: str, folder: Path) -> str:
    """The URL of a fresh store of a kind."""
    if kind == "postgres":
        return store_url(folder)
    return {
        "memory": "memory:",
        "sqlite": f"sqlite:///{folder}/tasks.db",
        "file": f"file://{folder}/tasks",
    }[kind]
