"""Web frameworks and agent frameworks with the real packages, each in an environment of its own.

The tests themselves are functions of the scripts in `scripts/`, which run there. `make test` runs
the light ones, `make test-full` all.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

import pages
from counts import FULL
from interop import peers
from interop.peers import HEAVY, LIGHT, Peer
from typed_pages import typed_with

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = ROOT / "examples" / "frameworks"
SCRIPTS: dict[str, Peer] = {
    "fastapi": peers.WITH_FASTAPI,
    "starlette": peers.WITH_STARLETTE,
    "langgraph": peers.WITH_LANGGRAPH,
    "pydantic_ai": peers.WITH_PYDANTIC_AI,
    "openai_agents": peers.WITH_OPENAI_AGENTS,
    "google_adk": peers.WITH_GOOGLE_ADK,
    "crewai": peers.WITH_CREWAI,
}
TRIED = {name: peer for name, peer in SCRIPTS.items() if FULL or peer in LIGHT}
# The first test of a framework builds its environment and runs a whole script.
pytestmark = pytest.mark.slow


def path_of(name: str) -> Path:
    return HERE / "scripts" / f"with_{name}.py"


def functions_of(name: str) -> list[str]:
    tree = ast.parse(path_of(name).read_text("utf-8"))
    functions = (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in functions if node.name.startswith("test_")]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """How each test of a script went; the script runs once."""

    @cache
    def outcome_of(name: str) -> dict[str, str]:
        peer = SCRIPTS[name]
        command = [*peer.start(peer.ready()), str(HERE / "checks.py"), str(path_of(name))]
        # The shell of a developer may hold keys for real models and settings of ours.
        own = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TZ") if key in os.environ}
        done = subprocess.run(
            [*command, str(tmp_path_factory.mktemp(name))],
            env={**own, "PYTHONPATH": str(ROOT / "src"), "EXAMPLES": str(EXAMPLES)},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"test')]
        outcomes = {line["test"]: line["failure"] for line in told}
        missing = f"it did not run:\n{done.stdout}{done.stderr}"
        return {test: outcomes.get(test, missing) for test in functions_of(name)}

    return outcome_of


@pytest.mark.parametrize(
    ("name", "test"),
    [
        pytest.param(name, test, id=f"{name}-{test.removeprefix('test_')}")
        for name in TRIED
        for test in functions_of(name)
    ],
)
def test_with_the_real_package(outcome, name: str, test: str) -> None:  # type: ignore[no-untyped-def]
    assert outcome(name)[test] == ""


@pytest.mark.parametrize("module", ["langgraph", "pydantic_ai", "openai_agents", "crewai"])
def test_an_adapter_without_its_framework_says_what_to_install(module: str) -> None:
    package = {"pydantic_ai": "pydantic-ai-slim"}.get(module, module.replace("_", "-"))
    with pytest.raises(ModuleNotFoundError, match=f"pip install {package}"):
        importlib.import_module(f"dragoman.adapters.{module}")


@pytest.mark.skipif(not FULL, reason="make test-full checks their types: it takes minutes")
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "starlette"])
def test_the_examples_are_typed(name: str, checker: str, tmp_path: Path) -> None:
    for example in EXAMPLES.glob(f"{name}_*.py"):
        shutil.copy(example, tmp_path)
    assert typed_with(checker, tmp_path, SCRIPTS[name].start(SCRIPTS[name].ready())[0]) == ""


def test_every_environment_is_set_up_by_make() -> None:
    for peer in SCRIPTS.values():
        assert (peer in LIGHT) != (peer in HEAVY)
    assert {path_of(name) for name in SCRIPTS} == {*(HERE / "scripts").glob("with_*.py")}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_stands_on_a_page_as_it_is(example: Path) -> None:
    text = example.read_text("utf-8")
    assert any(text == block.text for page in pages.PAGES for block in pages.blocks(page))
