"""Webhooks under fire: the receiver fails, forgets to answer, goes away; the server is killed."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from pathlib import Path

import pytest

from crash.client import Client, Lost, message
from crash.server import Server
from waiting import before_again, until
from webhooks.receiver import Heard, Moody, Receiver

FULL = os.environ.get("DRAGOMAN_FULL") == "1"
DELIVERIES = 5_000 if FULL else 300
KILLS = 10 if FULL else 2
DOWN = 20.0 if FULL else 2.0
CHUNKS = 17 if FULL else 7
EVENTS = CHUNKS + 3
TASKS = -(-DELIVERIES // EVENTS)
SETTLE = 240.0 if FULL else 40.0

SETTINGS = """
[server]
allow_private = true
grpc = false
[push]
schedule = [0, {waits}]
timeout = 1.0
probe = 0.2
"""


async def opened(client: Client, url: str, n: int) -> None:
    """Opens a task with a webhook of its own, however often the server dies meanwhile."""
    config = {"id": f"hook-{n}", "url": f"{url}/{n}", "token": f"token-{n}"}
    params = {
        "message": message(f"{CHUNKS} 0.02", f"m{n}", "count"),
        "configuration": {"returnImmediately": True, "taskPushNotificationConfig": config},
    }
    while True:
        try:
            await client.call("SendMessage", params, idempotency_key=f"k{n}")
        except Lost:
            await before_again()
        else:
            return


def rest(db: Path) -> tuple[int, int, int]:
    """Tasks that run, deliveries on their way, and dead letters."""
    connection = sqlite3.connect(db)
    try:
        running = connection.execute("SELECT count(*) FROM task WHERE ended = 0").fetchone()[0]
        due = connection.execute("SELECT count(*) FROM hook WHERE due_at > 0").fetchone()[0]
        dead = connection.execute("SELECT count(*) FROM letter").fetchone()[0]
    finally:
        connection.close()
    return running, due, dead


def why(db: Path) -> str:
    """What is left, and what it waits for: seconds from now, tries and the last answer."""
    now = int(time.time() * 1000)
    connection = sqlite3.connect(db)
    try:
        hooks = connection.execute(
            "SELECT hook_id, sent, taken, attempt, status, error, (due_at - ?) / 1000.0 FROM hook"
            " WHERE due_at > 0 LIMIT 20",
            (now,),
        ).fetchall()
        tasks = connection.execute(
            "SELECT task_id, state, last_seq, attempt, worker, (run_at - ?) / 1000.0 FROM task"
            " WHERE ended = 0 LIMIT 20",
            (now,),
        ).fetchall()
    finally:
        connection.close()
    return "\n".join(map(str, (*hooks, *tasks)))


def lengths(db: Path) -> dict[str, int]:
    """The length of each task's log, by the path of its webhook."""
    connection = sqlite3.connect(db)
    try:
        found = connection.execute(
            "SELECT hook_id, last_seq FROM hook JOIN task USING (task_id)"
        ).fetchall()
    finally:
        connection.close()
    return {f"/hook/{name.removeprefix('hook-')}": last for name, last in found}


@pytest.mark.slow
async def test_nothing_is_lost_and_nothing_overtakes(tmp_path: Path) -> None:
    seed = int(os.environ.get("DRAGOMAN_SEED", "7"))
    dice = random.Random(seed)
    waits = ", ".join(["0.05"] * 200)
    (tmp_path / "dragoman.toml").write_text(SETTINGS.format(waits=waits))
    db = tmp_path / "tasks.db"
    moody = Moody(seed)
    began = time.monotonic()
    with Server(tmp_path, f"sqlite:///{db}") as server:
        server.start()
        await server.ready()
        async with Receiver(moody) as receiver:
            client = Client(server.url)

            async def load() -> None:
                for n in range(TASKS):
                    await opened(client, receiver.url, n)
                    await asyncio.sleep((KILLS + DOWN / 4) / TASKS)  # the pace of the load

            async def kills() -> None:
                for _ in range(KILLS):
                    await server.ready()
                    await asyncio.sleep(dice.uniform(0.4, 1.0))  # a life of its own length
                    server.kill()
                    server.start()
                await server.ready()

            async def outage() -> None:
                await receiver.until(1)
                await receiver.down()
                await asyncio.sleep(DOWN)  # how long nobody answers
                await receiver.up()

            await asyncio.gather(load(), kills(), outage())
            try:
                await until(lambda: rest(db)[:2] == (0, 0), SETTLE)
            except AssertionError as exc:
                raise AssertionError(f"{rest(db)} left\n{why(db)}\n{server.logged()}") from exc
        assert await server.stop(10.0)
    assert rest(db) == (0, 0, 0)
    expected = lengths(db)
    assert len(expected) == TASKS
    assert sum(expected.values()) >= DELIVERIES
    repeats = 0
    for path, last in expected.items():
        calls = moody.stored[path]
        seqs = [call.seq for call in calls]
        assert seqs == sorted(seqs), f"{path}: overtaken: {seqs}"
        assert sorted(set(seqs)) == list(range(1, last + 1)), f"{path}: lost of {last}: {seqs}"
        same: dict[int, Heard] = {}
        for call in calls:
            first = same.setdefault(call.seq, call)
            repeats += first is not call
            assert (first.id, first.body) == (call.id, call.body)
            assert call.headers["x-a2a-notification-token"] == f"token-{path.rpartition('/')[2]}"
    assert len({call.id for calls in moody.stored.values() for call in calls}) == sum(
        expected.values()
    )
    assert moody.failed > DELIVERIES / 10
    assert moody.unanswered > DELIVERIES / 100
    print(
        f"\nwebhooks: {sum(expected.values())} delivered to {TASKS} configs, {KILLS} kills, "
        f"{DOWN:.0f} s down, {moody.calls} calls, {moody.failed} failed, "
        f"{moody.unanswered} stored without an answer, {repeats} repeats with the same id, "
        f"0 lost, 0 overtaken, {time.monotonic() - began:.0f} s"
    )
