"""Nothing waits a fixed time for something to happen.

A pause that belongs to what a test plays (an agent at work, an attacker that dawdles, a look that
is repeated) says so in a comment on its line. What waits for a condition uses `tests/waiting.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
SLEEP = re.compile(r"(?<!def )\bsleep\((?!\s*0\s*\)|PATIENCE)")
MOST = 105
"""Pauses with a reason; make it smaller when there are fewer."""


def pauses() -> list[tuple[str, str]]:
    """Where tests pause, and the line."""
    found = []
    for path in sorted(TESTS.rglob("*")):
        if path.suffix in (".py", ".mjs") and path.name not in ("waiting.py", "test_sleeps.py"):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if SLEEP.search(line):
                    found.append((f"{path.relative_to(TESTS)}:{number}", line))
    return found


def test_a_pause_says_what_it_is_a_part_of() -> None:
    silent = [where for where, line in pauses() if not re.search(r"(#|//) (?!noqa)\w", line)]
    assert silent == [], "wait for the condition, or say why the time must pass"


def test_pauses_are_rare() -> None:
    assert len(pauses()) <= MOST
