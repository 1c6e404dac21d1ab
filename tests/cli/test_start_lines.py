"""What `serve` and `gateway` say when they start, about gRPC on the card and the agents behind."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO

import pytest

from cli.run import serving
from gateway.test_strangers_ids import CARD_0_3, stranger
from ports import own_port

AGENT = """\
from dragoman import Agent, Turn

agent = Agent("Echo", description="Repeats")

@agent.skill("echo", default=True)
async def echo(turn: Turn) -> str:
    return turn.text
"""


def until_line(stdout: IO[str], words: str) -> list[str]:
    """Reads lines up to one with these words; fails if it does not come."""
    lines: Queue[str | None] = Queue()

    def read() -> None:
        for line in stdout:
            lines.put(line)
        lines.put(None)

    Thread(target=read, daemon=True).start()

    def found() -> Iterator[str]:
        while (line := lines.get(timeout=120)) is not None:
            yield line
            if words in line:
                return
        raise AssertionError(f"it did not say {words!r}")

    return list(found())


@pytest.mark.slow  # starts a process
@pytest.mark.parametrize("command", ["serve", "gateway"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_card_with_grpc_is_told_at_the_start(
    tmp_path: Path, command: str, *, listed: bool
) -> None:
    config = f"[server]\ngrpc = true\ngrpc_port = {own_port()}\nstore = 'memory:'\n"
    config += "" if listed else "grpc_listed = false\n"
    (tmp_path / "echo.py").write_text(AGENT)
    (tmp_path / "dragoman.toml").write_text(f"{config}[agents.echo]\nfile = 'echo.py'\n")
    with serving(cwd=tmp_path, command=command) as server:
        assert server.process.stdout is not None
        said = "".join(until_line(server.process.stdout, "Ctrl-C"))
        assert ("grpc_listed = false" in said) == listed, said
        with urllib.request.urlopen(f"{server.url}/.well-known/agent-card.json") as answer:
            card = json.load(answer)
    bindings = {each["protocolBinding"] for each in card["supportedInterfaces"]}
    assert ("GRPC" in bindings) == listed


@pytest.mark.slow  # starts a process
def test_a_gateway_says_which_dialect_an_agent_speaks(tmp_path: Path) -> None:
    with stranger(CARD_0_3, lambda asked: {}) as url:
        (tmp_path / "dragoman.toml").write_text(
            f"[server]\nstore = 'memory:'\n[agents.desk]\nurl = '{url}'\n"
        )
        with serving(cwd=tmp_path, command="gateway") as server:
            assert server.process.stdout is not None
            said = until_line(server.process.stdout, "speaks a2a-0.3")
    assert "Stranger" in said[-1]
