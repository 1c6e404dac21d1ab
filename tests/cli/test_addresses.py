"""The talk commands at addresses that name a dialect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.run import ENVIRON, dragoman, serving
from ports import own_port

AGENT = """
from dragoman import Agent

agent = Agent("Echo", description="Says it back.")


@agent.skill("echo", description="Louder.")
async def echo(turn):
    return turn.text.upper()
"""
SECRET = "a-secret-for-the-terminal"
WAYS = ["iat+http", "iat+ws", "a2a+grpc"]


class Home(NamedTuple):
    folder: Path
    port: int
    grpc: int

    def at(self, way: str) -> str:
        return f"{way}://127.0.0.1:{self.grpc if way == 'a2a+grpc' else self.port}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder, grpc = tmp_path_factory.mktemp("home"), own_port()
    (folder / "agent.py").write_text(AGENT)
    flags = ("agent.py", "--store", "memory:", "--grpc", "--grpc-port", str(grpc))
    with serving(*flags, cwd=folder, IAT_SECRET=SECRET) as found:
        yield Home(folder, found.port, grpc)


def to(way: str) -> list[str]:
    return ["--to", "Echo"] if way.startswith("iat") else []


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("way", WAYS)
def test_send_and_follow(home: Home, way: str) -> None:
    url = home.at(way)
    done = dragoman("send", url, "hi", *to(way), cwd=home.folder, IAT_SECRET=SECRET)
    assert (done.stdout, done.returncode) == ("HI\n", 0), done.stderr
    begun = dragoman("send", url, "hi", "--no-wait", *to(way), cwd=home.folder, IAT_SECRET=SECRET)
    assert begun.returncode == 0, begun.stderr
    task = begun.stdout.strip()
    for command in ("watch", "get"):
        seen = dragoman("tasks", command, url, task, *to(way), cwd=home.folder, IAT_SECRET=SECRET)
        assert seen.returncode == 0, seen.stderr
        assert "HI" in seen.stdout


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("way", WAYS)
def test_chat(home: Home, way: str) -> None:
    talk = subprocess.run(
        [sys.executable, "-m", "dragoman", "chat", home.at(way), *to(way)],
        cwd=home.folder,
        env={**ENVIRON, "IAT_SECRET": SECRET},
        input="one\ntwo\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert talk.returncode == 0, talk.stderr
    assert talk.stdout.split() == ["ONE", "TWO"]


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("way", WAYS)
def test_card(home: Home, way: str) -> None:
    shown = dragoman("card", home.at(way), "--json", cwd=home.folder)
    assert shown.returncode == 0, shown.stderr
    card = json.loads(shown.stdout)["card"]
    if way == "a2a+grpc":  # it has no extended card, and there is no other one over gRPC
        assert len(card["supportedInterfaces"]) == 2
    else:
        assert card["name"] == "Echo"
        assert [skill["id"] for skill in card["skills"]] == ["echo"]
    assert dragoman("card", home.at(way), cwd=home.folder).returncode == 0


@pytest.mark.slow  # starts processes
def test_the_secret_is_asked_for_and_never_typed(home: Home) -> None:
    url = home.at("iat+http")
    refused = dragoman("send", url, "hi", cwd=home.folder, IAT_SECRET=SECRET)
    assert refused.returncode == 1
    assert "--to NAME" in refused.stderr
    missing = dragoman("send", url, "hi", "--to", "Echo", cwd=home.folder)
    assert missing.returncode == 2
    assert "IAT_SECRET" in missing.stderr
    useless = dragoman("send", home.at("a2a+grpc"), "hi", "--to", "Echo", cwd=home.folder)
    assert useless.returncode == 2
    wrong = dragoman("send", url, "hi", "--to", "Other", cwd=home.folder, IAT_SECRET=SECRET)
    assert wrong.returncode == 1


@pytest.mark.slow  # starts processes
def test_what_is_no_address_is_said(home: Home) -> None:
    for url in ("iat+ftp://x", "soap+http://x", "iat+http://"):
        done = dragoman("send", url, "hi", cwd=home.folder)
        assert done.returncode == 2, (url, done.stderr)
    gone = dragoman("send", f"iat+ws://127.0.0.1:{own_port()}", "hi", cwd=home.folder)
    assert gone.returncode == 3, gone.stderr
