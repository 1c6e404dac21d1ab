"""The status of links: in the store, on the command line and in the metrics."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cli.run import dragoman
from dragoman.settings import HostedAgent, LinkSettings
from dragoman.store import open_store
from dragoman.store.clock import wall_clock
from dragoman.store.link_status import LinkState, LinkStatus
from dragoman.store.memory.store import MemoryStore
from dragoman.store.sqlite.store import SqliteStore
from dragoman.testing.stores.fixture import HandClock
from dragoman.xiaoyi.link_figures import LinkFigures, LinkReporter
from server.two_agents import serving
from waiting import until
from xiaoyi.links import AGENT as GUEST
from xiaoyi.links import dialled_in, gateway
from xiaoyi.phone import AGENT, AK, SK, phone_server, text_of
from xiaoyi.test_link_command import KEYS, command


async def stored(url: str) -> list[LinkStatus]:
    store = open_store(url)
    await store.open()
    try:
        return await store.link_status.all()
    finally:
        await store.close()


def shown(folder: Path, *flags: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the lines of `dragoman xiaoyi status --json`."""
    ran = dragoman("xiaoyi", "status", "--json", *flags, cwd=folder)
    assert ran.stderr == ""
    return ran.returncode, [json.loads(each) for each in ran.stdout.splitlines()]


@pytest.mark.slow
async def test_the_status_of_an_agent_that_dials_is_read_from_its_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dragoman.db"

    async def is_(state: LinkState, **fields: int) -> bool:
        found = await stored(url)
        return any(
            each.state is state and all(getattr(each, name) == n for name, n in fields.items())
            for each in found
        )

    async with phone_server() as phone:
        flags = ("--server", phone.url, "--store", url)
        async with command(tmp_path, *flags) as process:
            await until(lambda: is_(LinkState.OPEN, opened=1))
            for link in phone.links:
                link.transport.abort()
            await until(lambda: is_(LinkState.OPEN, opened=2))
            (tmp_path / "go").touch()
            await phone.ask("hi", "tk-1")
            assert text_of(await phone.final("tk-1")) == "Well, hi"
            code, (status,) = await asyncio.to_thread(shown, tmp_path)
            assert code == 0
            assert (status["side"], status["agentId"]) == ("agent", AGENT)
            assert (status["server"], status["state"]) == (phone.url, "open")
            assert (status["links"], status["reconnects"], status["failures"]) == (1, 1, 1)
            assert status["lastError"]
            for link in phone.links:
                link.transport.abort()
            await until(lambda: is_(LinkState.OPEN, opened=3))
            (latest,) = await stored(url)
            assert latest.latency > 0  # of the ping behind the answer
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        code, (status,) = await asyncio.to_thread(shown, tmp_path)
        assert (code, status["state"], status["links"]) == (1, "stopped", 0)

        phone.refuse = 401
        async with command(tmp_path, *flags) as process:
            assert await process.wait() == 77
        code, (status,) = await asyncio.to_thread(shown, tmp_path, "--agent-id", AGENT)
        assert (code, status["state"]) == (1, "ended")
        assert "does not accept the keys (401)" in status["lastError"]
        assert await asyncio.to_thread(shown, tmp_path, "--agent-id", "another") == (0, [])
        words = (await asyncio.to_thread(dragoman, "xiaoyi", "status", cwd=tmp_path)).stdout
        assert re.search(rf"^{AGENT}  to {re.escape(phone.url)}  ended  since ", words)
        for secret in (AK, SK):
            assert secret not in words


@pytest.mark.slow  # starts processes
async def test_a_killed_agent_is_known_by_its_silence(tmp_path: Path) -> None:
    clock = HandClock()
    clock.now = wall_clock() - 120_000
    store = SqliteStore(tmp_path / "dragoman.db", clock)
    await store.open()
    figures = LinkFigures("agent", AGENT, "ws://one", clock)
    figures.opened()
    await store.link_status.put([figures.status])
    clock.now = wall_clock()
    other = LinkFigures("agent", "ag-2", "ws://one", clock)
    other.opened()
    await store.link_status.put([other.status])
    await store.close()
    code, found = await asyncio.to_thread(shown, tmp_path)
    assert [each["state"] for each in found] == ["lost", "open"]
    assert code == 1


