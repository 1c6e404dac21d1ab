"""Stores to run the engine on."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.harness import Clock, House


@pytest.fixture(params=["memory", "sqlite", "file"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    """A home for tasks, one of each kind."""
    return House(url_of(request.param, tmp_path))


@pytest.fixture(params=["sqlite", "file"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    """A home that outlives a process."""
    return House(url_of(request.param, tmp_path))


@pytest.fixture
def memory() -> House:
    """A home in memory."""
    return House("memory:")


@pytest.fixture
def shared(tmp_path: Path) -> House:
    """A home for several engines at once."""
    return House(url_of("sqlite", tmp_path))


@pytest.fixture
def clock() -> Clock:
    """A clock to move by hand."""
    return Clock()


def url_of(kind: str, folder: Path) -> str:
    """The URL of a fresh store of a kind."""
    return {
        "memory": "memory:",
        "sqlite": f"sqlite:///{folder}/tasks.db",
        "file": f"file://{folder}/tasks",
    }[kind]
