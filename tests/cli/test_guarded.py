"""Commands and agents that are not open to all: tokens, other origins, authorities of one's own;
and what a person is told who has none of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cli.run import AGENT, ENVIRON, Served, dragoman, serving
from cli.terminal import terminal
from security.certs import Authority

pytestmark = pytest.mark.slow  # starts processes

TOKEN = "only-for-this-test-0123456789"
GUARD = """
[auth.robots]
type = "bearer"
callers.build = { secret = { env = "BUILD_TOKEN" } }
"""
STUBBORN = """
@agent.skill("stubborn")
async def stubborn(turn: Turn):
    yield "begun "
    while True:
        try:
            await asyncio.sleep(60)  # until it is canceled
        except asyncio.CancelledError:
            yield "no "
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Behind a bearer token, with gRPC on a port of its own."""
    home = tmp_path_factory.mktemp("guarded")
    (home / "agent.py").write_text(AGENT)
    (home / "dragoman.toml").write_text(GUARD)
    arguments = ("agent.py", "--store", "memory:", "--grpc-port", "0")
    with serving(*arguments, cwd=home, BUILD_TOKEN=TOKEN) as found:
        yield found


def login(served: Served, token: str = TOKEN) -> dict[str, str]:
    """The variable that holds the token for this server."""
    return {f"DRAGOMAN_LOGIN_127_0_0_1_{served.port}_TOKEN": token}


def config(cwd: Path) -> dict[str, str]:
    """A folder in which nothing is known."""
    return {"DRAGOMAN_CONFIG_DIR": str(cwd / "config")}


def test_send_with_a_token_and_without(guarded: Served, tmp_path: Path) -> None:
    done = dragoman("send", guarded.url, "hi", cwd=tmp_path, **login(guarded), **config(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "HI\n", "")
    for environ in ({}, login(guarded, "wrong-wrong-wrong-wrong")):
        known = {**environ, **config(tmp_path)}
        none = dragoman("send", guarded.url, "hi", cwd=tmp_path, **known)
        assert (none.returncode, none.stdout) == (1, "")
        assert f"dragoman login {guarded.url}" in none.stderr
        assert "Traceback" not in none.stderr
        assert "wrong-wrong" not in none.stderr
    told = dragoman("send", guarded.url, "hi", "--json", cwd=tmp_path, **config(tmp_path))
    assert json.loads(told.stdout)["error"] == "unauthenticated"


def test_who_has_nothing_is_told_where_to_put_it(guarded: Served, tmp_path: Path) -> None:
    none = dragoman("send", guarded.url, "hi", cwd=tmp_path, **config(tmp_path))
    assert "robots" in none.stderr  # what the card calls it
    assert "credentials.toml" in none.stderr
    assert f"DRAGOMAN_LOGIN_127_0_0_1_{guarded.port}_" in none.stderr


def test_chat_with_a_token_and_without(guarded: Served, tmp_path: Path) -> None:
    with terminal("chat", guarded.url, cwd=tmp_path, **login(guarded)) as screen:
        screen.until("exits.\n>")
        screen.type("hello\n")
        screen.until("HELLO")
        screen.type("/quit\n")
        assert screen.ends() == 0
    with terminal("chat", guarded.url, cwd=tmp_path) as screen:
        screen.until("exits.\n>")
        screen.type("hello\n")
        screen.until("dragoman login")  # the chat goes on: the token may come meanwhile
        screen.type("/quit\n")
        assert screen.ends() == 0
        assert "Traceback" not in screen.text


def test_a_chat_through_a_pipe_ends_at_a_refusal(guarded: Served, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "chat", guarded.url],
        input="one\ntwo\n",
        cwd=tmp_path,
        env={**ENVIRON, **config(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count(f"dragoman login {guarded.url}") == 1


def other_origin(served: Served) -> str:
    """The second port, as the card has it."""
    with urlopen(f"{served.url}/.well-known/agent-card.json") as answer:
        (found,) = set(re.findall(r"127\.0\.0\.1:\d+", answer.read().decode())) - {
            f"127.0.0.1:{served.port}"
        }
    return str(found)


def test_another_origin_learns_who_you_are_if_you_say_so(guarded: Served, tmp_path: Path) -> None:
    there = other_origin(guarded)
    asked = ("send", guarded.url, "hi", "--dialect", "GRPC")
    known = {**login(guarded), **config(tmp_path)}
    none = dragoman(*asked, cwd=tmp_path, **known)
    assert (none.returncode, none.stdout) == (1, "")
    assert f"--origin http://{there}" in none.stderr
    assert "login" not in none.stderr  # which would not help
    for origin in (there, f"http://{there}", f"a2a+grpc://{there}"):
        done = dragoman(*asked, "--origin", origin, cwd=tmp_path, **known)
        assert (done.returncode, done.stdout) == (0, "HI\n"), done.stderr
    elsewhere = dragoman(*asked, "--origin", "127.0.0.1:1", cwd=tmp_path, **known)
    assert elsewhere.returncode == 1
    nonsense = dragoman(*asked, "--origin", "ftp://x", cwd=tmp_path, **known)
    assert nonsense.returncode == 2
    assert "ftp://x" in nonsense.stderr


def test_an_authority_of_your_own(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    cert, key = ours.issue("server")
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "dragoman.toml").write_text(f'[tls]\ncert = "{cert}"\nkey = "{key}"\n')
    with serving("agent.py", "--store", "memory:", "--no-grpc", cwd=tmp_path) as served:
        assert served.url.startswith("https://")
        done = dragoman("send", served.url, "hi", "--ca", ours.ca, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "HI\n"), done.stderr
        for more in ((), ("--ca", other.ca)):
            none = dragoman("send", served.url, "hi", *more, cwd=tmp_path)
            assert (none.returncode, none.stdout) == (3, "")
            assert "certificate" in none.stderr
            assert "--ca" in none.stderr
        for path in (tmp_path / "missing.pem", tmp_path / "agent.py"):
            wrong = dragoman("send", served.url, "hi", "--ca", str(path), cwd=tmp_path)
            assert wrong.returncode == 2, wrong.stderr
            assert "Traceback" not in wrong.stderr


@pytest.fixture(scope="module")
def stubborn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An agent that does not let itself be canceled before its time is up."""
    home = tmp_path_factory.mktemp("stubborn")
    (home / "agent.py").write_text(AGENT + STUBBORN)
    with serving("agent.py", "--store", "memory:", "--no-grpc", cwd=home) as found:
        yield found


def test_a_second_ctrl_c_leaves_while_the_first_is_being_canceled(
    stubborn: Served, tmp_path: Path
) -> None:
    with terminal("send", stubborn.url, "x", "--skill", "stubborn", cwd=tmp_path) as screen:
        screen.until("begun")
        screen.interrupt()
        screen.until("Canceling...")
        assert screen.process.poll() is None
        screen.interrupt()
        assert screen.ends(5) == 130  # the agent has 10 s of grace
        assert "Traceback" not in screen.text
        assert "canceled in" not in screen.text
