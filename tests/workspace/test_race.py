"""Someone swaps files and folders against links while they are used: nothing outside is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.errors import TooLarge, WorkspaceViolation
from dragoman.workspace import Folder
from workspace.conftest import SECRET, state_of

pytestmark = pytest.mark.slow  # starts processes

FULL = os.environ.get("DRAGOMAN_FULL") == "1"
SECONDS = 20.0 if FULL else 1.0

PATHS = ("secret.txt", "box/secret.txt")
VERBS: dict[str, Callable[[Folder, str], Any]] = {
    "read": lambda folder, path: folder.read_text(path),
    "open": lambda folder, path: _read(folder, path),
    "list": lambda folder, path: [e.name for e in folder.list("box")],
    "append": lambda folder, path: _append(folder, path),
    "update": lambda folder, path: folder.open(path, "r+").close(),
    "write": lambda folder, path: folder.write_text(path, "inside"),
    "new": lambda folder, path: folder.write_text("box/new.txt", "inside"),
    "rename": lambda folder, path: folder.rename("box/new.txt", "box/newer.txt"),
    "remove": lambda folder, path: folder.remove("box/newer.txt"),
    "truncate": lambda folder, path: folder.open(path, "w").close(),
}


def _read(folder: Folder, path: str) -> bytes:
    with folder.open(path, "rb") as file:
        found: bytes = file.read()
    return found


def _append(folder: Folder, path: str) -> None:
    with folder.open(path, "a") as file:
        file.write("inside")


def swapping(root: Path, outside: Path) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("swapper.py")
    words = [sys.executable, str(script), str(root), str(outside), str(SECONDS)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_no_byte_outside_is_read_or_written(folder: Folder, root: Path, outside: Path) -> None:
    before = state_of(outside)
    seen: Counter[str] = Counter()
    with swapping(root, outside) as swapper:
        while swapper.poll() is None:
            for verb, tried in VERBS.items():
                for path in PATHS:
                    try:
                        found = tried(folder, path)
                    except WorkspaceViolation:
                        seen["refused"] += 1
                    except (OSError, TooLarge):
                        seen["missed"] += 1
                    else:
                        seen[verb] += 1
                        assert SECRET not in str(found)
                        assert "sub" not in str(found)
        swaps = int(swapper.communicate()[0])
    assert swapper.returncode == 0
    assert state_of(outside) == before
    print(f"{swaps} swaps, {dict(seen)}")
    # Else it proved nothing: both sides of the race were seen, often.
    assert swaps > 100
    assert seen["refused"] > 20
    assert seen["read"] > 5
    assert seen["write"] > 5


def test_the_race_is_lost_by_code_that_checks_first(root: Path, outside: Path) -> None:
    """The same race against what one would write without this module: it must be seen to fail."""
    lost = 0
    with swapping(root, outside) as swapper:
        while swapper.poll() is None and not lost:
            path = root / "box" / "secret.txt"
            try:
                if path.resolve().is_relative_to(root.resolve()):
                    lost += SECRET in path.read_text()
            except OSError:
                continue
        swapper.terminate()
    assert lost
