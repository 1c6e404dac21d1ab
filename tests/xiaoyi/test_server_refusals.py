"""What the server side of XiaoYi links refuses, and what it ignores."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dragoman.client import connect
from dragoman.server.services.links import LinkService
from dragoman.settings import XiaoYi
from server.two_agents import desk, serving
from waiting import until
from xiaoyi.links import AGENT, PATH, Gateway, StandIn, dialled_in, gateway, signature


async def refused(door: Gateway, headers: dict[str, str], url: str = "", **socket: Any) -> int:
    """The status with which a handshake is refused; 0 if it is not."""
    try:
        async with dial(url or door.link_url, additional_headers=headers, **socket):
            return 0
    except InvalidStatus as exc:
        return exc.response.status_code


async def test_a_handshake_with_the_right_keys_is_let_in() -> None:
    async with asyncio.timeout(120), gateway() as door:
        assert await refused(door, door.headers()) == 0
        names = {key.title(): value for key, value in door.headers(off=1).items()}
        assert await refused(door, names) == 0


@pytest.mark.parametrize("off", [-600, 600, -301, 301])
async def test_a_wrong_clock_is_refused(off: float) -> None:
    async with asyncio.timeout(120), gateway() as door:
        assert await refused(door, door.headers(off=off)) == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"x-sign": "AAAA"},
        {"x-sign": ""},
        {"x-ts": "now"},
        {"x-ts": "١٢٣".encode().decode("latin-1")},
        {"x-ts": "9" * 400},
        {"x-ts": ""},
        {"x-access-key": "unknown"},
        {"x-access-key": ""},
    ],
)
async def test_wrong_credentials_are_refused(wrong: dict[str, str]) -> None:
    async with asyncio.timeout(120), gateway() as door:
        assert await refused(door, door.headers(**wrong)) == 401
        assert not door.service.links.open


async def test_many_refusals_are_told_once_a_second_with_their_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    many = 40
    async with asyncio.timeout(120), gateway() as door:
        for _ in range(many):
            assert await refused(door, door.headers(**{"x-sign": "AAAA"})) == 401

        def told() -> list[str]:
            return [each for each in caplog.messages if "link is refused" in each]

        def counted() -> int:
            return sum(int(re.search(r"count=(\d+)", each)[1]) for each in told())  # type: ignore[index]

        await until(lambda: counted() == many)
        seconds = {record.created for record in caplog.records if "refused" in record.getMessage()}
        assert len(told()) <= max(seconds) - min(seconds) + 2
        assert "a wrong signature" in told()[0]


async def test_the_wrong_secret_key_is_refused() -> None:
    async with asyncio.timeout(120), gateway() as door:
        door.sk = "wrong"
        assert await refused(door, door.headers()) == 401


@pytest.mark.parametrize("agent", ["ag-2", "", "AG-1"])
async def test_an_agent_id_that_the_key_was_not_made_for_is_forbidden(agent: str) -> None:
    async with asyncio.timeout(120), gateway() as door:
        assert await refused(door, door.headers(agent=agent)) == 403


async def test_the_name_of_another_agent_is_forbidden() -> None:
    async with asyncio.timeout(120), gateway("desk") as door:
        assert await refused(door, door.headers(agent="desk")) == 403


async def test_a_handshake_counts_once() -> None:
    async with asyncio.timeout(120), gateway() as door:
        headers = door.headers()
        assert await refused(door, headers) == 0
        assert await refused(door, headers) == 401
        # Names that are allowed, but were not written down, are no way to use it again.
        port = int(door.url.rpartition(":")[2])
        for host in ("127.0.0.2", "127.0.0.3:99"):
            named = f"ws://{host}{PATH}"
            assert await refused(door, headers, named, host="127.0.0.1", port=port) == 401


async def test_an_agent_may_dial_two_names_of_the_server_in_one_millisecond() -> None:
    async with asyncio.timeout(120), gateway() as door:
        headers = door.headers()
        port = door.url.rpartition(":")[2]
        assert await refused(door, headers, f"ws://localhost:{port}{PATH}") == 0
        assert await refused(door, headers, f"ws://127.0.0.1:{port}{PATH}") == 0
        assert await refused(door, headers, f"ws://localhost:{port}{PATH}") == 401


async def test_a_used_handshake_is_known_after_a_restart(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/links.db"
    async with asyncio.timeout(120), gateway(store=place) as door:
        headers = door.headers()
        assert await refused(door, headers) == 0
        ak, sk = door.ak, door.sk
    async with asyncio.timeout(120), gateway(store=place) as door:
        assert await refused(door, headers) == 401
        door.ak, door.sk = ak, sk
        assert await refused(door, door.headers()) == 0


async def test_a_revoked_key_closes_its_links_and_opens_none() -> None:
    async with asyncio.timeout(120), gateway() as door:
        async with dial(door.link_url, additional_headers=door.headers()) as socket:
            await door.app._pool.store.link_keys.revoke(door.ak)  # type: ignore[union-attr]
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        assert await refused(door, door.headers()) == 401


async def test_without_keys_there_is_nothing_to_dial() -> None:
    async with (
        asyncio.timeout(120),
        serving({"desk": desk("hi")}, several=True) as running,
        httpx2.AsyncClient(timeout=60) as client,
    ):
        assert (await client.get(running.url + PATH)).status_code == 404
        link = running.url.replace("http:", "ws:") + PATH
        with pytest.raises(InvalidStatus) as failed:
            async with dial(link):
                pass
        assert failed.value.response.status_code == 404


async def test_a_server_that_has_links_switched_off_has_no_route() -> None:
    async with serving({"desk": desk("hi")}, several=True, xiaoyi=XiaoYi(enabled=False)) as running:
        with pytest.raises(LookupError):
            running.app.service(LinkService)


async def test_a_plain_request_is_told_what_is_missing() -> None:
    async with gateway() as door, httpx2.AsyncClient(timeout=60) as client:
        assert (await client.get(door.url + PATH)).status_code == 401
        assert (await client.get(door.url + PATH, headers=door.headers())).status_code == 426
        assert (await client.get(f"{door.url}/agents/desk{PATH}")).status_code == 404


def _response(task: str, detail: str, session: str = "s") -> str:
    return json.dumps(
        {
            "msgType": "agent_response",
            "agentId": AGENT,
            "sessionId": session,
            "taskId": task,
            "msgDetail": detail,
        }
    )


GARBAGE = [
    "not json",
    "[]",
    "null",
    "{}",
    '{"msgType": 7}',
    '{"msgType": "unknown"}',
    _response("other-task", '{"result": {"kind": "status-update", "final": true}}'),
    _response("t", "[" * 100_000 + "]" * 100_000),
    _response("t", '{"result":' * 50_000),
    _response("t", "not json"),
    _response("t", '{"jsonrpc":"2.0","id":"x","result":{"artifact":{"parts":[{"kind":"x"}]}}}'),
    "[" * 200_000,
]


async def test_frames_that_nobody_can_use_are_ignored() -> None:
    async with (
        asyncio.timeout(240),
        gateway() as door,
        dialled_in(door) as stand_in,
        connect(f"{door.url}/agents/{AGENT}") as agent,
    ):
        for body in GARBAGE:
            await stand_in.socket.send(body)
            await stand_in.socket.send(body.encode())
        assert (await agent.send("still here")).text == "still here!"


async def test_an_agent_cannot_answer_the_task_of_another() -> None:
    gate = asyncio.Event()

    async def slow(agent: StandIn, request: dict[str, Any]) -> None:
        await gate.wait()
        await agent.text(request, "mine", final=True)

    async with (
        asyncio.timeout(240),
        gateway("ag-1", "ag-2") as door,
        dialled_in(door, slow) as mine,
        dialled_in(door, agent="ag-2") as other,
        connect(f"{door.url}/agents/{AGENT}") as agent,
    ):
        sending = asyncio.create_task(agent.send("go"))
        await until(lambda: mine.requests)
        await other.text(mine.requests[0], "stolen", final=True)
        await other.socket.send(json.dumps({"msgType": "heartbeat", "agentId": AGENT}))
        gate.set()
        assert (await sending).text == "mine"


async def test_a_frame_of_five_megabytes_closes_the_link() -> None:
    async with asyncio.timeout(120), gateway() as door:
        async with dial(door.link_url, additional_headers=door.headers()) as socket:
            with suppress(ConnectionClosed):
                await socket.send("x" * 5_000_000)
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        assert await refused(door, door.headers(off=1)) == 0


async def test_a_flood_of_messages_closes_the_link() -> None:
    async with asyncio.timeout(120), gateway() as door:
        async with dial(door.link_url, additional_headers=door.headers()) as socket:
            with suppress(ConnectionClosed):
                for _ in range(5_000):
                    await socket.send('{"msgType":"heartbeat","agentId":"ag-1"}')
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        await until(lambda: not door.service.links.open)


async def test_many_pings_are_answered_or_end_the_link_and_harm_nobody() -> None:
    async with (
        asyncio.timeout(240),
        gateway("ag-1", "ag-2") as door,
        dialled_in(door),
        dial(door.link_url, additional_headers=door.headers(agent="ag-2")) as socket,
        connect(f"{door.url}/agents/{AGENT}") as agent,
    ):
        for _ in range(5_000):
            await socket.ping()
        assert (await agent.send("calm")).text == "calm!"


async def test_a_silent_link_is_closed_at_the_idle_limit() -> None:
    async with asyncio.timeout(120), gateway() as door:
        door.service.endpoint._limits = type(door.service.endpoint._limits)(idle=0.3)
        async with dial(door.link_url, additional_headers=door.headers()) as socket:
            with pytest.raises(ConnectionClosed):
                await socket.recv()


@pytest.mark.slow  # takes several seconds
async def test_pings_alone_keep_a_link_open() -> None:
    async with asyncio.timeout(120), gateway() as door:
        door.service.endpoint._limits = type(door.service.endpoint._limits)(idle=2.0)
        headers = door.headers()
        async with dial(door.link_url, additional_headers=headers, ping_interval=0.5):
            await until(lambda: door.service.links.open)
            (link,) = door.service.links.open.values()
            later = time.monotonic() + 6  # three times as long as a silent link stays
            await until(lambda: time.monotonic() > later)
            assert list(door.service.links.open.values()) == [link]


async def test_random_signatures_are_not_accepted() -> None:
    async with asyncio.timeout(240), gateway() as door:
        check = door.service.endpoint.handshake
        assert check is not None
        stamp, let_in = str(int(time.time() * 1000)), 0
        for number in range(10_000):
            try:
                sign = signature(str(number), stamp)
                await check.check(door.headers(**{"x-sign": sign, "x-ts": stamp}))
                let_in += 1
            except Exception:
                continue
        assert let_in == 0
