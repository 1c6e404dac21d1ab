"""`gateway check` and `serve --check` find what the start refuses, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.run import AGENT, dragoman

pytestmark = pytest.mark.slow  # starts processes

TWO = """
[agents.one]
url = "http://127.0.0.1:9"

[agents.two]
file = "agent.py"
"""
KEYS = """
[auth.keys]
type = "api-key"
in = "header"
name = "X-API-Key"
callers.alice = { secret = { env = "NOT_SET_HERE" } }
"""
POLICY = """
[[policy]]
agents = ["two", "nobody"]
allow = false

[[policy]]
"""
WRONG = {
    "secret": (KEYS, "[auth.keys.callers.alice]: the variable NOT_SET_HERE is not set or empty"),
    "policy": (POLICY, "[[policy]] 1: there is no agent 'nobody'"),
    "skills": ('[skills]\ntalk = ["one", "nobody"]\n', "[skills] talk: there is no agent 'nobody'"),
    "iat": ('[iat]\nsecret = { env = "NOT_SET_HERE" }\n', "the variable NOT_SET_HERE is not set"),
    "channel": (
        '[channels.room]\nkind = "telegram"\ntoken = { env = "NOT_SET_HERE" }\n',
        "the variable NOT_SET_HERE is not set",
    ),
    "signing": ('[signing]\nkeys = ["none.pem"]\n', "none.pem"),
    "tls": ('[tls]\ncert = "none.pem"\nkey = "none.pem"\n', "there is no file none.pem"),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def files(home: Path) -> list[Path]:
    """All files in the folder, but for the bytecode that Python writes when it imports one."""
    return sorted(path for path in home.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.parametrize("wrong", WRONG)
def test_what_the_start_refuses_is_found_beforehand(home: Path, wrong: str) -> None:
    section, said = WRONG[wrong]
    (home / "dragoman.toml").write_text(TWO + section)
    before = files(home)
    for command in (("gateway", "check"), ("serve", "--check"), ("gateway", "--port", "0")):
        done = dragoman(*command, cwd=home)
        assert done.returncode == 2, (command, done.stdout, done.stderr)
        assert said in done.stderr, command
        assert "Traceback" not in done.stderr
        if "--port" not in command:
            assert files(home) == before, command


def test_good_settings_are_good_and_leave_nothing_behind(home: Path) -> None:
    (home / "dragoman.toml").write_text(TWO + KEYS + POLICY.replace("nobody", "on*"))
    before = files(home)
    for command in (("gateway", "check"), ("serve", "--check")):
        done = dragoman(*command, cwd=home, NOT_SET_HERE="a-key-of-sixteen-0")
        assert done.returncode == 0, done.stderr
        assert "nothing is wrong with the settings" in done.stdout
    assert files(home) == before


def test_a_file_is_checked_as_serve_would_serve_it(home: Path) -> None:
    (home / "dragoman.toml").write_text('[[policy]]\nagents = ["tester"]\n')
    assert dragoman("serve", "agent.py", "--check", cwd=home).returncode == 0
    (home / "dragoman.toml").write_text('[[policy]]\nagents = ["testre"]\n')
    done = dragoman("serve", "agent.py", "--check", cwd=home)
    assert done.returncode == 2
    assert "there is no agent 'testre'; there are: tester" in done.stderr


def test_agents_that_register_may_have_policies(home: Path) -> None:
    (home / "dragoman.toml").write_text(TWO + POLICY)
    done = dragoman("gateway", "check", "--registry", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "'nobody'" in done.stdout
