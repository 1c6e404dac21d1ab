"""The docs are checked like code: examples run, tables match the code, links lead somewhere."""

from __future__ import annotations

import ast
import asyncio
import codeop
import importlib
import inspect
import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from rich.console import Console

import dragoman.testing
import dragoman.testing.stores
import pages
from cli.run import dragoman as command
from cli.run import serving
from dragoman import Agent, Answer, Turn, showcase
from dragoman.app import create_app
from dragoman.cli import COMMANDS, build
from dragoman.core.lifecycle import NEXT
from dragoman.core.model import State
from dragoman.files.service import FilesService
from dragoman.gateway import UpstreamAgent
from dragoman.gateway.status import GatewayStatus
from dragoman.gateway.upstream_pool import UpstreamPool
from dragoman.observability.metrics import AgentFigures, Metrics, exposition
from dragoman.settings import NAMED, PolicyRule, Settings
from dragoman.testing import Client
from dragoman.xiaoyi.link_figures import families
from pages import DOCS, READMES, ROOT, Block, blocks, name

RUN = [page for page in pages.PAGES if any(block.run for block in blocks(page, "python"))]
SHOWN = [page for page in pages.PAGES if "\ncurl " in page.read_text("utf-8")]
OPERATING = DOCS / "guide" / "operating.md"
WRITING = DOCS / "guide" / "writing-agents.md"
REFERENCE = DOCS / "reference.md"
FIRST_PAGES = {*READMES, DOCS / "guide" / "getting-started.md"}
"""Their commands talk to the agent on the page; all others to the showcase of `make demo`."""


def quoted(text: str) -> set[str]:
    """Everything a text sets in backquotes."""
    return set(re.findall(r"`([^`\n]+)`", text))


def run_blocks() -> list[Block]:
    return [block for page in RUN for block in blocks(page, "python") if block.run]


# Examples.


