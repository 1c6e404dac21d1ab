"""The Python of the docs as modules, and the type checkers that read them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pages
from pages import ROOT, Block, blocks

HEAD = "async def page() -> None:"
ELSEWHERE = re.compile(
    r"(?m)^(?:from|import) (a2a|agents|crewai|fastapi|google|lang\w+|pydantic_ai)\b"
)
"""Blocks that import these are checked where the package is installed."""


def write_modules(folder: Path) -> list[Path]:
    """One module for each page, and one for each file that a page shows.

    A page is a session: its blocks share their variables and use `await` outside of functions. So
    they become one function. Every line keeps its number, so that an error names the line of the
    page.
    """
    made: list[Path] = []
    for page in pages.PAGES:
        shown = [block for block in blocks(page, "python") if not ELSEWHERE.search(block.text)]
        stem = re.sub(r"\W", "_", pages.name(page).removesuffix(".md"))
        files = {block.file.removesuffix(".py") for block in shown if block.file}
        for block in shown:
            if block.file:
                path = folder / f"{stem}_{block.file}"
                path.write_text(_renamed(_placed(block), files, stem), "utf-8")
                made.append(path)
        session = [block for block in shown if not block.file.startswith("test_")]
        if session:
            path = folder / f"{stem}.py"
            lines = [HEAD]
            for block in session:
                lines += [""] * (block.line - len(lines))
                lines += textwrap.indent(block.text, "    ").splitlines()
            path.write_text(_renamed("\n".join(lines) + "\n", files, stem), "utf-8")
            made.append(path)
    return made


def _placed(block: Block) -> str:
    return "\n" * block.line + block.text


def _renamed(text: str, files: set[str], stem: str) -> str:
    """The text with imports of a page's own files as they are named here."""
    for file in files:
        text = re.sub(rf"(?m)^( *)from {file} import", rf"\1from {stem}_{file} import", text)
    return text


def checked(*words: str, **environ: str) -> str:
    """What a checker says; nothing if it accepts everything."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def pyright(folder: Path, python: str, **settings: object) -> str:
    """What pyright says about the modules in a folder."""
    own = {"include": ["."], "extraPaths": [str(ROOT / "src")], **settings}
    (folder / "pyrightconfig.json").write_text(json.dumps(own), "utf-8")
    return checked("pyright", "-p", str(folder), "--pythonpath", python)


def typed_with(checker: str, folder: Path, python: str) -> str:
    """What a checker says about modules that need the packages of another Python."""
    if checker == "pyright":
        return pyright(folder, python, pythonVersion="3.11")
    options = ["--config-file=", "--cache-dir", str(folder / "cache"), "--follow-untyped-imports"]
    quiet = ["--follow-imports=silent", "--disable-error-code=unused-ignore"]
    files = map(str, sorted(folder.glob("*.py")))
    start = ["mypy", "--strict", "--python-executable", python]
    return checked(*start, *options, *quiet, *files, MYPYPATH=str(ROOT / "src"))
