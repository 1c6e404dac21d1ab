"""Markdown pages as tests see them: blocks, headings, links and tables."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
DOCS = ROOT / "docs"
PAGES = (*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")))
NOT_RUN = "<!-- not run:"
"""Stands above a Python block that is only shown, and says why."""


def docs_module(stem: str) -> ModuleType:
    """A script of `docs/`, imported."""
    spec = importlib.util.spec_from_file_location(f"docs_{stem}", DOCS / f"{stem}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def squeezed(text: str) -> str:
    """The words of a session: what differs each time is left out, and so are breaks of lines."""
    text = re.sub(r"\b(task|T-|IAT_SECRET=)[ \da-f-]+", r"\1", text)
    return re.sub(r"[\s\d.]+", "", text)


class Block(NamedTuple):
    """A fenced block."""

    page: Path
    line: int
    """The line of its opening fence, from 1."""
    language: str
    text: str
    run: bool

    @property
    def file(self) -> str:
        """The name in its first line, if that is `# name.py`."""
        found = re.match(r"# ([\w.-]+\.\w+)\n", self.text)
        return found[1] if found else ""


def named_tests(text: str) -> list[str]:
    """The tests that a table names."""
    return re.findall(r"`(test_\w+|Test\w+)`", text)


@cache
def all_tests() -> frozenset[str]:
    """The names of all tests there are, also of those that others can run on their own stores."""
    folders = (ROOT / "tests", ROOT / "src" / "dragoman" / "testing")
    sources = (path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))
    defined = re.compile(r"def (test_\w+)\(|^(Test\w+) = ", re.M)
    return frozenset("".join(found) for text in sources for found in defined.findall(text))


def name(page: Path) -> str:
    """The page, from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str = "") -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    inside: tuple[int, str] | None = None
    body: list[str] = []
    before = indent = ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if inside is None:
            if line.lstrip().startswith("```"):
                indent = line[: len(line) - len(line.lstrip())]  # a block in a list has one
                inside, body = (number, line.strip("` ")), []
            elif line.strip():
                before = line
        elif line == f"{indent}```":
            text = "".join(f"{one}\n" for one in body)
            run = not before.startswith(NOT_RUN)
            found.append(Block(page, inside[0], inside[1], text, run))
            inside, before = None, ""
        else:
            body.append(line.removeprefix(indent))
    assert inside is None, f"{name(page)}:{inside and inside[0]}: the block has no end"
    return [block for block in found if not language or block.language == language]


def prose(page: Path) -> str:
    """The page without its fenced blocks, line for line."""
    lines = page.read_text("utf-8").splitlines()
    for block in blocks(page):
        end = block.line + block.text.count("\n") + 1
        lines[block.line - 1 : end] = [""] * (end - block.line + 1)
    return "\n".join(lines)


class Heading(NamedTuple):
    """A heading."""

    line: int
    level: int
    text: str

    @property
    def slug(self) -> str:
        """Its anchor, as GitHub makes it."""
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", self.text).lower()
        return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def headings(page: Path) -> list[Heading]:
    """The headings of a page, in order."""
    return [
        Heading(number, len(found[1]), found[2].strip())
        for number, line in enumerate(prose(page).splitlines(), 1)
        if (found := re.match(r"(#+) (.+)", line))
    ]


def section(page: Path, slug: str) -> str:
    """The text under a heading, up to the next one of its level."""
    lines = page.read_text("utf-8").splitlines()
    first, last = span(page, slug)
    return "\n".join(lines[first:last])


def span(page: Path, slug: str) -> tuple[int, int]:
    """The lines under a heading: from its number up to and with that of the last one."""
    all_of_them = headings(page)
    for place, heading in enumerate(all_of_them):
        if heading.slug == slug:
            rest = all_of_them[place + 1 :]
            after = next((one for one in rest if one.level <= heading.level), None)
            end = after.line - 1 if after else len(page.read_text("utf-8").splitlines())
            return heading.line, end
    raise AssertionError(f"{name(page)} has no heading #{slug}")


def links(page: Path) -> Iterator[str]:
    """Targets of the links in a page's prose."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text, their heads left out."""
    found = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    rules = [place for place, row in enumerate(found) if re.fullmatch(r":?-+:?", row[0])]
    heads = {place - 1 for place in rules} | set(rules)
    return [row for place, row in enumerate(found) if place not in heads]


def used(block: Block) -> set[str]:
    """The names a block of Python uses; importing one is no use of it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(block.text)):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.keyword(arg=str(word)):
                found.add(word)
    return found
