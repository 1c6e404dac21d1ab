"""Every example, and the showcase, answers the inputs it advertises.

`tests/cli/test_examples.py` checks what they answer; this finds new ones by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman import State
from dragoman.server.agent_loader import load_agent
from dragoman.testing import Client

ROOT = Path(__file__).parents[1]
FILES = (*sorted((ROOT / "examples").glob("*.py")), ROOT / "src" / "dragoman" / "showcase.py")
GOOD = {State.COMPLETED, State.INPUT_REQUIRED, State.AUTH_REQUIRED}
ANYTHING = "some tea"
"""Said to a first skill that gives no example of its own."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_every_skill_answers_its_own_examples(file: Path) -> None:
    agent = load_agent(str(file))
    first = agent.choose("") if agent.skills else None  # a backend runs none, it only lists them
    async with Client(agent) as client:
        for skill in agent.skills.values() or agent.card().skills:
            for text in skill.examples or ([ANYTHING] if skill is first else []):
                task = await client.send(text, skill=skill.id)
                assert task.state in GOOD, f"{skill.id} {text!r}: {task.status.message}"


@pytest.mark.parametrize("name", ["hello", "echo"])
def test_the_shortest_examples_have_six_lines(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 6


def test_every_longer_example_says_what_it_shows() -> None:
    for file in FILES:
        text = file.read_text("utf-8")
        assert text.startswith('"""') or len(text.splitlines()) < 10, file.name