async def perform(block: Block, space: dict[str, Any], folder: Path) -> None:
    """Runs a block; one that begins with `# test_name.py` is a file for pytest."""
    if block.file:
        (folder / block.file).write_text(block.text, "utf-8")
        importlib.invalidate_caches()  # else an import may not see a file that is this young
    if block.file.startswith("test_"):
        options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
        tests = [sys.executable, "-m", "pytest", *options, block.file]
        done = await asyncio.to_thread(
            subprocess.run, tests, cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{name(block.page)}:{block.line}\n{done.stdout}"
        return
    # Line numbers as in the page, so a traceback points there.
    code = compile(
        "\n" * block.line + block.text,
        str(block.page),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    result = eval(code, space)
    if code.co_flags & inspect.CO_COROUTINE:
        await result


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("page", RUN, ids=name)
async def test_every_python_block_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sys.path.insert(0, str(tmp_path))  # until the end of this test, see conftest.py
    space: dict[str, Any] = {"__name__": "__docs__"}
    for block in blocks(page, "python"):
        if block.run:
            await perform(block, space, tmp_path)


def test_every_block_can_be_pasted_into_python_m_asyncio() -> None:
    """There an empty line ends what is indented, until Python 3.13 at least; and it must."""
    for block in run_blocks():
        if block.file:
            continue
        compiled = codeop.CommandCompiler()
        compiled.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        typed: list[str] = []
        for number, line in enumerate([*block.text.splitlines(), ""], block.line + 1):
            typed.append(line)
            try:
                if compiled("\n".join(typed)) is not None:
                    typed.clear()
            except SyntaxError as error:
                pytest.fail(f"{name(block.page)}:{number}: {error.msg}")


def posted(words: list[str]) -> tuple[str, dict[str, str], str]:
    """Path, headers and body of a curl command."""
    headers: dict[str, str] = {}
    path = body = ""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == "-H":
            key, _, value = after.partition(": ")
            headers[key] = value
        elif word == "-d":
            body = after
        elif word.startswith("http://127.0.0.1:8420/"):
            path = word.removeprefix("http://127.0.0.1:8420")
    return path, headers, body


def curls(page: Path) -> list[tuple[int, list[str]]]:
    """The curl commands of a page, as the shell would split them, each with its line."""
    command = re.compile(r"^curl (?:.|\n(?!curl ))+", re.M)
    return [
        (block.line, shlex.split(found))
        for block in blocks(page, "sh")
        for found in command.findall(block.text)
    ]


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("page", SHOWN, ids=name)
def test_every_curl_command_works(page: Path, tmp_path: Path) -> None:
    source = blocks(page, "python")[0].text if page in FIRST_PAGES else inspect.getsource(showcase)
    (tmp_path / "agent.py").write_text(source, "utf-8")
    assert curls(page)
    with serving("agent.py", "--store", "memory:", cwd=tmp_path) as server:
        _, headers, body = posted(curls(READMES[0])[0][1])
        first = httpx2.post(server.url, content=body, headers=headers).json()
        for line, words in curls(page):
            path, headers, body = posted(words)
            body = body.replace("$TASK", first["result"]["task"]["id"])
            sent = {"content": body, "headers": headers} if body else {}
            answer = httpx2.request("POST" if body else "GET", server.url + path, **sent)
            assert answer.status_code == 200, f"{name(page)}:{line}"
            assert '"error"' not in answer.text, f"{name(page)}:{line}\n{answer.text}"


def test_every_json_block_is_json() -> None:
    for page in pages.PAGES:
        for block in blocks(page, "json"):
            json.loads(block.text)


def test_the_hello_of_the_readme_is_the_example() -> None:
    assert blocks(READMES[0], "python")[0].text == (ROOT / "examples/hello.py").read_text("utf-8")


# Names.

PUBLIC = {
    "dragoman": dragoman.__all__,
    "dragomantesting": dragoman.testing.__all__,
    "dragomantestingstores": dragoman.testing.stores.__all__,
}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_an_example_that_is_run(module: str) -> None:
    table = {row[0].strip("`"): row for row in pages.rows(pages.section(REFERENCE, module))}
    assert sorted(table) == sorted(PUBLIC[module])
    for word, (_, promise, example) in table.items():
        assert promise, word
        anchor = re.fullmatch(r"\[run\]\(#([\w-]+)\)", example)
        assert anchor, f"{word} has no example"
        first, last = pages.span(REFERENCE, anchor[1])
        shown = [b for b in blocks(REFERENCE, "python") if b.run and first < b.line < last]
        assert any(word in pages.used(block) for block in shown), f"#{anchor[1]} lacks {word}"


@pytest.mark.parametrize("owner", [Agent, Turn, Answer, Client], ids=lambda owner: owner.__name__)
def test_every_public_member_is_used_in_an_example(owner: type) -> None:
    inherited = set(dir(str)) if issubclass(owner, str) else set()
    members = {word for word in dir(owner) if not word.startswith("_")} - inherited
    seen = set().union(*(pages.used(block) for block in run_blocks()))
    assert sorted(members - seen - INNER.get(owner, set()) - ENDLESS) == []


INNER: dict[type, set[str]] = {
    # the engine asks it which skill a message wants; what App, Gate and Guarded read; what an agent
    # of the gateway says to those who serve it
    Agent: {"choose", "unknown", "stop_remote", "card_changed", "invoke_elsewhere"}
    | {"recorded_skill", "skill_asked", "acts_for_callers", "is_backend", "keeps_tasks"}
    | {"linked", "elsewhere", "needs_caller_token"},
    Turn: {"next_artifact"},  # the engine names a result with it
    Answer: {"of"},  # how the turn makes one
}
ENDLESS = {"link", "serve"}
"""Told in words only: they do not return before Ctrl-C."""


def test_every_option_of_a_skill_is_told() -> None:
    table = {row[0].strip("`"): row[1] for row in pages.rows(pages.section(WRITING, "a-skill"))}
    options = dict(inspect.signature(Agent.skill).parameters)
    del options["self"]
    assert list(table) == list(options)
    for option, default in table.items():
        meant = options[option].default
        if isinstance(meant, bool | float | int) or meant == "resume":
            assert default.strip("`").strip('"') == str(meant), option
    text = WRITING.read_text("utf-8")
    for option in inspect.signature(Agent).parameters:
        assert f"{option}=" in text or option == "name", option


def test_every_verb_of_a_turn_is_in_a_table_or_a_section() -> None:
    told = " ".join(quoted(pages.prose(WRITING)))
    members = {word for word in dir(Turn) if not word.startswith("_")} - INNER[Turn]
    code = " ".join(block.text for block in blocks(WRITING, "python"))
    assert [word for word in sorted(members) if f"turn.{word}" not in told + code] == []


# The command line and the settings.


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("one", ["", "serve", "demo", "new", "login"])
def test_every_flag_is_told(one: str, tmp_path: Path) -> None:
    shown = command(*filter(None, [one]), "--help", cwd=tmp_path).stdout
    slug = f"dragoman-{one}" if one else "commands"
    told = pages.section(OPERATING, slug)
    flags = set(re.findall(r"--[a-z][a-z-]+", shown)) - ({"--help"} if one else set())
    assert sorted(flag for flag in flags if flag not in told) == []
    if not one:
        listed = re.findall(r"^  ([a-z]+) +[A-Z]", shown, re.M)
        assert sorted(listed) == sorted(COMMANDS)
        for other in listed:
            assert f"`dragoman {other}" in told


def help_of(*words: str) -> str:
    """What a command says about itself, on a screen where nothing is broken."""
    out = io.StringIO()
    with suppress(SystemExit):
        build(words[0])([*words, "--help"], console=Console(file=out, width=300))
    return out.getvalue()


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


@pytest.fixture(scope="module")
def helps() -> dict[tuple[str, ...], str]:
    """Every command and command of a group, with what it says about itself."""
    found: dict[tuple[str, ...], str] = {}
    waiting: list[tuple[str, ...]] = [(one,) for one in COMMANDS]
    while waiting:
        words = waiting.pop(0)
        shown = found[words] = help_of(*words)
        below = re.findall(r"^│ ([a-z]+) ", shown.partition("Commands ─")[2], re.M)
        waiting += [(*words, each) for each in below]
    return found


def test_no_command_uses_a_flag_that_does_not_exist(helps: dict[tuple[str, ...], str]) -> None:
    assert len(helps) > 35
    for page in pages.PAGES:
        for line in re.findall(r"\bdragoman ([a-z]+ [^`\n|]*)", page.read_text("utf-8")):
            words = line.split()
            shown = next(filter(None, (helps.get(tuple(words[:n])) for n in (3, 2, 1))), None)
            if shown is not None:
                known = flags_in(shown) | {"--help"}
                assert flags_in(line) <= known, f"{name(page)}: dragoman {line}"


def test_every_flag_of_every_command_is_told(helps: dict[tuple[str, ...], str]) -> None:
    told = flags_in("\n".join(page.read_text("utf-8") for page in pages.PAGES))
    untold = {(*words, flag) for words, shown in helps.items() for flag in flags_in(shown) - told}
    assert sorted(untold) == []


def test_help_tells_no_default_that_says_nothing(helps: dict[tuple[str, ...], str]) -> None:
    empty = re.compile(r'\[default: (?:None|False|""|\(\))\]|--empty-')
    assert [words for words, shown in helps.items() if empty.search(shown)] == []


def test_the_readmes_name_every_command() -> None:
    for page in READMES:
        (row,) = (
            row for row in pages.rows(page.read_text("utf-8")) if "`dragoman serve`" in row[1]
        )
        assert {word.removeprefix("dragoman ") for word in quoted(row[1])} == set(COMMANDS)


@pytest.mark.parametrize("part", [p for p in Settings.__struct_fields__ if p not in NAMED])
def test_every_setting_is_told_with_its_default(part: str) -> None:
    settings = PolicyRule() if part == "policy" else getattr(Settings(), part)
    told = {
        row[0].strip("`"): row[1].strip("`") for row in pages.rows(pages.section(OPERATING, part))
    }
    meant = {key: getattr(settings, key) for key in settings.__struct_fields__}
    assert told == {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in meant.items()
    }


def test_every_variable_is_told() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    told = OPERATING.read_text("utf-8")
    for variable in set(re.findall(r"\bDRAGOMAN_[A-Z]+(?:_[A-Z]+)*\b(?!_)", source)):
        _, part, *key = variable.split("_")
        section = getattr(Settings(), part.lower(), None)
        if not hasattr(section, "_".join(key).lower()):  # it is no key of a section
            assert f"`{variable}`" in told, variable


async def test_every_metric_is_told() -> None:
    upstream = UpstreamAgent("a", UpstreamPool("a", {"http://127.0.0.1:1": {}}))
    own = msgspec.structs.replace(Settings().server, store="memory:")
    app = create_app(Agent("a", description="a"), Settings(server=own))
    files = app.service(FilesService)
    more = (*GatewayStatus(lambda: [upstream]).metrics(), *files.metrics(), *families(()))
    figures = [AgentFigures("", Metrics(), {}, None)]
    text = exposition(figures, streams=0, blocked=0, more=more).decode()
    kinds = dict(re.findall(r"# TYPE (\w+) (\w+)", text))
    told = {row[0].strip("`"): row[1] for row in pages.rows(pages.section(OPERATING, "metrics"))}
    assert told == kinds


# What comes from tables in the code.


def test_generated_parts_are_up_to_date() -> None:
    made = pages.docs_module("generate")
    for page in made.PARTS:
        text = (DOCS / page).read_text("utf-8")
        assert made.filled(page, text) == text, "run: .venv/bin/python docs/generate.py"


@pytest.mark.parametrize(
    ("picture", "page"), [("chat", "guide/cli.md"), ("doctor", "doctor.md")], ids=["chat", "doctor"]
)
def test_a_picture_shows_the_session_on_its_page(picture: str, page: str) -> None:
    """Other tests compare the page with what the command prints; test_demo.py does it for the
    demo."""
    shown = pages.docs_module("pictures").words_of(picture)
    text = (DOCS / page).read_text("utf-8")
    assert f"pictures/{picture}.svg" in text
    assert pages.squeezed(shown) in pages.squeezed(text), "run: make pictures"


def test_the_state_diagram_is_the_state_table() -> None:
    (picture,) = blocks(DOCS / "architecture.md", "mermaid")
    names = dict(re.findall(r'state "([\w-]+)" as (\w+)', picture.text))
    state_of = {alias: State(word) for word, alias in names.items()}
    arrows = re.findall(r"(\S+) --> (\S+)", picture.text)
    inside = picture.text.partition("{")[2].partition("}")[0]
    going = {state_of.get(word) or State(word) for word in re.findall(r"(\w+) -->", inside)}
    drawn: dict[State, set[State]] = {state: set() for state in State if state is not State.UNKNOWN}
    for before, after in arrows:
        if "[*]" in (before, after):
            continue
        sources = going if before == "open" else {state_of.get(before) or State(before)}
        for source in sources:
            drawn[source].add(state_of.get(after) or State(after))
    assert drawn == {state: set(after) for state, after in NEXT.items() if state in drawn}


# Pages as a whole.


@pytest.mark.parametrize("page", pages.PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in pages.links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)} -> {target}"
        if anchor:
            assert anchor in {heading.slug for heading in pages.headings(there)}, target


def test_every_page_can_be_reached() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in pages.PAGES
        for target in pages.links(page)
    }
    assert [name(page) for page in pages.PAGES if page not in {*linked, *READMES}] == []


