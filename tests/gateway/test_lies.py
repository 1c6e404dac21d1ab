"""Agents that lie, freeze or vanish behind a gateway: every task ends, and honestly."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import State, Task, connect
from dragoman.client.agent import RemoteAgent
from dragoman.core.errors import DragomanError
from dragoman.testing.served import served
from gateway.behind import Gateway, gateway, settings, worker
from gateway.liar import NOT_FOUND, Liar, Script, chunk, lying, status, task
from waiting import forever, until

LIMIT = 240.0


@asynccontextmanager
async def behind(
    folder: Path,
    script: Script,
    *,
    task_size: int = 0,
    extensions: tuple[str, ...] = (),
    **more: Any,
) -> AsyncIterator[tuple[RemoteAgent, Liar, Gateway]]:
    """A caller, the liar, and the gateway between them, which has an honest agent too."""
    own = settings(folder)
    if task_size:
        own = replace(own, limits=replace(own.limits, max_task_size=task_size))
    async with (
        asyncio.timeout(LIMIT),
        lying(script) as liar,
        served(worker(), settings(folder)) as honest,
    ):
        liar.extensions = list(extensions)
        sections = {"liar": {"url": liar.url, "patience": 1.0, **more}, "honest": {"url": honest}}
        async with (
            gateway(sections, own) as door,
            connect(door.at("liar")) as caller,
            connect(door.at("honest")) as other,
        ):
            yield caller, liar, door
            done = await other.send("still here")
            assert isinstance(done, Task)
            assert done.text == "STILL HERE"


def reason(found: object) -> str:
    assert isinstance(found, Task)
    assert found.state is State.FAILED
    assert found.status.message is not None
    return str((found.status.message.metadata or {}).get("reason"))


async def test_events_of_another_task_end_ours(tmp_path: Path) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        if method == "CancelTask":
            yield task("CANCELED")["task"]
            return
        yield task()
        yield chunk("mine ")
        yield chunk("somebody else's", "t2", append=True)
        await forever()

    async with behind(tmp_path, script) as (caller, liar, _):
        found = await caller.send("go")
        assert reason(found) == "peer_misbehaved"
        assert isinstance(found, Task)
        assert found.text == "mine "
        await until(lambda: liar.count("CancelTask"))


async def test_events_after_the_end_are_not_heard(tmp_path: Path) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        yield task()
        yield chunk("all of it")
        yield status("COMPLETED")
        yield chunk(" and more", append=True)
        yield status("FAILED", "no")

    async with behind(tmp_path, script) as (caller, _, _):
        found = await caller.send("go")
        assert isinstance(found, Task)
        assert (found.state, found.text) == (State.COMPLETED, "all of it")


@pytest.mark.parametrize(
    "piece",
    [b"data: {oops\n\n", b'data: {"jsonrpc":"2.0","id":1,"result":{"task":{"id":5}}}\n\n'],
    ids=["no JSON", "no task"],
)
async def test_what_cannot_be_read_ends_the_task(tmp_path: Path, piece: bytes) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        yield task()
        yield piece
        await forever()

    async with behind(tmp_path, script) as (caller, _, _):
        assert reason(await caller.send("go")) == "peer_misbehaved"


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_an_answer_of_a_gigabyte_is_not_read_to_its_end(tmp_path: Path) -> None:
    sent = 0

    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        nonlocal sent
        yield task()
        yield b"data: "
        for _ in range(1024):
            sent += 1
            yield b"x" * 1024 * 1024

    async with behind(tmp_path, script) as (caller, _, _):
        before = rss()
        assert reason(await caller.send("go")) in ("peer_misbehaved", "too_large")
        assert sent < 512
        assert rss() - before < 256 * 1024 * 1024


async def test_a_stream_without_end_ends_with_the_size_of_a_task(tmp_path: Path) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        if method == "CancelTask":
            yield task("CANCELED")["task"]
            return
        yield task()
        while True:
            yield chunk("x" * 10_000, append=True)

    async with behind(tmp_path, script, task_size=1024 * 1024) as (caller, liar, _):
        assert reason(await caller.send("go")) == "too_large"
        await until(lambda: liar.count("CancelTask"))


async def test_an_agent_that_forgot_its_tasks_is_told_apart(tmp_path: Path) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        if method != "SendStreamingMessage":
            yield NOT_FOUND
            return
        yield task()
        yield chunk("half")
        yield ConnectionError("it restarts with an empty store")

    async with behind(tmp_path, script) as (caller, _, _):
        assert reason(await caller.send("go")) == "task_lost"


@pytest.mark.slow  # takes two seconds
async def test_an_agent_that_freezes_ends_with_its_time(tmp_path: Path) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        await forever()
        yield

    async with behind(tmp_path, script, timeout=1.0) as (caller, liar, _):
        assert reason(await caller.send("go")) == "agent_timed_out"
        assert liar.count("SendStreamingMessage") == 1


async def test_a_message_that_may_have_arrived_is_not_sent_again(tmp_path: Path) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        yield ConnectionError("before the first word")

    async with behind(tmp_path, script) as (caller, liar, _):
        assert reason(await caller.send("go")) == "unknown_outcome"
        assert liar.count("SendStreamingMessage") == 1


async def test_it_is_sent_again_to_an_agent_that_is_safe_to_repeat(tmp_path: Path) -> None:
    tries = 0

    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        nonlocal tries
        tries += 1
        if tries == 1:
            yield ConnectionError("before the first word")
        yield task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "done"}]}])

    async with behind(tmp_path, script, repeat=True, patience=60.0) as (caller, _, _):
        found = await caller.send("go")
        assert isinstance(found, Task)
        assert (found.state, found.text) == (State.COMPLETED, "done")
        assert tries == 2


async def test_a_card_that_names_only_other_origins_is_refused(tmp_path: Path) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        yield task("COMPLETED")

    async with asyncio.timeout(LIMIT), lying(script) as victim, lying(script) as liar:
        entry = {"protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        liar.more = {"supportedInterfaces": [{"url": victim.url, **entry}]}
        sections = {"liar": {"url": liar.url}}
        async with gateway(sections, settings(tmp_path), wait=False) as door:
            async with connect(door.at("liar")) as caller:
                with pytest.raises(DragomanError, match="card of liar is not trusted") as refused:
                    async for _ in caller.stream("go"):
                        pass
                assert victim.url not in str(refused.value)
            assert not victim.asked
        sections = {"liar": {"url": liar.url, "origins": [victim.url]}}
        async with gateway(sections, settings(tmp_path)) as door:
            async with connect(door.at("liar")) as caller:
                found = await caller.send("go")
                assert isinstance(found, Task)
                assert found.state is State.COMPLETED
            assert victim.asked
