"""Each process on a shared store reports itself: `/dragoman/replicas` and `dragoman replicas`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman import Agent, Turn, connect
from dragoman.cli import main
from dragoman.server.services import replica
from dragoman.settings import Server, Settings
from dragoman.store import open_store
from dragoman.store.replicas import LEASE, ReplicaReport
from dragoman.testing import served
from waiting import until


@pytest.fixture(autouse=True)
def reports_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "RENEWED", 0.1)


def desk(go_on: asyncio.Event) -> Agent:
    agent = Agent("Desk", description="Works")

    @agent.skill("work", default=True)
    async def work(turn: Turn) -> str:
        await go_on.wait()
        return turn.text

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return await turn.ask("Which?")

    return agent


async def _replicas(url: str) -> dict[str, Any]:
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.get(f"{url}/dragoman/replicas")
    assert answer.status_code == 200
    return dict(answer.json())


def _asked(url: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replicas", "--url", url, "--json"])
    assert ended.value.code in (0, None)


async def test_any_server_tells_of_all_and_of_what_each_of_them_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go_on = asyncio.Event()
    settings = Settings(server=Server(store=f"sqlite:///{tmp_path}/tasks.db"))
    async with (
        served(desk(go_on), settings) as one,
        served(desk(go_on), settings) as two,
        connect(one) as agent,
    ):
        await agent.send("a", wait=False)
        await agent.send("b", skill="ask")
        watching = asyncio.create_task(agent.stream("c").result())

        async def told() -> list[dict[str, Any]] | None:
            found = await _replicas(two)
            first = found["replicas"][0] if len(found["replicas"]) == 2 else {}
            held = {name: first.get(name) for name in ("running", "waiting", "streams")}
            return found["replicas"] if held == {"running": 2, "waiting": 1, "streams": 1} else None

        first, second = await until(told)
        assert (first["url"], second["url"]) == (one, two)
        assert first["agents"] == ["Desk"]
        assert first["state"] == second["state"] == "alive"
        assert first["requests"] >= 2
        assert "running" not in second
        assert (await _replicas(one))["queues"] == {"Desk": 0}
        await asyncio.to_thread(_asked, one)
        printed = json.loads(capsys.readouterr().out)
        assert [each["id"] for each in printed["replicas"]] == [first["id"], second["id"]]
        go_on.set()
        await watching


async def test_a_server_that_stops_says_so_and_is_not_lost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    settings = Settings(server=Server(store=url))
    async with served(desk(asyncio.Event()), settings) as one:
        async with served(desk(asyncio.Event()), settings):
            await until(lambda: _count(one, 2))
        found = await _replicas(one)
        assert [each["state"] for each in found["replicas"]] == ["alive", "stopping"]
    store = open_store(url)
    await store.open()
    assert [each.state for each in await store.replicas.all()] == ["stopping", "stopping"]
    await store.close()


async def _count(url: str, n: int) -> bool:
    return len((await _replicas(url))["replicas"]) == n


async def test_a_store_of_one_process_shows_that_process(
    tmp_path: Path,
) -> None:
    settings = Settings(server=Server(store=f"file://{tmp_path}/tasks"))
    async with served(desk(asyncio.Event()), settings) as url:
        (only,) = (await _replicas(url))["replicas"]
        assert only["url"] == url


def test_the_command_shows_who_is_alive_and_who_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    report = ReplicaReport(
        id="a",
        host="here",
        pid=7,
        version="1",
        agents=("desk",),
        started_at=0,
        running=3,
        request_rate=2.5,
    )

    async def put(clock: Any) -> None:
        store = open_store(url, clock=clock)
        await store.open()
        await store.replicas.put(report)
        await store.close()

    def shown(*words: str) -> tuple[str, int]:
        with pytest.raises(SystemExit) as ended:
            main(["replicas", "--store", url, *words])
        code = ended.value.code
        return capsys.readouterr().out, code if isinstance(code, int) else 0

    from dragoman.store.clock import wall_clock

    asyncio.run(put(wall_clock))
    text, code = shown()
    assert code == 0
    names, row, queue = text.splitlines()
    figures = ["runs", "waits", "streams", "links", "req/s", "ev/s", "err/s"]
    assert names.split() == ["replica", "state", "up", "agents", *figures]
    assert row.split()[:2] == ["here:7", "alive"]
    assert row.split()[-8:] == ["desk", "3", "0", "0", "0", "2.5", "0", "0"]
    assert queue == "0 tasks wait for a worker of desk."
    asyncio.run(put(lambda: wall_clock() - LEASE))
    text, code = shown("--json")
    assert code == 1
    (lost,) = json.loads(text)["replicas"]
    assert (lost["state"], lost["id"]) == ("lost", "a")
    text, code = shown()
    assert "lost 20 s ago" in text