def test_both_readmes_say_the_same() -> None:
    english, chinese = READMES
    levels = [[heading.level for heading in pages.headings(page)] for page in READMES]
    assert levels[0] == levels[1]
    texts = [[(block.language, block.text) for block in blocks(page)] for page in READMES]
    assert texts[0] == texts[1]
    sizes = [len(pages.rows(page.read_text("utf-8"))) for page in READMES]
    assert sizes[0] == sizes[1]
    other = {english.name: "", chinese.name: ""}
    targets = [[t for t in pages.links(page) if t not in other] for page in READMES]
    assert targets[0] == targets[1]


def test_every_extension_has_a_page() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    uris = set(re.findall(r"urn:dragoman:[a-z]+:\d+", source))
    assert len(uris) > 4
    found = {path.stem: path for path in (DOCS / "extensions").glob("*.md")}
    assert sorted(f"urn:dragoman:{stem}:1" for stem in found) == sorted(uris)
    for stem, path in found.items():
        assert [heading.text for heading in pages.headings(path)] == [
            f"urn:dragoman:{stem}:1",
            "What it adds",
            "What a peer without it sees",
            "How to migrate",
        ]


def test_decisions_are_numbered_dated_and_listed() -> None:
    found = sorted((DOCS / "adr").glob("0*.md"))
    assert [int(path.name[:4]) for path in found] == list(range(1, len(found) + 1))
    listed = (DOCS / "adr" / "README.md").read_text("utf-8")
    for path in found:
        text = path.read_text("utf-8")
        assert re.search(r"^Date: \d{4}-\d\d-\d\d\. Status: ", text, re.M), path.name
        parts = [heading.text for heading in pages.headings(path) if heading.level == 2]
        assert parts == ["Context", "Decision", "Consequences"], path.name
        assert path.name in listed


def test_modules_named_in_the_architecture_exist() -> None:
    for word in quoted((DOCS / "architecture.md").read_text("utf-8")):
        if re.fullmatch(r"[\w/]+(\.py|/)", word) and not word.startswith("docs/"):
            assert (ROOT / "src" / "dragoman" / word).exists(), word


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{dragoman.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
