"""`examples/team.py`: three agents, three dialects, one command, one result."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

TEAM = Path(__file__).parents[2] / "examples" / "team.py"


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize(("month", "takes"), [("July", "a hat"), ("January", "a coat")])
async def test_the_team_plans_a_trip(month: str, takes: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(TEAM), "three", "days", "in", "Kyoto"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(f"{month}\n".encode())
    assert process.returncode == 0
    asked, result = out.decode().splitlines()
    assert asked == "In which month will you be in Kyoto?"
    assert result == (
        f"> In Kyoto see the old town, the gardens and the night market of Kyoto. Take {takes}."
    )
