"""No command waits in silence: after a second it says for what, and `--timeout` ends it."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import msgspec
import pytest

from cli.run import AGENT, dragoman, serving
from client.auth.http_server import LittleHttp, Request, Response, as_json
from ports import own_port
from waiting import wait_until

pytestmark = pytest.mark.slow  # starts processes

IDEMPOTENCY = "urn:dragoman:idempotency:1"
"""Without it a send that was refused with 503 is not repeated."""
LIMIT = 40.0
"""Seconds; far more than `--timeout` and the start of a process, and less than was waited once."""


def card(url: str, *, streaming: bool = True) -> Response:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return as_json(
        {
            "name": "Far",
            "description": "Is elsewhere",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": streaming, "extensions": [{"uri": IDEMPOTENCY}]},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
        }
    )


@contextmanager
def black_hole() -> Iterator[int]:
    """A port at which connections never open."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        held = []
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            held.append(one)
        yield port
        for one in held:
            one.close()


async def run(*args: str, cwd: Path) -> tuple[CompletedProcess[str], float]:
    began = time.monotonic()
    done = await asyncio.to_thread(dragoman, *args, cwd=cwd)
    return done, time.monotonic() - began


@pytest.mark.parametrize("args", [("send", "hi"), ("send", "hi", "--no-wait"), ("tasks", "list")])
@pytest.mark.parametrize("listens", [False, True], ids=["refused", "black hole"])
async def test_an_unreachable_address_on_the_card(
    args: tuple[str, ...], listens: bool, tmp_path: Path
) -> None:
    with black_hole() as hole:
        there = f"http://127.0.0.1:{hole if listens else own_port()}/agent"
        async with LittleHttp(lambda request: card(there)) as server:
            command, first, *more = args
            words = [command, server.url, first] if command == "send" else [*args, server.url]
            done, seconds = await run(*words, *more, "--timeout", "3", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert seconds < LIMIT
    last = [line for line in done.stderr.splitlines() if line.startswith("dragoman: ")][-1]
    assert there.rpartition("/")[0] in last
    assert f"the card of {server.url}" in last
    if listens or command == "send":
        assert "Waiting for" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("status", "words"),
    [(429, "Too many requests"), (503, "The store does not answer")],
    ids=["limited", "store down"],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_server_that_asks_for_patience(
    status: int, words: str, streaming: bool, tmp_path: Path
) -> None:
    def answer(request: Request) -> Response:
        if request.method == "GET":
            return card(request.base, streaming=streaming)
        return Response(status, b"", {"retry-after": "5"})

    async with LittleHttp(answer) as server:
        done, seconds = await run("send", server.url, "hi", "--timeout", "4", cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    assert seconds < LIMIT
    assert "Waiting for" in done.stderr
    waiting = done.stderr.partition("dragoman: ")[0]
    assert words.lower() in waiting.lower()


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_slow_agent_is_waited_for_in_words(streaming: bool, tmp_path: Path) -> None:
    """`--timeout` ends it, if it was given; without it an agent may take its time."""

    def answer(request: Request) -> Response:
        if request.method == "GET":
            return card(request.base, streaming=streaming)
        done = time.monotonic() + 2.5
        wait_until(lambda: time.monotonic() > done)  # its work
        asked = msgspec.json.decode(request.body)
        message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "at last"}]}
        response = {"jsonrpc": "2.0", "id": asked["id"], "result": {"message": message}}
        return as_json(response)

    async with LittleHttp(answer) as server:
        done, _ = await run("send", server.url, "hi", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("at last\n", 0), done.stderr
    assert f"Waiting for {server.url}" in done.stderr


async def test_an_answer_within_a_second_says_nothing_else(tmp_path: Path) -> None:
    def answer(request: Request) -> Response:
        if request.method == "GET":
            return card(request.base, streaming=False)
        asked = msgspec.json.decode(request.body)
        message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
        return as_json({"jsonrpc": "2.0", "id": asked["id"], "result": {"message": message}})

    async with LittleHttp(answer) as server:
        done, _ = await run("send", server.url, "hi", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("hi\n", 0)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("send", "URL", "hi", "--timeout", "3"), "Waiting for the card of URL, for up to 3 s"),
        (("tasks", "get", "URL", "x", "--timeout", "3"), "Waiting for the card of URL"),
        (("tasks", "cancel", "URL", "x", "--timeout", "3"), "Waiting for the card of URL"),
        (("hooks", "list", "URL", "x", "--timeout", "3"), "Waiting for the card of URL"),
        (("chat", "URL", "--timeout", "3"), "Waiting for the card of URL, for up to 3 s"),
        (("bench", "URL", "--timeout", "3"), "Waiting for the card of URL, for up to 3 s"),
        (("mcp", "URL", "--timeout", "3"), "Waiting for the card of URL, for up to 3 s"),
        (("card", "URL"), "Waiting for the card of URL, for up to 30 s"),
        (("login", "URL"), "Waiting for the card of URL"),
        (("agents", "list", "--url", "URL"), "Waiting for URL"),
        (("gateway", "status", "--url", "URL"), "Waiting for URL/gateway/status"),
        (("doctor", "URL", "--timeout", "3"), "Checking URL; each request may take up to 3 s"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
async def test_a_card_that_does_not_come(args: tuple[str, ...], words: str, tmp_path: Path) -> None:
    with black_hole() as hole:
        url = f"http://127.0.0.1:{hole}"
        done, seconds = await run(*(each.replace("URL", url) for each in args), cwd=tmp_path)
    assert done.returncode in (2, 3), done.stderr
    assert seconds < 2 * LIMIT
    assert words.replace("URL", url) in done.stderr


async def test_a_task_that_outlasts_the_timeout_goes_on(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    with serving("agent.py", cwd=tmp_path) as server:
        args = ("send", server.url, "hi", "-s", "long", "--timeout", "4")
        done, _ = await run(*args, cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "for up to 4 s" in done.stderr
        found = re.search(r"dragoman tasks watch \S+ (\S+)", done.stderr)
        assert found, done.stderr
        task, _ = await run("tasks", "get", server.url, found[1], "--json", cwd=tmp_path)
        assert msgspec.json.decode(task.stdout)["task"]["status"]["state"] == "TASK_STATE_WORKING"
