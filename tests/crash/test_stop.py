"""SIGTERM with everything open: quick, clean, and at nobody's cost."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from crash.check import read_sqlite, text_of
from crash.client import Client, message, sending, state_in
from crash.load import task_id_in
from crash.server import Server
from dragoman.core.events import StateChanged
from dragoman.core.model import State
from waiting import LIMIT, until

STREAMS = 8


def said(text: str, skill: str) -> object:
    return sending(message(text, uuid4().hex, skill))


def open_streams(url: str) -> int:
    """How many streams a server has open, by its own figures."""
    page = httpx2.get(f"{url}/metrics", timeout=LIMIT).text
    found = re.search(r"^dragoman_streams (\d+)$", page, re.M)
    assert found, page
    return int(found[1])


@pytest.mark.slow
async def test_sigterm_hands_runs_back(tmp_path: Path) -> None:
    db = tmp_path / "tasks.db"
    with Server(tmp_path, f"sqlite:///{db}") as server:
        server.start()
        await server.ready()
        client = Client(server.url)
        streams = [
            asyncio.create_task(client.listen("SendStreamingMessage", said("go", "wait")))
            for _ in range(STREAMS)
        ]
        soon = asyncio.create_task(client.listen("SendStreamingMessage", said("80 0.02", "count")))
        blocked = asyncio.create_task(client.call("SendMessage", said("go", "wait")))
        asked = (await client.call("SendMessage", said("go", "ask")))["task"]
        await until(lambda: open_streams(server.url) == STREAMS + 1)
        await until(lambda: len(read_sqlite(db)) == STREAMS + 3)

        code, seconds = await server.stop()
        assert code == 0, server.logged()
        assert seconds < 30, f"{seconds:.1f} s"
        # Every stream was ended, none cut; what could finish in time did; the blocking send was
        # answered with the task as it is.
        told = [await stream for stream in streams]
        assert state_in((await soon)[-1][1]) == "TASK_STATE_COMPLETED"
        assert (await blocked)["task"]["status"]["state"] == "TASK_STATE_WORKING"
        kept = read_sqlite(db)
        waits = [task_id_in(events[0]) for events in told]
        for task_id in [*waits, (await blocked)["task"]["id"]]:
            one = kept[task_id]
            assert one.state is State.WORKING
            assert one.runnable
            assert not one.worker
            assert one.attempt == 0, "handing back costs no attempt"
        assert kept[asked["id"]].state is State.INPUT_REQUIRED
        assert not kept[asked["id"]].runnable

        server.gate.touch()
        server.start()
        await server.ready()
        rest = [
            await client.listen(
                "SubscribeToTask", {"id": task_id}, last_event_id=str(events[-1][0])
            )
            for task_id, events in zip(waits, told, strict=True)
        ]
        answer = sending(message("yes", uuid4().hex, task_id=asked["id"]))
        again = (await client.call("SendMessage", answer))["task"]
        assert again["status"]["message"]["parts"] == [{"text": "Second?"}]
        code, _ = await server.stop()
        assert code == 0, server.logged()

    kept = read_sqlite(db)
    for task_id, before, after in zip(waits, told, rest, strict=True):
        one = kept[task_id]
        assert one.state is State.COMPLETED
        assert text_of(one.fold()).endswith("attempt 1"), "a clean stop is not a crash"
        assert [n for n, _ in before + after] == [entry.seq for entry in one.entries]
        assert state_in(after[-1][1]) == "TASK_STATE_COMPLETED"
        attempts = [
            entry.event.metadata["attempt"]
            for entry in one.entries
            if isinstance(entry.event, StateChanged) and entry.event.metadata
        ]
        assert attempts == [1]


@pytest.mark.slow
async def test_an_idle_server_stops_at_once(tmp_path: Path) -> None:
    with Server(tmp_path, f"sqlite:///{tmp_path / 'tasks.db'}") as server:
        server.start()
        await server.ready()
        client = Client(server.url)
        asked = (await client.call("SendMessage", said("go", "ask")))["task"]
        watching = asyncio.create_task(
            client.listen("SubscribeToTask", {"id": asked["id"]}, last_event_id="3")
        )
        await until(lambda: open_streams(server.url) == 1)
        code, seconds = await server.stop()
        assert code == 0, server.logged()
        assert seconds < 20, f"{seconds:.1f} s, with nothing to wait for"
        assert await watching == []
