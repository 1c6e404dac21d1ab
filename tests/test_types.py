"""mypy and pyright accept what people copy: every example and every Python block of the docs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.run import dragoman as command
from counts import FULL
from interop.peers import A2A_SDK
from pages import DOCS, ROOT, blocks
from typed_pages import ELSEWHERE, checked, pyright, typed_with, write_modules

pytestmark = pytest.mark.slow  # a checker reads all of our code
EXAMPLES = ROOT / "examples"
STRICT = {
    "pythonVersion": "3.11",
    "typeCheckingMode": "strict",
    "reportUnusedVariable": False,  # the variables of a page are those of a session
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The blocks of the docs as modules, and a new project."""
    folder = tmp_path_factory.mktemp("written")
    write_modules(folder)
    made = command("new", "fresh", cwd=folder)
    assert made.returncode == 0, made.stderr
    for file in (folder / "fresh").glob("*.py"):  # both checkers want one module of a name
        file.rename(folder / f"fresh_{file.name}")
    test = folder / "fresh_test_agent.py"
    test.write_text(test.read_text("utf-8").replace("from agent import", "from fresh_agent import"))
    return folder


def test_mypy_accepts_every_block_of_the_docs_and_a_new_project(written: Path) -> None:
    """The examples are accepted by `make check`, whose cache makes this quick."""
    assert checked("mypy", *map(str, sorted(written.glob("*.py")))) == ""


def test_pyright_accepts_every_block_of_the_docs_every_example_and_a_new_project(
    written: Path,
) -> None:
    (written / "examples").symlink_to(EXAMPLES)
    (written / "typing").symlink_to(ROOT / "tests" / "typing")
    elsewhere = ["examples/frameworks"]  # tests/adapters checks them, where their packages are
    assert pyright(written, sys.executable, exclude=elsewhere, **STRICT) == ""


def test_an_error_names_the_line_of_the_page(tmp_path: Path) -> None:
    """Otherwise the modules could be empty, and every checker content."""
    write_modules(tmp_path)
    (block,) = (b for b in blocks(ROOT / "README.md", "python") if "client.send" in b.text)
    module = tmp_path / "README.py"
    text = module.read_text("utf-8").replace(
        "task = await client.send", "task: int = await client.send"
    )
    module.write_text(text, "utf-8")
    place = block.line + block.text[: block.text.index("task = ")].count("\n") + 1
    assert f"README.py:{place}: error: Incompatible types" in checked("mypy", str(module))


@pytest.mark.skipif(not FULL, reason="make test-full checks with the packages of others")
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_the_agent_and_the_client_of_the_sdk_are_typed(checker: str, tmp_path: Path) -> None:
    for block in blocks(DOCS / "guide" / "from-a2a-sdk.md", "python"):
        if ELSEWHERE.search(block.text):
            (tmp_path / block.file).write_text(block.text, "utf-8")
    assert typed_with(checker, tmp_path, A2A_SDK.start(A2A_SDK.ready())[0]) == ""
