"""`dragoman new`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dragoman.core.errors import ConfigError

AGENT = '''"""What this agent can do. `dragoman serve agent.py` serves it in every dialect."""

from dragoman import Agent, Turn

agent = Agent("{title}", description="Says it back, louder.", version="0.1.0")


@agent.skill("shout", description="Says it back, louder.", examples=["hello"])
async def shout(turn: Turn) -> str:
    return turn.text.upper()


@agent.skill("greet", description="Asks for a name, then greets.", examples=["greet me"])
async def greet(turn: Turn) -> str:
    name = await turn.ask("What is your name?")  # waits for days if need be, survives a restart
    return f"Hello, {{name}}!"
'''

TEST = '''"""Run with: pytest"""

import asyncio

from agent import agent
from dragoman.testing import Client


def test_it_shouts() -> None:
    async def talk() -> None:
        async with Client(agent) as client:
            task = await client.send("hi")
            assert task.text == "HI"

    asyncio.run(talk())
'''

README = """# {title}

An agent that speaks every agent-to-agent dialect, made with `dragoman new`.

    pip install -e '.[dev]'            # pytest, too
    pytest                             # test it without a port
    dragoman serve agent.py            # http://127.0.0.1:8420/
    dragoman serve agent.py --reload   # while you work on it

Ask it:

    dragoman send http://127.0.0.1:8420 hello

or as any other client of A2A 1.0 would:

    curl -s http://127.0.0.1:8420/ -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' \\
      -d '{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":
           {{"messageId":"m1","role":"ROLE_USER","parts":[{{"text":"hello"}}]}}}}}}'

Tasks live in `dragoman.db` and survive a crash.
"""

PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["dragoman"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[tool.setuptools]
py-modules = ["agent"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

IGNORE = """.venv/
__pycache__/
dragoman.db*
dragoman.key
*.jwk
"""


def new(name: Annotated[str, Parameter(help="Name of the project and of its folder.")], /) -> None:
    """Write a ready agent project with its test."""
    folder = Path(name)
    short = folder.name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", short):
        raise ConfigError(
            f"'{short}' cannot be a project name; use letters, digits and dashes, a letter first."
        )
    if folder.exists():
        raise ConfigError(f"{folder} exists already; nothing was written. Choose another name.")
    title = " ".join(re.split(r"[._-]+", short)).capitalize()
    files = {
        "agent.py": AGENT.format(title=title),
        "test_agent.py": TEST,
        "README.md": README.format(title=title),
        "pyproject.toml": PROJECT.format(name=short.lower()),
        ".gitignore": IGNORE,
    }
    try:
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(text, "utf-8")
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be written: {exc.strerror or exc}.") from None
    print(f"Wrote {folder}/: {', '.join(files)}")
    print("Next:")
    print(f"  cd {folder}")
    print("  pip install -e '.[dev]'")
    print("  pytest")
    print("  dragoman serve agent.py --reload")
