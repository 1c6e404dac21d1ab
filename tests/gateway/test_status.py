"""What operators see of agents elsewhere: the status and the metrics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from cli.run import dragoman
from dragoman import Agent, Turn, connect
from dragoman.core.auth_schemes import Known, Secret, Tokens
from gateway.behind import gateway, settings, worker
from gateway.faulty import door_to
from ports import own_port
from waiting import until


async def read(url: str, path: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=60, headers=headers) as client:
        return await client.get(url + path)


async def test_the_status_shows_every_address_without_its_secrets(tmp_path: Path) -> None:
    gone = f"http://127.0.0.1:{own_port()}"
    async with asyncio.timeout(120), door_to(tmp_path, worker()) as there:
        section = {
            "url": f"{there.url}/?key=hidden",
            "urls": [gone],
            "failures": 1,
            "health": 0.1,
            "probe": 60.0,
        }
        async with gateway({"a": section}, settings(tmp_path)) as door:

            async def shown() -> dict[str, Any]:
                answer = await read(door.url, "/gateway/status")
                assert answer.status_code == 200
                assert "hidden" not in answer.text
                (agent,) = answer.json()["agents"]
                assert isinstance(agent, dict)
                return agent

            async def settled() -> bool:
                return [each["state"] for each in (await shown())["addresses"]] == [
                    "healthy",
                    "open",
                ]

            await until(settled)
            agent = await shown()
            assert (agent["name"], agent["dialect"], agent["queued"]) == ("a", "a2a-1.0", 0)
            well, ill = agent["addresses"]
            assert well["address"].startswith(f"{there.url}?")
            assert well["lastSeen"]
            assert (ill["address"], ill["inFlight"]) == (gone, 0)
            assert "nobody listens there" in ill["lastError"]
            assert ill["failures"]["health"] >= 1


async def test_metrics_tell_of_each_address_and_of_no_caller(tmp_path: Path) -> None:
    agent, going = Agent("Worker", description="Works.", version="1"), asyncio.Event()

    @agent.skill("work", default=True)
    async def work(turn: Turn) -> str:
        await going.wait()
        return "done"

    async with asyncio.timeout(120), door_to(tmp_path, agent) as there:
        section = {"url": there.url, "concurrency": 1, "queue": 1}
        async with gateway({"a": section}, settings(tmp_path)) as door, connect(door.url) as caller:
            pool = door.upstream("a").pool
            for _ in range(2):
                await caller.send("go", wait=False)
            await until(lambda: (pool.addresses[0].in_flight, pool.queued) == (1, 1))
            text = (await read(door.url, "/metrics")).text
            labels = f'{{agent="a",address="{there.url}"}}'
            assert f"dragoman_upstream_in_flight{labels} 1\n" in text
            assert f"dragoman_upstream_breaker{labels} 0\n" in text
            assert 'dragoman_upstream_queued{agent="a"} 1\n' in text
            assert "# TYPE dragoman_upstream_seconds histogram\n" in text
            assert 'dragoman_upstream_seconds_count{agent="a"}' in text
            going.set()
            await until(lambda: not pool.queued and not pool.addresses[0].in_flight)


async def status(folder: Path, *args: str, **environ: str) -> CompletedProcess[str]:
    """Runs `dragoman gateway status`."""
    return await asyncio.to_thread(
        dragoman, "gateway", "status", *args, cwd=folder, HOME=str(folder), **environ
    )


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["metrics_access", "status_access"])
async def test_the_status_is_guarded_as_the_settings_say(tmp_path: Path, setting: str) -> None:
    (tmp_path / "token").write_text("a-token-of-these-tests-only")
    own = settings(tmp_path)
    own = replace(
        own,
        server=replace(own.server, **{setting: "authenticated"}),
        auth={"ours": Tokens(callers={"ops": Known(secret=Secret(file=str(tmp_path / "token")))})},
    )
    sections = {"a": {"url": f"http://127.0.0.1:{own_port()}"}}
    async with asyncio.timeout(120), gateway(sections, own, wait=False) as door:
        assert (await read(door.url, "/gateway/status")).status_code == 401
        metrics = 200 if setting == "status_access" else 401
        assert (await read(door.url, "/metrics")).status_code == metrics
        token = "Bearer a-token-of-these-tests-only"
        assert (await read(door.url, "/gateway/status", authorization=token)).status_code == 200
        run = await status(tmp_path, "--url", door.url)
        assert run.returncode != 0, run.stdout
        variable = f"DRAGOMAN_LOGIN_127_0_0_1_{door.url.rpartition(':')[2]}_TOKEN"
        ours = {variable: token.removeprefix("Bearer ")}
        run = await status(tmp_path, "--url", door.url, **ours)
        assert "not reached yet" in run.stdout, run.stderr


@pytest.mark.slow
async def test_the_command_shows_the_status(tmp_path: Path) -> None:
    gone = f"http://127.0.0.1:{own_port()}"
    async with asyncio.timeout(120), door_to(tmp_path, worker()) as there:
        section = {"url": there.url, "health": 0.1, "failures": 1, "probe": 60.0}
        sections = {"a": section}
        async with gateway(sections, settings(tmp_path)) as door:
            run = await status(tmp_path, "--url", door.url)
            assert run.returncode == 0, run.stderr
            assert "a2a-1.0" in run.stdout
            assert f"healthy  {there.url}" in run.stdout
            await there.close()
            pool = door.upstream("a").pool
            await until(lambda: pool.state(pool.addresses[0]) == "open")
            run = await status(tmp_path, "--json", "--url", door.url)
            assert run.returncode == 1
            assert json.loads(run.stdout)["agents"][0]["addresses"][0]["state"] == "open"
    run = await status(tmp_path, "--url", gone)
    assert run.returncode != 0
    assert "nobody listens there" in run.stderr
