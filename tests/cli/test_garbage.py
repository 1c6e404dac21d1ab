"""What nobody should do to a command, and what it says then: a line or two, never a traceback."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from cli.run import AGENT, ENVIRON, Served, dragoman, serving

pytestmark = pytest.mark.slow  # starts processes

FILES = """
from dragoman import Blob

@agent.skill("file")
async def file(turn: Turn) -> Blob:
    return Blob(b"x", filename="x.bin")
"""
FULL = Path("/dev/full")
SHELL = f"{sys.executable} -m dragoman"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("server")
    (home / "agent.py").write_text(AGENT + FILES)
    with serving("agent.py", "--store", "memory:", "--no-grpc", cwd=home) as found:
        yield found


def shell(command: str, cwd: Path) -> tuple[int, bytes, str]:
    """Exit code, output and errors of a line of shell."""
    return ran(["sh", "-c", command], cwd)


def ran(
    words: list[str], cwd: Path, said: bytes = b"", to: int | IO[bytes] = subprocess.PIPE
) -> tuple[int, bytes, str]:
    """Exit code, output and errors of a command."""
    done = subprocess.run(
        words, cwd=cwd, env=ENVIRON, input=said, stdout=to, stderr=subprocess.PIPE, timeout=120
    )
    told = done.stderr.decode()
    assert "Traceback" not in told, told
    assert "Exception" not in told, told
    return done.returncode, done.stdout, told


def words_of(command: str) -> list[str]:
    return [sys.executable, "-m", "dragoman", *command.split()]


@pytest.mark.parametrize("command", ["send {url} -", "chat {url}", "chat {url} --json"])
def test_bytes_that_are_no_text_are_said_as_well_as_can_be(
    server: Served, tmp_path: Path, command: str
) -> None:
    said = b"caf\xe9 \x00\xff\xfe hello\n"
    code, told, _ = ran(words_of(command.format(url=server.url)), tmp_path, said)
    assert code == 0
    assert b"HELLO" in told


@pytest.mark.skipif(not FULL.exists(), reason="Linux has a device that is always full")
@pytest.mark.parametrize(
    "command", ["send {url} hi", "send {url} hi --json", "card {url}", "tasks list {url}"]
)
def test_a_full_disk_is_told_once(server: Served, tmp_path: Path, command: str) -> None:
    with FULL.open("wb") as full:
        code, _, told = ran(words_of(command.format(url=server.url)), tmp_path, to=full)
    assert (code, told) == (1, "dragoman: No space left on device\n")


@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [
        ("send {url} hi", ">&-", 0),
        ("send {url} hi", "<&- 2>&-", 0),
        ("send {url} -", "<&-", 2),
        ("chat {url}", "<&-", 0),
    ],
)
def test_streams_may_be_closed(
    server: Served, tmp_path: Path, command: str, closed: str, code: int
) -> None:
    found, _, _ = shell(f"{SHELL} {command.format(url=server.url)} {closed}", tmp_path)
    assert found == code


def test_a_reader_that_leaves_is_no_news(server: Served, tmp_path: Path) -> None:
    for command in (f"card {server.url}", f"send {server.url} hi", f"tasks list {server.url}"):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            _, _, told = ran(words_of(command), tmp_path, to=writer)
        finally:
            os.close(writer)
        assert told == ""


def test_without_a_home(server: Served, tmp_path: Path) -> None:
    code, told, _ = shell(f"env -u HOME -u XDG_CONFIG_HOME {SHELL} send {server.url} hi", tmp_path)
    assert (code, told) == (0, b"HI\n")


def test_files_that_cannot_be_kept(server: Served, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    done = dragoman("send", server.url, "x", "--skill", "file", "--save", "taken/in", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert "taken" in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def web_page() -> Iterator[str]:
    """Something that serves pages, and is no agent."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, format: str, *args: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{pages.server_address[1]}/"
        pages.shutdown()


@pytest.mark.parametrize(
    "command",
    [("send", "{url}", "hi"), ("card", "{url}"), ("chat", "{url}"), ("tasks", "list", "{url}")],
)
def test_a_web_page_is_no_agent(tmp_path: Path, command: tuple[str, ...]) -> None:
    with web_page() as url:
        done = dragoman(*(word.format(url=url) for word in command), cwd=tmp_path)
    assert done.returncode == 3
    assert "no agent card" in done.stderr
    assert url in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_says_nothing_is_not_waited_for_again_and_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = dragoman("send", url, "hi", "--timeout", "0.5", cwd=tmp_path)
        assert done.returncode == 3
        assert "did not answer in time" in done.stderr
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # there was one try
            silent.accept()


@pytest.mark.parametrize(
    "address", ["", "http://", "http://[::1", "http://127.0.0.1:99999", "ftp://x", "http://a b"]
)
def test_what_is_no_address_is_a_mistake(tmp_path: Path, address: str) -> None:
    done = dragoman("send", address, "hi", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("dragoman: This is no")
    assert "--origin" not in done.stderr