@pytest.mark.slow  # takes several seconds
async def test_the_status_of_agents_that_dialled_in_is_stored_and_measured(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dragoman.db"
    async with gateway(store=url) as door, httpx2.AsyncClient(timeout=60) as client:

        async def status() -> LinkStatus:
            return next(iter(await stored(url)), LinkStatus(**_NONE))

        async def is_(state: LinkState, opened: int) -> bool:
            found = await status()
            return (found.state, found.opened) == (state, opened)

        async with dialled_in(door), dialled_in(door):
            await until(lambda: is_(LinkState.OPEN, 2))
            assert (await status()).links == 2
            said = {"role": "ROLE_USER", "messageId": "m-1", "parts": [{"text": "hi"}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}
            headers = {"A2A-Version": "1.0"}
            await client.post(f"{door.url}/agents/{GUEST}/", json=body, headers=headers)
            metrics = (await client.get(f"{door.url}/metrics")).text
            labels = f'{{side="server",agent_id="{GUEST}",server="{door.url}"}}'
            assert f"dragoman_xiaoyi_links{labels} 2\n" in metrics
            assert f"dragoman_xiaoyi_links_opened_total{labels} 2\n" in metrics
            latency = re.search(rf"link_latency_seconds{re.escape(labels)} (.*)\n", metrics)
            assert latency is not None
            assert float(latency[1]) > 0
        await until(lambda: is_(LinkState.DOWN, 2))
        wrong = door.headers(off=-600)
        refused = await client.get(f"{door.url}/openclaw/v1/ws/link", headers=wrong)
        assert refused.status_code == 401

        async def told() -> bool:
            return "the clock of the agent is wrong" in (await status()).last_error

        await until(told)
        for secret in (door.ak, door.sk):
            assert secret not in repr(await status())
    assert (await status()).state is LinkState.STOPPED


_NONE: dict[str, Any] = {"side": "server", "agent_id": "", "server": "", "state": LinkState.DOWN}


async def test_the_links_of_several_agents_are_together_in_the_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    async with phone_server() as one, phone_server() as other:
        link = {
            name: HostedAgent(xiaoyi=LinkSettings(agent_id=AGENT, servers=(phone.url,)))
            for name, phone in (("alpha", one), ("beta", other))
        }
        async with serving(agents=link) as two, httpx2.AsyncClient(timeout=60) as client:

            async def both() -> bool:
                found = (await client.get(f"{two.url}/metrics")).text
                assert found.count("# TYPE dragoman_xiaoyi_links gauge\n") == 1
                return len(re.findall(r"\ndragoman_xiaoyi_links{.*} 1", found)) == 2

            await until(both)


class Written:
    """A store that tells what is written to it."""

    def __init__(self) -> None:
        self.store = MemoryStore(HandClock())
        self.writes: list[list[LinkStatus]] = []
        self._put = self.store.link_status.put
        self.store.link_status.put = self.put  # type: ignore[method-assign]

    async def put(self, statuses: Iterable[LinkStatus]) -> None:
        self.writes.append(list(statuses))

    async def open_store(self) -> MemoryStore:
        return self.store


@pytest.mark.slow  # takes three seconds
async def test_a_status_is_written_when_it_changes_and_renewed_from_time_to_time() -> None:
    written = Written()
    figures = [LinkFigures("agent", f"ag-{n}", "ws://one") for n in range(3)]
    reporter = LinkReporter(written.open_store, lambda: figures, renewed=3.0)
    for each in figures:
        each.on_change = reporter.changed
    reporter.start()
    try:
        await until(lambda: len(written.writes) == 1)
        assert len(written.writes[0]) == 3
        for _ in range(100):
            figures[1].failed("cut")
            figures[1].latency = 0.5
        await until(lambda: len(written.writes) >= 2)
        assert [each.agent_id for each in written.writes[1]] == ["ag-1"]
        assert written.writes[1][0].failures == 100
        await until(lambda: len(written.writes[-1]) == 3 and len(written.writes) > 2)
        assert len(written.writes) == 3
    finally:
        await reporter.stop()
    assert {each.state for each in written.writes[-1]} == {LinkState.STOPPED}
