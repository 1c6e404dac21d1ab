"""Files stay small, and folders too. A file that needs more lines says why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = {"src": 400, "bench": 400, "examples": 400, "docs": 400, "tests": 800}
"""By folder. Tests may be longer: a list of cases reads well to its end."""
MOST_MODULES = 18
EXCEPTIONS: dict[str, str] = {}
"""Path from the root: the reason why it may be longer."""


def test_no_source_file_is_too_long() -> None:
    sizes = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines())
        for folder in MOST_LINES
        for path in (ROOT / folder).rglob("*.py")
    }
    assert len(sizes) > 50
    long = {name: n for name, n in sizes.items() if n > MOST_LINES[name.partition("/")[0]]}
    assert {name: n for name, n in long.items() if name not in EXCEPTIONS} == {}
    assert sorted(EXCEPTIONS) == sorted(long), "these exceptions are needed no more"


def test_no_folder_has_too_many_modules() -> None:
    modules = [path for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in modules)
    assert {name: n for name, n in folders.items() if n > MOST_MODULES} == {}
