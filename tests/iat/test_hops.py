"""A message that came far dies when it should, also if a host on its way starts again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from dragoman import State, Task
from dragoman.core.operations import GetTask
from dragoman.core.peer import Context
from dragoman.dialects.iat.wire import Envelope, Kind, envelope_in, envelope_out
from dragoman.iat import Host
from dragoman.testing.served import served
from iat.team import SECRET, WAYS, at, settings
from waiting import until

WORK = {"query": "on and on", "metadata": {"agent": "near"}}


def said(action: str, name: str, token: str = SECRET, ttl: int = 3, **payload: Any) -> str:
    about = {"action": action, "payload": payload, "id": f"{name}-{action}"}
    found = Envelope(kind=Kind.REQUEST, sender=name, token=token, ttl=ttl, **about)  # type: ignore[arg-type]
    return envelope_out(found).decode()


async def give(url: str, way: str, ttl: int) -> str:
    """Gives the host something to do that it may pass on so often; the task's name."""
    if way == "http":
        head = {"content-type": "application/json"}
        async with httpx2.AsyncClient(base_url=url, http1=False, http2=True) as client:
            met = await client.post("/iat", content=said("HELO", "far"), headers=head)
            token = met.json()["payload"]["session_token"]
            words = said("execute", "far", token, ttl, wait=False, **WORK)
            told = (await client.post("/iat", content=words, headers=head)).json()["payload"]
        return str(told["task_id"])
    async with connect(f"{at(url, 'ws')}/iat/ws") as socket:
        await socket.send(said("register", "far"))
        token = envelope_in(str(await socket.recv()).encode()).payload["session_token"]
        await socket.send(said("execute", "far", token, ttl, **WORK))
        return str(envelope_in(str(await socket.recv()).encode()).payload["task_id"])


@pytest.mark.parametrize("way", WAYS)
async def test_a_restart_gives_no_hops_back(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.server.app.GRACE", 0.2)  # its work need not be waited for
    own = settings(tmp_path, "engine", memory=False)
    async with served(Host("engine"), own) as url:  # its sub-agent is away, so it waits
        await give(url, way, ttl=2)
    async with (
        served(Host("engine"), own) as url,
        connect(f"{at(url, 'ws')}/iat/ws") as socket,
        asyncio.timeout(60),
    ):
        await socket.send(said("register", "near"))
        await socket.recv()
        asked = envelope_in(str(await socket.recv()).encode())
        assert (asked.action, asked.payload["query"]) == ("execute", "on and on")
        assert asked.ttl == 1


@pytest.mark.parametrize("way", WAYS)
async def test_what_may_not_be_passed_on_dies_here(tmp_path: Path, way: str) -> None:
    """The last hand that it may go through is this host's: nobody is asked, not even waited for."""
    own = settings(tmp_path, "engine", memory=False)
    host = Host("engine")
    async with served(host, own) as url, asyncio.timeout(60):
        name = await give(url, way, ttl=1)
        assert host.peer is not None
        far = Context(principal="iat:far")

        async def over() -> Task | None:
            task = await host.peer.call(GetTask(task_id=name), far)
            return task if task.state in (State.FAILED, State.COMPLETED) else None

        task = await until(over)
        assert task.state is State.FAILED
        assert "ttl_exceeded" in str(task.status)
