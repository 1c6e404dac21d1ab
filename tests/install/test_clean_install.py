"""The wheel, installed into an empty environment, does what the README says."""

from __future__ import annotations

import email
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from counts import FULL
from install.environments import (
    OWN,
    Environment,
    build_wheel,
    copy_tree,
    install,
    kinds,
    pip,
)
from install.reader import PORT, Reader
from pages import DOCS, READMES, blocks
from ports import own_port

pytestmark = pytest.mark.slow
BRINGS = {
    "discord": {"discord", "aiohttp"},
    "grpc": {"grpc", "grpc_health", "google"},
    "irc": {"irc"},
    "matrix": {"nio", "aiohttp"},
    "mcp": {"mcp", "httpx2"},
    "nats": {"nats"},
    "otel": {"opentelemetry"},
    "postgres": {"asyncpg"},
    "telegram": {"aiogram", "aiohttp"},
}
"""What an extra brings, of what modules import at once."""
FRAMEWORKS = {"agents", "crewai", "google", "google.adk", "langchain_core", "pydantic_ai"}
"""What the adapters are for, which no extra brings."""
TESTS = {"pytest"}
"""What `dragoman.testing.stores` asks for: its reader has tests, and so a pytest."""
TOKEN = "a-token-to-know"
ASKS = 4
"""The exit code of a command that ends at a question."""

EVERY_MODULE = """
import importlib, json, pkgutil, dragoman
missing = {}
for module in pkgutil.walk_packages(dragoman.__path__, "dragoman."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as exc:
            missing[module.name] = exc.name
print(json.dumps(missing))
"""

CALLS = """
from dragoman import Agent, Turn

agent = Agent("Boss", description="Asks others.")


@agent.skill("ask", description="Asks another agent.", default=True)
async def ask(turn: Turn) -> str:
    task = await turn.agent(turn.text).send("Ada")
    return f"They said: {task.text}"


@agent.skill("meet", description="Asks the caller.")
async def meet(turn: Turn) -> str:
    return f"Hello, {await turn.ask('Who is there?')}!"
"""


@dataclass(frozen=True)
class Built:
    """What is installed: a tree, or the wheel of it."""

    tree: Path
    wheel: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    tree = copy_tree(tmp_path_factory.mktemp("built"))
    return Built(tree, build_wheel(tree))


@pytest.fixture(scope="session")
def installed(
    built: Built, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[tuple[str, str]], Environment]:
    """Environments by Python and extra, each made once."""

    @cache
    def made(kind: tuple[str, str]) -> Environment:
        folder = tmp_path_factory.mktemp("empty") / "env"
        return install(built.tree, built.wheel, folder, *kind)

    return made


def named(kind: tuple[str, str]) -> str:
    python, extra = kind
    return f"{'python' if python == OWN else Path(python).name}-{extra or 'alone'}"


@pytest.fixture(scope="module", params=kinds(), ids=named)
def empty(
    request: pytest.FixtureRequest, installed: Callable[[tuple[str, str]], Environment]
) -> Environment:
    """Every environment that is tried."""
    return installed(request.param)


@pytest.fixture(scope="module", params=kinds() if FULL else [(OWN, "")], ids=named)
def bare(
    request: pytest.FixtureRequest, installed: Callable[[tuple[str, str]], Environment]
) -> Environment:
    """For what no extra changes: in `make test` only the environment without one."""
    return installed(request.param)


@pytest.fixture(scope="module", params=kinds() if FULL else [(OWN, "all")], ids=named)
def complete(
    request: pytest.FixtureRequest, installed: Callable[[tuple[str, str]], Environment]
) -> Environment:
    """For pages that begin with `pip install '.[all]'`; in `make test-full` also without it."""
    return installed(request.param)


