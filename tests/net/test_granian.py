"""Granian has private names that we use: a version without them is told at the start."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import warm_start
from cli.run import AGENT, dragoman
from dragoman.net.http.granian_server import GRANIAN

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "import granian.server.embed as e; del e.Server._spawn_asgi_worker",
        "import granian.server.common as c; del c.AbstractServer._init_shared_socket",
        "import granian._granian as g; del g.SocketHolder",
    ],
    ids=["worker", "socket", "holder"],
)
def test_a_version_without_the_names_we_use_is_told_at_the_start(
    tmp_path: Path, change: str
) -> None:
    """Without `_init_shared_socket`, Granian would bind a socket of its own, and nobody would see
    it until two servers share a port."""
    (tmp_path / "sitecustomize.py").write_text(change)
    (tmp_path / "agent.py").write_text(AGENT)
    flags = ("--store", "memory:", "--port", "0")
    with warm_start.suspended():  # a forked process has imported Granian already
        done = dragoman("serve", "agent.py", *flags, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert f"Granian {version('granian')} is not a version that Dragoman can use" in done.stderr
    assert "pip install 'granian" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_next_minor_version_is_not_installed_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (needed,) = (
        found.specifier
        for found in map(Requirement, project["dependencies"])
        if found.name == "granian"
    )
    assert str(Requirement(GRANIAN).specifier) == str(needed)
    assert needed.contains(version("granian"))
    major, minor = map(int, version("granian").split(".")[:2])
    assert not needed.contains(f"{major}.{minor + 1}.0")
