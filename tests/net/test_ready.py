"""`/readyz`: it writes, so it sees what would keep a task from being kept."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from dragoman import Agent, Backend, Turn
from dragoman.engine import Engine
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App
from dragoman.server.serve import address
from dragoman.settings import Settings
from dragoman.store import open_store
from engine.harness import until
from net.served_peer import call, said
from store.disk import full_disk

V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}
URLS = {"sqlite": "sqlite:///{}/store/tasks.db", "file": "file://{}/store"}


@asynccontextmanager
async def serving(url: str, backend: Backend | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    agent = Agent("Echo", description="Echoes.")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text

    sock = bind("127.0.0.1", 0)
    base = address(sock)
    settings = Settings()
    peer = backend.peer(store=url) if backend else Engine(agent, open_store(url))
    app = App(backend or agent, peer, settings, Log("error"), base)
    await app.start()
    listener = GranianServer(app, sock, settings.limits)
    listener.begin()
    try:
        async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
            yield client
    finally:
        listener.refuse()
        await app.stop()
        await listener.end(1)


async def becomes(client: httpx2.AsyncClient, status: int) -> None:
    async def there() -> bool:
        return (await client.get("/readyz")).status_code == status

    await until(there, 60)


@pytest.mark.parametrize("kind", list(URLS))
async def test_a_full_disk_is_seen(tmp_path: Path, kind: str) -> None:
    (tmp_path / "store").mkdir()
    async with serving(URLS[kind].format(tmp_path)) as client:
        await becomes(client, 200)
        with full_disk(1):
            await becomes(client, 503)
        await becomes(client, 200)


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("sqlite", lambda store: (store / "tasks.db").rename(store / "aside")),
        ("file", lambda store: shutil.move(store, store.with_name("aside"))),
    ],
)
async def test_a_store_that_is_gone_is_seen_and_acknowledges_nothing(
    tmp_path: Path, kind: str, harm: Callable[[Path], object]
) -> None:
    (tmp_path / "store").mkdir()
    async with serving(URLS[kind].format(tmp_path)) as client:
        sent = await client.post("/", content=call("SendMessage", said("hi")), headers=V1)
        assert "result" in sent.json()
        await becomes(client, 200)
        harm(tmp_path / "store")
        sent = await client.post("/", content=call("SendMessage", said("hi")), headers=V1)
        assert "error" in sent.json()
        await becomes(client, 503)


async def test_the_store_of_a_backend_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    url = URLS["sqlite"].format(tmp_path)
    backend = Backend("Letters", send=lambda op: None)
    async with serving(url, backend) as client:
        await becomes(client, 200)
        (tmp_path / "store" / "tasks.db").rename(tmp_path / "store" / "aside")
        await becomes(client, 503)


async def test_a_backend_that_needs_no_store_is_ready_without_one(tmp_path: Path) -> None:
    backend = Backend("Letters", **dict.fromkeys(("send", "get", "cancel"), lambda op: None))
    async with serving(URLS["sqlite"].format(tmp_path / "none"), backend) as client:
        await becomes(client, 200)
    assert os.listdir(tmp_path) == []


async def test_many_who_ask_cost_one_write(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    async with serving(URLS["sqlite"].format(tmp_path)) as client:
        await client.get("/readyz")
        wal = tmp_path / "store" / "tasks.db-wal"

        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(200)))
        assert {answer.status_code for answer in answers} == {200}
        # 200 commits would be 200 pages at the least.
        assert wal.stat().st_size < 100 * 4096 + 64 * 4096
