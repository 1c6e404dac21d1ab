"""Scenes of the workspace tests: a root, secrets around it, and both doors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.core.peer import ANYONE
from dragoman.workspace import Folder, Space, Workspaces
from dragoman.workspace.openat import Door, best_door, by_kernel, by_steps

SECRET = "TOP-SECRET-CANARY"


def has_openat2() -> bool:
    """Whether this kernel has the call: then `best_door` must choose it."""
    import os

    here = os.open("/", os.O_RDONLY)
    try:
        return best_door(here) is by_kernel
    finally:
        os.close(here)


DOORS = [by_steps, *([by_kernel] if has_openat2() else [])]


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def door(request: pytest.FixtureRequest) -> Door:
    """Both ways to open a file beneath a folder."""
    found: Door = request.param
    return found


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace, with things that nobody may see or change."""
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "secret.txt").write_text(SECRET)
    (folder / "sub" / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    """The workspace, with a few things in it."""
    folder = tmp_path / "space"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "inside.txt").write_text("inside")
    (folder / "sub" / "inside.txt").write_text("inside")
    return folder


@pytest.fixture
def workspaces(root: Path, door: Door) -> Iterator[Workspaces]:
    """Shared by all, with small limits."""
    space = Space(root=str(root), per="shared", size=10_000, files=50, file_size=5_000)
    found = Workspaces(space, lambda _: door)
    found.open()
    yield found
    found.close()


@pytest.fixture
def folder(workspaces: Workspaces) -> Folder:
    """All of it."""
    return workspaces.folder("t", "c", ANYONE, None)


def state_of(outside: Path) -> dict[str, str]:
    """Everything in a folder, to see whether it changed."""
    return {
        path.relative_to(outside).as_posix(): path.read_text() if path.is_file() else ""
        for path in sorted(outside.rglob("*"))
    }
