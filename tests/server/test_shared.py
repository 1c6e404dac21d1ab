"""What is there once on a server with several agents: limits, health, metrics, logs, the list."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from dragoman.app import create_app
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import ConfigError
from dragoman.iat import Host
from dragoman.iat.service import IatService
from dragoman.observability.log import Log
from dragoman.settings import Iat, Limits, Rates, Server, Settings
from server.two_agents import TwoAgents, desk, serving
from waiting import until

HEADERS = {"A2A-Version": "1.0"}
SECRET = "a-secret-of-hosts-and-agents"


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-token-of-sixteen"}


def tokens(monkeypatch: pytest.MonkeyPatch, *names: str) -> Tokens:
    for name in names:
        monkeypatch.setenv(f"T_{name}", f"{name}-token-of-sixteen")
    return Tokens(callers={name: Known(secret=Secret(env=f"T_{name}")) for name in names})


def said(text: str, stream: bool = False) -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    method = "SendStreamingMessage" if stream else "SendMessage"
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}


async def send(two: TwoAgents, name: str, text: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=60) as client:
        url = f"{two.url}/agents/{name}"
        return await client.post(url, json=said(text), headers={**HEADERS, **headers})


# Who may see what


async def test_the_list_shows_the_agents_whose_cards_the_caller_may_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents = {
        "alpha": desk("alpha"),
        "beta": desk("beta", auth={"own": tokens(monkeypatch, "bob")}),
    }
    async with (
        serving(
            agents,
            server={"card_access": "authenticated"},
            auth={"all": tokens(monkeypatch, "ann")},
        ) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        refused = await client.get("/agents")
        assert refused.status_code == 401
        assert "Bearer" in refused.headers["www-authenticate"]
        for who, shown in (("ann", ["alpha", "beta"]), ("bob", ["beta"])):
            listed = (await client.get("/agents", headers=bearer(who))).json()
            assert [each["name"] for each in listed["agents"]] == shown
            for name in ("alpha", "beta"):
                card = f"/agents/{name}/.well-known/agent-card.json"
                status = (await client.get(card, headers=bearer(who))).status_code
                assert status == (200 if name in shown else 401)
        assert (await client.get("/agents", headers=bearer("eve"))).status_code == 401


async def test_the_list_is_kept_to_address_ranges() -> None:
    async with (
        serving(server={"card_access": "10.0.0.0/8"}) as two,
        httpx2.AsyncClient(timeout=60) as client,
    ):
        assert (await client.get(f"{two.url}/agents")).status_code == 403


def test_metrics_for_authenticated_callers_need_a_scheme_in_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"own": tokens(monkeypatch, "bob")}
    agents = {name: desk(name, auth=own) for name in ("alpha", "beta")}
    with pytest.raises(ConfigError, match=r"metrics_access.*\[auth\.NAME\]"):
        create_app(agents, Settings(server=Server(metrics_access="authenticated")))


async def test_foreign_pages_and_hosts_are_refused_below_the_mount_point() -> None:
    async with (
        serving(server={"insecure": True}) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        path = "/agents/alpha/a2a/stream?content=hi"
        assert (await client.get(path)).status_code == 200
        for headers in (
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
            {"referer": "https://evil.example/page"},
        ):
            assert (await client.get(path, headers=headers)).status_code == 403
        for place in ("/agents", "/agents/alpha", "/agents/alpha/tasks/1"):
            reply = await client.get(place, headers={"host": "evil.example"})
            assert reply.status_code == 421, place


async def test_a_caller_has_one_rate_for_all_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = {"all": tokens(monkeypatch, "ann", "bob")}
    async with serving(auth=auth, rates=Rates(calls_per_minute=4)) as two:
        statuses = [
            (await send(two, name, "hi", **bearer("ann"))).json().get("error", {}).get("code")
            for name in ("alpha", "beta") * 4
        ]
        assert statuses[:4] == [None] * 4
        assert statuses[-1] is not None
        assert "error" not in (await send(two, "alpha", "hi", **bearer("bob"))).json()


async def test_streams_of_all_agents_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.server.app.GRACE", 0.2)  # its work need not be waited for
    async with (
        serving(limits=Limits(streams=1)) as two,
        httpx2.AsyncClient(timeout=60) as client,
    ):
        url = f"{two.url}/agents/alpha"
        asked = said("wait", stream=True)
        async with client.stream("POST", url, json=asked, headers=HEADERS):
            await until(lambda: two.app.server.streams)
            other = f"{two.url}/agents/beta"
            refused = await client.post(other, json=asked, headers=HEADERS)
            assert "Too many streams" in refused.text


async def test_websockets_of_all_agents_count_together() -> None:
    async with serving(server={"insecure": True}, iat=Iat(sockets=10)) as two:
        where = two.url.replace("http", "ws")
        # Of ten places one is for the strangers of an address, whichever agent they call.
        async with connect(f"{where}/agents/alpha/iat/ws", proxy=None):
            with pytest.raises(InvalidStatus):
                await connect(f"{where}/agents/beta/iat/ws", proxy=None)


# Health, metrics, logs


async def test_metrics_name_the_agent(tmp_path: Any) -> None:
    async with serving(store=f"sqlite:///{tmp_path}/tasks.db") as two:
        for name, times in (("alpha", 2), ("beta", 1)):
            for _ in range(times):
                assert (await send(two, name, "hi")).status_code == 200
        assert (await send(two, "beta", "hi", **{"a2a-version": "9.9"})).status_code == 200
        async with httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
            for page in ("/healthz", "/readyz"):
                assert (await client.get(page)).status_code == 200
            lines = (await client.get("/metrics")).text.splitlines()
        labels = 'method="SendMessage",dialect="a2a-1.0"'
        assert f'dragoman_requests_total{{agent="alpha",{labels}}} 2' in lines
        assert f'dragoman_requests_total{{agent="beta",{labels}}} 1' in lines
        assert f'dragoman_request_seconds_count{{agent="beta",{labels}}} 1' in lines
        assert any('errors_total{agent="beta",reason="version_' in line for line in lines)
        assert 'dragoman_tasks{agent="alpha",state="completed"} 2' in lines
        assert 'dragoman_queue{agent="beta"} 0' in lines
        assert "dragoman_streams 0" in lines
        assert len([line for line in lines if line.startswith("# TYPE dragoman_queue")]) == 1
        series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
        assert len(series) == len(set(series))


async def test_the_log_names_the_agent() -> None:
    read, write = os.pipe()
    log = Log("info", fd=write)
    async with serving(log=log) as two:
        trace = f"00-{'a' * 32}-{'b' * 16}-01"
        assert (await send(two, "beta", "hi", traceparent=trace)).status_code == 200
    log.close()
    os.close(write)
    lines = os.read(read, 65_536).decode().splitlines()
    os.close(read)
    (line,) = [each for each in lines if " call " in each]
    assert " call agent=beta method=SendMessage" in line


# Stop


async def test_stopping_ends_the_streams_of_every_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.server.app.GRACE", 0.2)
    heard: list[str] = []

    async def follow(two: TwoAgents, name: str) -> None:
        async with httpx2.AsyncClient(timeout=120) as client:
            url = f"{two.url}/agents/{name}"
            asked = said("wait", stream=True)
            async with client.stream("POST", url, json=asked, headers=HEADERS) as reply:
                async for _ in reply.aiter_lines():
                    pass
        heard.append(name)

    async with serving() as two:
        followers = [asyncio.create_task(follow(two, name)) for name in ("alpha", "beta")]
        await until(lambda: len(two.app.server.streams) == 2)
    await asyncio.gather(*followers)
    assert sorted(heard) == ["alpha", "beta"]


async def test_an_agent_that_cannot_start_stops_those_that_have_started() -> None:
    stopped: list[str] = []
    app = create_app(
        {"alpha": desk("alpha"), "beta": desk("beta")}, Settings(server=Server(store="memory:"))
    )
    alpha, beta = (app.mounts[name].peer for name in ("alpha", "beta"))
    stop = alpha.stop

    async def stop_alpha(grace: float) -> None:
        stopped.append("alpha")
        await stop(grace)

    async def fail() -> None:
        raise ConfigError("beta cannot start")

    alpha.stop, beta.start = stop_alpha, fail  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="beta cannot start"):
        await app.start()
    assert stopped == ["alpha"]
    await app.stop()  # as whoever started it does in any case
    assert stopped == ["alpha"]


# IAT


def envelope(to: str, token: str, **payload: Any) -> dict[str, Any]:
    header = {"msg_id": "1", "type": "request", "from": "host-1", "to": to, "timestamp": 1}
    metadata = {"auth_token": f"bearer {token}", "ttl": 3}
    return {"header": header, "metadata": metadata, "payload": payload}


async def test_a_session_with_one_agent_is_none_with_the_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("T_IAT", SECRET)
    iat = Iat(secret=Secret(env="T_IAT"))
    async with (
        serving(store=f"sqlite:///{tmp_path}/tasks.db", iat=iat) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        joined = await client.post(
            "/agents/alpha/iat",
            json=envelope("alpha", SECRET, action="register", agent_id="host-1"),
        )
        token = joined.json()["payload"]["session_token"]
        for name, status in (("alpha", 200), ("beta", 401)):
            reply = await client.post(
                f"/agents/{name}/iat",
                json=envelope(name, token, action="execute", query="hi"),
            )
            assert reply.status_code == status, reply.text


@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_every_agent_registers_with_the_host_under_its_own_name(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("T_IAT", SECRET)
    secret = Secret(env="T_IAT")
    host = Host("engine")
    async with serving({"": host}, iat=Iat(secret=secret)) as home:
        where = home.url.replace("http", scheme, 1)
        iat = Iat(secret=secret, host=f"engine={where}")
        async with serving(iat=iat) as two:
            for name in ("alpha", "beta"):
                registration = two.app.service(IatService, name).registration
                assert registration is not None
                await asyncio.wait_for(registration.registered.wait(), 60)
            assert {"alpha", "beta"} <= set(host.agents)
