"""A file is cut by meaning, not by size; but one that nobody can hold in the head says why."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "bench", "examples", "docs", "tests")
MAX_LINES = 800
EXCEPTIONS: dict[str, str] = {}
"""Path from the root: the reason why it may be longer."""


def test_no_file_is_too_long_to_be_held_in_the_head() -> None:
    sizes = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines())
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    assert len(sizes) > 50
    long = {name: lines for name, lines in sizes.items() if lines > MAX_LINES}
    assert {name: lines for name, lines in long.items() if name not in EXCEPTIONS} == {}
    assert sorted(EXCEPTIONS) == sorted(long), "these exceptions are needed no more"
