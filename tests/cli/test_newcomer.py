"""What someone meets who follows the first pages: what is printed can be typed, errors say how."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.run import dragoman, serving

AGENT = """
from dragoman import Agent, Turn

agent = Agent("Greeter")

@agent.skill("greet")
async def greet(turn: Turn) -> str:
    return f"Hello, {await turn.ask('What is your name?')}!"
"""


@pytest.mark.slow  # starts processes
def test_how_to_answer_is_one_line_to_copy(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    with serving("agent.py", "--store", "memory:", "--no-grpc", cwd=tmp_path) as served:
        task = dragoman("send", served.url, "hi", "--no-wait", cwd=tmp_path).stdout.strip()
        dragoman("tasks", "watch", served.url, task, cwd=tmp_path)  # until it asks
        shown = dragoman("tasks", "get", served.url, task, cwd=tmp_path).stdout
    assert f"Answer with: dragoman send {served.url} ANSWER --task {task}" in shown.splitlines()


@pytest.mark.slow  # starts processes
def test_a_new_project_keeps_its_keys_to_itself(tmp_path: Path) -> None:
    assert dragoman("new", "desk", cwd=tmp_path).returncode == 0
    made = dragoman("keys", "new", cwd=tmp_path / "desk")
    assert made.returncode == 0, made.stderr
    (key,) = (tmp_path / "desk").glob("card-*.jwk")
    ignored = (tmp_path / "desk" / ".gitignore").read_text().split()
    assert any(key.match(pattern) for pattern in ignored)


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("new", "1st"), "a letter first"),
        (("approvals", "list"), "--store"),
        (("outbox", "list"), "--store"),
        (("data", "export", "--task", "t"), "--store"),
        (("approvals", "approve"), "dragoman approvals list"),
        (("bench", "127.0.0.1:1", "--count", "0"), "at most 1,000,000"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_told_with_what_to_do(
    words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    done = dragoman(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert told in done.stderr


@pytest.mark.slow  # starts processes
def test_nobody_there_sends_nobody_in_circles(tmp_path: Path) -> None:
    done = dragoman("card", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 3
    assert "dragoman card" not in done.stderr
