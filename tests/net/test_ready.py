"""`/readyz`: it writes, so it sees what would keep a task from being kept."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from dragoman import Agent, Backend, Turn
from dragoman.engine import Engine
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.net.server_context import ServerContext
from dragoman.observability import health
from dragoman.observability.log import Log
from dragoman.security.authentication import anyone
from dragoman.server.app import App
from dragoman.server.serve import address
from dragoman.settings import Settings
from dragoman.store import open_store
from engine.harness import until
from net.served_peer import call, said
from store.disk import full_disk, read_only_disk
from waiting import forever

V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}
URLS = {"sqlite": "sqlite:///{}/store/tasks.db", "file": "file://{}/store"}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen counts for a moment, and not for seconds."""
    monkeypatch.setattr(health, "KEPT", 0.2)


@asynccontextmanager
async def serving(url: str, backend: Backend | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    async with serving_app(url, backend) as (client, _):
        yield client


@asynccontextmanager
async def serving_app(
    url: str, backend: Backend | None = None, go_on: asyncio.Event | None = None
) -> AsyncIterator[tuple[httpx2.AsyncClient, App]]:
    agent = Agent("Echo", description="Echoes.")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        if go_on is not None and turn.text == "wait":
            await go_on.wait()
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
            yield client, app
    finally:
        listener.refuse()
        await app.stop()
        await listener.end(1)


async def becomes(client: httpx2.AsyncClient, status: int) -> str:
    """Waits for the status, and returns the words of the answer."""
    answer = await client.get("/readyz")

    async def there() -> bool:
        nonlocal answer
        answer = await client.get("/readyz")
        return answer.status_code == status

    await until(there, 60)
    return answer.text


@pytest.mark.parametrize("kind", list(URLS))
async def test_a_full_disk_is_seen(tmp_path: Path, kind: str) -> None:
    (tmp_path / "store").mkdir()
    async with serving(URLS[kind].format(tmp_path)) as client:
        await becomes(client, 200)
        with full_disk(1):
            words = await becomes(client, 503)
            name = "tasks.db" if kind == "sqlite" else "store"
            assert re.fullmatch(
                rf"The store {name} cannot be written since \d\d:\d\d UTC\.\n", words
            )
        await becomes(client, 200)


@pytest.mark.parametrize("kind", list(URLS))
async def test_a_disk_that_becomes_read_only_is_seen_and_loses_nothing(
    tmp_path: Path, kind: str
) -> None:
    """Neither what was there before nor what was under way."""
    go_on = asyncio.Event()
    store = tmp_path / "store"
    store.mkdir()
    async with serving_app(URLS[kind].format(tmp_path), go_on=go_on) as (client, app):

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            reply = await client.post("/", content=call(method, params), headers=V1)
            return dict(reply.json())

        async def state_of(task: str) -> str:
            return str((await ask("GetTask", {"id": task}))["result"]["status"]["state"])

        before = (await ask("SendMessage", said("hi")))["result"]["task"]
        waiting = {**said("wait"), "configuration": {"returnImmediately": True}}
        under_way = (await ask("SendMessage", waiting))["result"]["task"]["id"]
        await becomes(client, 200)
        assert isinstance(app.mounts[""].peer, Engine)
        async with read_only_disk(app.mounts[""].peer.store, store):
            refused = await ask("SendMessage", said("hi"))
            assert "error" in refused, refused
            await becomes(client, 503)
            assert (await client.get("/healthz")).status_code == 200
            # What is there can be read, and nothing that was refused is there.
            assert (await ask("GetTask", {"id": before["id"]}))["result"] == before
            listed = (await ask("ListTasks", {}))["result"]["tasks"]
            assert {each["id"] for each in listed} == {before["id"], under_way}
            go_on.set()
        await becomes(client, 200)
        assert "result" in await ask("SendMessage", said("hi"))

        async def completed() -> bool:
            return await state_of(under_way) == "TASK_STATE_COMPLETED"

        await until(completed, 60)


class Probed:
    """A peer whose store is looked at."""

    def __init__(self) -> None:
        self.outage = open_store("memory:").outage
        self.looks = 0
        self.hangs = False

    async def counts(self) -> dict[str, int]:
        return {}

    async def probe(self) -> None:
        self.looks += 1
        if self.hangs:
            await forever()


@pytest.mark.slow  # takes three seconds
async def test_one_look_does_for_some_seconds_and_not_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "KEPT", 1.5)
    monkeypatch.setattr(health, "PATIENCE", 0.2)
    peer = Probed()
    server = ServerContext(cast(Any, None), anyone, Settings().limits, Log("error"))
    agents = [("", server, peer)]
    pages = health.HealthEndpoints(server.log, lambda: agents, str, lambda: 0, ())

    async def asked() -> int:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET"}
        await pages.readiness(scope, cast(Any, None), send)
        return int(sent[0]["status"])

    loop = asyncio.get_running_loop()
    for hangs, status in ((False, 200), (True, 503), (False, 200)):
        peer.hangs, before = hangs, peer.looks

        async def looked_again(before: int = before) -> bool:
            await asked()
            return peer.looks > before

        await until(looked_again)  # what was seen before counts until its time is over
        began = loop.time()
        answers = await asyncio.gather(*(asked() for _ in range(50)))
        if loop.time() - began < 1:  # else this machine was away for longer than a look counts
            assert set(answers) == {status}
            assert peer.looks == before + 1


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


async def test_many_who_ask_cost_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "KEPT", 3.0)
    (tmp_path / "store").mkdir()
    async with serving(URLS["sqlite"].format(tmp_path)) as client:
        await client.get("/readyz")
        wal = tmp_path / "store" / "tasks.db-wal"

        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(200)))
        assert {answer.status_code for answer in answers} == {200}
        # 200 commits would be 200 pages at the least.
        assert wal.stat().st_size < 100 * 4096 + 64 * 4096
