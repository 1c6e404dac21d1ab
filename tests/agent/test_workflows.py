"""The seven workflows of A2A 0.3 §9, each as its example has it, in every binding."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dragoman.core.errors import Unsupported
from dragoman.settings import Server, Settings
from equivalence.server import serving
from ports import own_port

FOLDER = Path(__file__).parents[2] / "examples" / "workflows"
BINDINGS = (
    *("a2a-1.0", "a2a-1.0-rest", "a2a-1.0-grpc"),
    *("a2a-0.3", "a2a-0.3-rest", "a2a-0.3-grpc"),
    "a2a-0.1",
)
COMES: dict[str, Any] = {
    "extended_card": (["route"], ["route", "lounge"]),
    "polling": ("working", "Three boxes about dragomans"),
    "streaming": (
        ["On ", "bridges ", "much ", "can ", "be ", "said. "],
        "On bridges much can be said. ",
    ),
    "questions": ["Where to?", "When to Lisbon?", "Booked: Lisbon, on Friday"],
    "webhooks": ("completed", "Printed a poster"),
    "exchange": [
        "words.txt.report (text/plain): 1: 3\n2: 5",
        "application/pdf at https://files.example/manual.pdf",
    ],
    "structured": ([{"id": 9, "about": "the roof"}], "bad_params"),
}
"""What each gives, the same in all bindings."""

OLDEST = COMES | {
    "extended_card": "unsupported",  # 0.1 has no such card
    "polling": ("completed", "Three boxes about dragomans"),  # 0.1 always waits
}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"workflow_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", COMES)
async def test_a_workflow_in_every_binding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADA_TOKEN", "only-for-this-test-0123456789")
    module = example(name)
    server = Server(store="memory:", grpc=True, grpc_port=0, allow_private=True)
    async with serving(module.agent, Settings(server=server)) as (app, base):
        for dialect in BINDINGS:
            more = {
                "webhooks": (str(own_port()),),
                "extended_card": (f"http://127.0.0.1:{app.ports['grpc']}",),
            }
            try:
                given = await module.talk(base, dialect, *more.get(name, ()))
            except Unsupported as error:
                given = error.reason
            assert given == (OLDEST if dialect == "a2a-0.1" else COMES)[name], dialect


@pytest.mark.slow  # starts processes
async def test_one_from_the_command_line() -> None:
    server = Server(store="memory:", grpc=True, grpc_port=0)
    async with serving(example("polling").agent, Settings(server=server)) as (_, base):
        for dialect in ("", "a2a-0.3-grpc"):
            script = FOLDER / "polling.py"
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, script, base, dialect), stdout=asyncio.subprocess.PIPE
            )
            said, _ = await process.communicate()
            assert (process.returncode, said.decode().strip()) == (0, str(COMES["polling"]))


def test_all_seven_are_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(COMES)
    assert len(COMES) == 7
    words = (FOLDER / "README.md").read_text("utf-8")
    for name in COMES:
        assert f"`{name}.py`" in words
        assert (FOLDER / f"{name}.py").read_text("utf-8").startswith('"""A2A 0.3 §9.')
