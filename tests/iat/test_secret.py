"""The shared secret is proved and never sent: not to whoever registers, and not to a host."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.server import ServerConnection, serve

from dragoman import State
from dragoman.core.auth_schemes import ApiKeys, Known, Secret
from dragoman.iat import Host
from dragoman.testing.served import served
from iat.flat_agent import Asked, FlatAgent, Liar, Welcoming, running
from iat.team import SECRET, engine_host, registering, settings, story, worker
from net.iat.sub_agent import signed
from waiting import until


def shown(asked: Asked) -> str:
    """All that a request shows."""
    return f"{asked.path} {asked.headers} {asked.body!r}"


def assert_proved(asked: Asked) -> None:
    """It is signed with the secret, over a body that names whom it is for."""
    stamp = asked.headers["x-iat-timestamp"].encode()
    wanted = hmac.new(SECRET.encode(), stamp + b"." + asked.body, hashlib.sha256).hexdigest()
    assert asked.headers["x-iat-signature"] == wanted
    assert "authorization" not in asked.headers
    assert "x-iat-token" not in asked.headers
    said = asked.said
    assert (said.get("header") or said)["to"] == "thief"
    # Its own session token comes back to it, but not with the first message.
    token = said["metadata"].get("auth_token", "")
    assert not token or (token.startswith("bearer iat_") and asked.action != "HELO")


class Thief(FlatAgent):
    """Registers without the secret (here: a caller that the host lets in), and listens."""

    greets = False

    def answer(self, asked: Asked) -> dict[str, Any]:
        """Refuses our sessions now and then, to hear us say hello again."""
        if self.greets and asked.action in ("HELO", "pulse"):
            header = asked.said["header"]
            answer = {"msg_id": "a", "parent_id": header["msg_id"], "type": "response"}
            told = {"action": asked.action, "session_token": "iat_of-the-thief", "tools": []}
            return {"header": answer, "metadata": {}, "payload": told}
        return super().answer(asked)


class Greeting(Thief):
    """Gives a session for HELO, as agents of ours do."""

    greets = True


@pytest.mark.parametrize("kind", [Thief, Greeting])
async def test_whoever_registers_is_never_sent_the_secret(
    tmp_path: Path, kind: type[Thief]
) -> None:
    """HELO, pulse, execute and what follows: all of it goes to an address that somebody named."""
    host = engine_host(pulse=0.5)
    with running(kind()) as thief:
        async with (
            served(host, settings(tmp_path, "engine")) as url,
            httpx2.AsyncClient(base_url=url) as client,
        ):
            body = registering("thief", f"{thief.url}/a2a")
            reply = await client.post("/iat", content=body, headers=signed(body, None, SECRET))
            assert reply.status_code == 200, reply.text
            _, task = await story(host, "hello", agent="thief")
            assert task.state is State.COMPLETED, task.status
            await thief.heard("pulse", 2)
        asked = [*thief.asked]
    assert {each.action for each in asked} >= {"HELO", "pulse", "execute_task"}
    assert all(SECRET not in shown(each) for each in asked)
    for each in asked:
        if each.action == "HELO" or not kind.greets:
            assert_proved(each)
        else:  # its own token is all it hears again
            assert "x-iat-signature" not in each.headers
            assert "iat_of-the-thief" in shown(each)


async def test_what_a_host_signs_for_one_agent_is_refused_by_all_others(tmp_path: Path) -> None:
    host = engine_host()
    with running(FlatAgent()) as thief:
        async with (
            served(host, settings(tmp_path, "engine")) as url,
            served(worker(), settings(tmp_path, "worker")) as other,
            served(worker(), settings(tmp_path, "thief")) as same,
            httpx2.AsyncClient() as client,
        ):
            body = registering("thief", f"{thief.url}/a2a")
            await client.post(f"{url}/iat", content=body, headers=signed(body, None, SECRET))
            # Its register, told on to somebody else in its name.
            told_on = await client.post(
                f"{other}/iat", content=body, headers=signed(body, None, SECRET)
            )
            assert told_on.status_code == 401
            await story(host, "hello", agent="thief")
            hello = next(each for each in thief.asked if each.action == "HELO")
            proof = {k: v for k, v in hello.headers.items() if k.startswith("x-iat-")}
            proof["content-type"] = "application/json"
            for path in ("/iat", "/a2a"):
                reply = await client.post(f"{other}{path}", content=hello.body, headers=proof)
                assert reply.status_code == 401
                assert "session_token" not in reply.text
            # It is the name that decides, and each is good once.
            for status in (200, 401):
                reply = await client.post(f"{same}/iat", content=hello.body, headers=proof)
                assert reply.status_code == status


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, list[str]]]:
    """A WebSocket host that says nothing, and all it was shown."""
    shown: list[str] = []

    async def hear(socket: ServerConnection) -> None:
        assert socket.request is not None
        shown.append(f"{socket.request.path} {dict(socket.request.headers)}")
        shown.append(str(await socket.recv()))
        await socket.wait_closed()

    async with serve(hear, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}", shown


async def test_an_agent_that_joins_over_a_socket_proves_the_secret(tmp_path: Path) -> None:
    async with (
        listening() as (url, shown),
        served(worker(), settings(tmp_path, "worker", host=url)),
    ):
        await until(lambda: len(shown) >= 2)
        handshake, frame, *_ = shown
        assert "x-iat-signature" in handshake.lower()
        assert json.loads(frame)["payload"]["action"] == "register"
        assert SECRET not in "".join(shown)


async def test_an_agent_that_joins_over_http_proves_the_secret(tmp_path: Path) -> None:
    with running(FlatAgent()) as host:
        own = settings(tmp_path, "worker", host=f"{host.url}/a2a")
        async with served(worker(), own):
            await host.heard("register")
        assert all(SECRET not in shown(each) for each in host.asked)
        assert all("x-iat-signature" in each.headers for each in host.asked)


@pytest.mark.parametrize("way", ["ws", "http"])
async def test_a_host_that_lets_everyone_in_needs_no_proof(tmp_path: Path, way: str) -> None:
    """It may have no secret, or another one."""
    host = Host("engine")
    open_ = settings(tmp_path, "engine", insecure=True)
    open_ = type(open_)(server=open_.server)
    async with served(host, open_) as url:
        own = settings(tmp_path, "worker", host=url.replace("http:", f"{way}:"))
        async with served(worker(), own):
            assert (await host.find("worker", 60)).online


async def test_signed_for_nobody_is_refused_with_the_name_to_sign_for(tmp_path: Path) -> None:
    async with (
        served(worker(), settings(tmp_path, "worker")) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        for to, status in (("", 401), ("somebody", 401), ("worker", 200)):
            body = registering("host-1", "", to)
            reply = await client.post("/iat", content=body, headers=signed(body, None, SECRET))
            assert reply.status_code == status, to
            assert reply.json()["header"]["from"] == (to or "worker")


# Whom a signature is for is not said by whoever gets it.


def signed_for(agent: FlatAgent) -> set[str]:
    """All whom something was signed for that this agent was sent."""
    asked = [each for each in tuple(agent.asked) if "x-iat-signature" in each.headers]
    return {(each.said.get("header") or each.said)["to"] for each in asked}


@pytest.mark.parametrize("kind", [Liar, Welcoming])
@pytest.mark.parametrize("claims", ["engine", "worker"])
async def test_nothing_is_signed_for_a_name_that_an_address_claims(
    tmp_path: Path, kind: type[Liar], claims: str
) -> None:
    with running(kind(claims)) as liar:
        host = engine_host(agents=[liar.url], pulse=0.5)
        async with served(host, settings(tmp_path, "engine")):
            await liar.heard("HELO" if kind.refuses else "pulse", 3)
        assert signed_for(liar) == set()


@pytest.mark.parametrize("kind", [Liar, Welcoming])
async def test_what_goes_to_a_named_address_is_signed_for_that_name(
    tmp_path: Path, kind: type[Liar]
) -> None:
    with running(kind("worker")) as liar:
        host = engine_host(agents=[f"go={liar.url}"], pulse=0.5)
        async with served(host, settings(tmp_path, "engine")):
            await liar.heard("HELO" if kind.refuses else "pulse", 3)
        assert signed_for(liar) == {"go"}


async def test_whoever_registers_without_the_secret_is_sent_nothing_signed(tmp_path: Path) -> None:
    host = engine_host(pulse=0.5)
    (tmp_path / "key").write_text("alice-has-this-long-key")
    alice = Known(secret=Secret(file=str(tmp_path / "key")))
    host.auth["keys"] = ApiKeys(callers={"alice": alice})
    key = {"x-api-key": "alice-has-this-long-key", "content-type": "application/json"}
    with running(Welcoming("worker")) as liar:
        async with (
            served(host, settings(tmp_path, "engine")) as url,
            httpx2.AsyncClient(base_url=url) as client,
        ):
            body = registering("engine", f"{liar.url}/a2a")
            assert (await client.post("/iat", content=body, headers=key)).status_code == 403
            body = registering("worker", f"{liar.url}/a2a")
            reply = await client.post("/iat", content=body, headers=key)
            token = {"x-iat-token": reply.json()["payload"]["session_token"], **key}
            assert (await client.post("/iat", content=body, headers=token)).status_code == 200
            await liar.heard("pulse", 3)
        assert signed_for(liar) == set()


async def test_a_signed_message_of_ourselves_is_refused(tmp_path: Path) -> None:
    """What we signed, and somebody sent back to us."""
    async with (
        served(engine_host(), settings(tmp_path, "engine")) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        body = registering("engine", "")
        reply = await client.post("/iat", content=body, headers=signed(body, None, SECRET))
        assert reply.status_code == 401
        body = body.replace(b'"agent_id":"engine"', b'"agent_id":"other"')
        reply = await client.post("/iat", content=body, headers=signed(body, None, SECRET))
        assert reply.status_code == 401
        body = registering("other", "").replace(b'"agent_id":"other"', b'"agent_id":"engine"')
        reply = await client.post("/iat", content=body, headers=signed(body, None, SECRET))
        assert reply.status_code == 403


@pytest.mark.parametrize(("named", "host"), [("", "host"), ("engine=", "engine")])
async def test_an_agent_signs_for_the_host_that_it_was_told_to_join_over_http(
    tmp_path: Path, named: str, host: str
) -> None:
    with running(Liar("coder")) as liar:
        own = settings(tmp_path, "worker", host=f"{named}{liar.url}/a2a")
        async with served(worker(), own):
            await liar.heard("register", 3)
        assert signed_for(liar) == {host}


@pytest.mark.parametrize(("named", "host"), [("", "host"), ("engine=", "engine")])
async def test_an_agent_signs_for_the_host_that_it_was_told_to_join_over_a_socket(
    tmp_path: Path, named: str, host: str
) -> None:
    frames: list[str] = []

    async def refuse(socket: ServerConnection) -> None:
        frame = str(await socket.recv())
        frames.append(frame)
        asked = Asked("", {}, frame.encode())
        await socket.send(json.dumps(Liar.answer(liar, asked)))
        await socket.wait_closed()

    with running(Liar("coder")) as liar:
        async with serve(refuse, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            own = settings(tmp_path, "worker", host=f"{named}ws://127.0.0.1:{port}")
            async with served(worker(), own):
                await until(lambda: len(frames) >= 3)
    assert {json.loads(frame)["header"]["to"] for frame in frames} == {host}