@pytest.fixture(scope="module")
def served(bare: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The README's agent, served as the README says."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "hello.py").write_text(blocks(READMES[0], "python")[0].text, "utf-8")
    with bare.serving("hello.py", folder) as address:
        yield address


def allowed(extra: str) -> set[str]:
    """The packages that may be missing where this extra was asked for."""
    missing = TESTS | FRAMEWORKS
    if extra != "all":
        missing |= set().union(*BRINGS.values()) - BRINGS.get(extra, set())
    return missing


def test_nothing_is_missing(empty: Environment, tmp_path: Path) -> None:
    """Every module can be imported, but for those of an extra that was not asked for."""
    checked = empty.run(*pip(empty.folder), "check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    done = empty.run("python", "-c", EVERY_MODULE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    missing = json.loads(done.stdout)
    assert set(missing.values()) <= allowed(empty.extra), missing


def test_the_package_page_tells_all_it_should(built: Built) -> None:
    """Links to files of the repository would lead nowhere there."""
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        page = email.message_from_bytes(archive.read(name))
    description = page.get_payload()
    assert isinstance(description, str)
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?s)```.*?```|`[^`\n]*`", "", description))
    assert [link for link in links if not re.match(r"https://|#", link)] == []
    assert "![" not in description
    assert "# Dragoman" in description
    assert "Getting started" in description
    assert page["Description-Content-Type"] == "text/markdown"
    assert (page["Author"], page["License-Expression"]) == (
        "The Dragoman contributors",
        "Apache-2.0",
    )
    assert page["Requires-Python"] == ">=3.11"
    classifiers = page.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert {"all", "grpc", "mcp", "postgres"} <= {*(page.get_all("Provides-Extra") or [])}


def test_the_readme_does_what_it_says(bare: Environment, tmp_path: Path) -> None:
    reader = Reader(bare, tmp_path, own_port())
    reader.read(READMES[0])
    told = [said for command, said in reader.said.items() if f":{PORT}" in command]
    assert len(told) == 2, reader.said
    assert all("Hello, Ada!" in said for said in told)
    assert "Hello, Grace!" in reader.said["python"]


def test_the_first_guide_does_what_it_says(complete: Environment, tmp_path: Path) -> None:
    """From the installation to a project of one's own, whose test passes."""
    reader = Reader(complete, tmp_path, own_port())
    reader.read(DOCS / "guide" / "getting-started.md")
    card, sent, streamed, older = (
        said for command, said in reader.said.items() if command.startswith("curl ")
    )
    assert '"skills"' in card
    assert "Hello, Ada!" in sent
    assert [word in streamed for word in ("1 ", "5 ")] == [True, True]
    assert "Hello, Ada!" in older
    assert "1 passed" in reader.said["pytest"]
    assert "dragoman serve agent.py --reload" in reader.said


@pytest.mark.parametrize(
    ("command", "stdin", "shown"),
    [
        ("card URL", "", "Hello"),
        ("card URL --json", "", '"skills"'),
        ("chat URL", "Ada\n", "Hello, Ada!"),
        ("tasks list URL", "", ""),
        ("doctor URL", "", "Score 100 %"),
        ("bench URL --count 20", "", "20"),
    ],
    ids=lambda value: value.split()[0] if " URL" in value else "",
)
def test_every_command_that_calls_an_agent_works(
    bare: Environment, served: str, tmp_path: Path, command: str, stdin: str, shown: str
) -> None:
    words = command.replace("URL", served).split()
    done = bare.run("dragoman", *words, cwd=tmp_path, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shown in done.stdout
    assert "Traceback" not in done.stderr


def test_a_login_that_cannot_be_is_refused_in_words(
    bare: Environment, served: str, tmp_path: Path
) -> None:
    done = bare.run("dragoman", "login", served, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def boss(bare: Environment, tmp_path: Path) -> Iterator[str]:
    """An agent that asks other agents, and its caller."""
    folder = tmp_path / "boss"
    folder.mkdir()
    (folder / "boss.py").write_text(CALLS)
    with bare.serving("boss.py", folder) as address:
        yield address


def test_a_skill_calls_another_agent(
    bare: Environment, served: str, boss: str, tmp_path: Path
) -> None:
    done = bare.run("dragoman", "send", boss, served, cwd=tmp_path)
    assert "They said: Hello, Ada!" in done.stdout, done.stderr


def test_a_webhook_arrives(bare: Environment, boss: str, tmp_path: Path) -> None:
    def dragoman(*words: str, code: int = 0) -> str:
        done = bare.run("dragoman", *words, cwd=tmp_path, DRAGOMAN_HOOK_TOKEN=TOKEN)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout.strip()

    task = dragoman("send", boss, "--skill", "meet", "--no-wait", "hello")
    dragoman("tasks", "watch", boss, task, code=ASKS)
    with bare.listening(tmp_path, count=1, token=TOKEN) as (receiver, output):
        dragoman("hooks", "set", boss, task, receiver)
        dragoman("send", boss, "Ada", "--task", task)
        assert task in output()
