"""The wheel, installed into an empty environment, does what the README says."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from install.environments import (
    OWN,
    Environment,
    Kind,
    build_wheel,
    install,
    kinds,
    kinds_for_commands,
    new_environment,
    pip,
)
from pages import READMES, blocks

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

AWAITING = """
import ast, asyncio, sys, types
code = compile(sys.stdin.read(), "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
asyncio.run(types.FunctionType(code, {"__name__": "__main__"})())
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


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Environment]:
    """One environment of each kind, made when it is asked for first."""
    wheel = functools.cache(lambda: build_wheel(tmp_path_factory.mktemp("wheel")))

    @functools.cache
    def made(kind: Kind) -> Environment:
        return new_environment(wheel(), tmp_path_factory.mktemp("empty") / "env", *kind)

    return made


def named(kind: Kind) -> str:
    python, extra = kind
    return f"{'python' if python == OWN else Path(python).name}-{extra or 'alone'}"


@pytest.fixture(scope="module", params=kinds_for_commands(), ids=named)
def empty(
    request: pytest.FixtureRequest, environment: Callable[[Kind], Environment]
) -> Environment:
    return environment(request.param)


@pytest.fixture(scope="module")
def served(empty: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The README's agent, served as the README says."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "hello.py").write_text(blocks(READMES[0], "python")[0].text, "utf-8")
    with empty.serving("hello.py", folder) as address:
        yield address


def allowed(extra: str) -> set[str]:
    """The packages that may be missing where this extra was asked for."""
    missing = TESTS | FRAMEWORKS
    if extra != "all":
        missing |= set().union(*BRINGS.values()) - BRINGS.get(extra, set())
    return missing


@pytest.mark.parametrize("kind", kinds(), ids=named)
def test_nothing_is_missing(
    environment: Callable[[Kind], Environment], kind: Kind, tmp_path: Path
) -> None:
    """Every module can be imported, but for those of an extra that was not asked for."""
    empty = environment(kind)
    checked = empty.run(*pip(empty.folder), "check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    done = empty.run("python", "-c", EVERY_MODULE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    missing = json.loads(done.stdout)
    assert set(missing.values()) <= allowed(empty.extra), missing


def test_the_commands_of_the_readme_work(empty: Environment, served: str, tmp_path: Path) -> None:
    asked = 0
    for block in blocks(READMES[0], "sh"):
        command = block.text.replace("http://127.0.0.1:8420", served)
        if served not in command:
            continue  # make, pip and serve: the tests did them
        asked += 1
        done = empty.run("sh", "-ec", command, cwd=tmp_path)
        assert done.returncode == 0, f"{command}{done.stderr}"
        assert "Hello, Ada!" in done.stdout
        assert "Traceback" not in done.stderr
    assert asked == 2


def test_the_python_of_the_readme_works(empty: Environment, tmp_path: Path) -> None:
    """Typed into `python -m asyncio`, as the README says."""
    typed = "\n\n".join(block.text for block in blocks(READMES[0], "python"))
    minor = empty.run("python", "-c", "import sys; print(sys.version_info.minor)", cwd=tmp_path)
    # From 3.13 on the REPL takes a decorator that comes through a pipe for a whole statement.
    shell = ["-m", "asyncio"] if int(minor.stdout) < 13 else ["-c", AWAITING]
    done = empty.run("python", *shell, cwd=tmp_path, stdin=f"{typed}\n\nprint('typed')\n")
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert "Hello, Grace!" in done.stdout
    assert "typed" in done.stdout


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
    empty: Environment, served: str, tmp_path: Path, command: str, stdin: str, shown: str
) -> None:
    words = command.replace("URL", served).split()
    done = empty.run("dragoman", *words, cwd=tmp_path, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shown in done.stdout
    assert "Traceback" not in done.stderr


def test_a_login_that_cannot_be_is_refused_in_words(
    empty: Environment, served: str, tmp_path: Path
) -> None:
    done = empty.run("dragoman", "login", served, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_new_project_answers_and_passes_its_test(empty: Environment, tmp_path: Path) -> None:
    made = empty.run("dragoman", "new", "my-agent", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "my-agent"
    install(empty.folder, "-e", f"{folder}[dev]")
    done = empty.run("python", "-m", "pytest", "-q", cwd=folder)
    assert done.returncode == 0, done.stdout
    with empty.serving("agent.py", folder) as address:
        done = empty.run("dragoman", "send", address, "hello", cwd=folder)
        assert "HELLO" in done.stdout, done.stderr


@pytest.fixture
def boss(empty: Environment, tmp_path: Path) -> Iterator[str]:
    """An agent that asks other agents, and its caller."""
    folder = tmp_path / "boss"
    folder.mkdir()
    (folder / "boss.py").write_text(CALLS)
    with empty.serving("boss.py", folder) as address:
        yield address


def test_a_skill_calls_another_agent(
    empty: Environment, served: str, boss: str, tmp_path: Path
) -> None:
    done = empty.run("dragoman", "send", boss, served, cwd=tmp_path)
    assert "They said: Hello, Ada!" in done.stdout, done.stderr


def test_a_webhook_arrives(empty: Environment, boss: str, tmp_path: Path) -> None:
    def dragoman(*words: str, code: int = 0) -> str:
        done = empty.run("dragoman", *words, cwd=tmp_path, DRAGOMAN_HOOK_TOKEN=TOKEN)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout.strip()

    task = dragoman("send", boss, "--skill", "meet", "--no-wait", "hello")
    dragoman("tasks", "watch", boss, task, code=ASKS)
    with empty.listening(tmp_path, count=1, token=TOKEN) as (receiver, output):
        dragoman("hooks", "set", boss, task, receiver)
        dragoman("send", boss, "Ada", "--task", task)
        assert task in output()
