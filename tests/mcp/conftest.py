"""What the tests of MCP share: the agent, and a client of the official package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import ElicitRequestParams, ElicitResult

from cli.run import ENVIRON
from dragoman import Agent
from dragoman.server.agent_loader import load_agent

HERE = Path(__file__).parent


@pytest.fixture
def desk() -> Agent:
    """The agent, each time a new one."""
    return load_agent(str(HERE / "desk.py"))


@pytest.fixture
def stdio(tmp_path: Path) -> Callable[..., StdioServerParameters]:
    """`dragoman mcp ARGS`, as a client starts it."""

    def command(*args: str, **environ: str) -> StdioServerParameters:
        return StdioServerParameters(
            command=sys.executable,
            args=["-m", "dragoman", "mcp", *args],
            env={**ENVIRON, **environ},
            cwd=tmp_path,
        )

    return command


class User:
    """Someone at an MCP client who answers what is asked."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return self.answers.pop(0)


@pytest.fixture
def user() -> Callable[..., User]:
    """A user who gives these answers in turn."""
    return User


@pytest.fixture(params=["legacy", "2026-07-28"])
def client(request: pytest.FixtureRequest) -> Callable[..., AbstractAsyncContextManager[Client]]:
    """A client of either kind: one that begins with a handshake, and one without sessions."""

    def connect(server: Any, user: User | None = None) -> Client:
        return Client(server, mode=request.param, elicitation_callback=user)

    return connect
