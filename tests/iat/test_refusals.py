"""What a stranger is told whose message is not right: raw HTTP and raw WebSockets, nothing of ours
on its side."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as open_socket

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Secret
from dragoman.settings import Iat
from dragoman.testing.served import served
from iat.stranger import Json, Reply, Stranger, envelope, post, running
from iat.team import SECRET, engine_host, settings
from iat.test_strangers import register
from server.two_agents import desk, serving
from waiting import LIMIT


def echo() -> Agent:
    agent = Agent("one")

    @agent.skill("echo")
    async def run(turn: Turn) -> str:
        return turn.text.upper()

    return agent


def hello(url: str, to: str) -> str:
    """Introduces a stranger, and returns the token of its session."""
    payload = {"action": "HELO", "agent_id": "stranger", "actions": []}
    status, told = post(f"{url}/iat", envelope("request", payload, to=to, token=SECRET))
    assert status == 200, told
    return str(told["payload"]["session_token"])


def fetch(url: str, body: bytes | None = None, **headers: str) -> tuple[int, str, bytes]:
    """The status, the type and the body of an answer."""
    request = urllib.request.Request(url, body, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as reply:
            return reply.status, reply.headers["content-type"], reply.read()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.headers["content-type"], exc.read()


WRONG: dict[str, Callable[[Json], Any]] = {
    "a number as the sender": lambda said: said["header"].update({"from": 3}),
    "a text as the time": lambda said: said["header"].update(timestamp="now"),
    "an object as the id": lambda said: said["header"].update(msg_id={}),
    "a text as the ttl": lambda said: said["metadata"].update(ttl="three"),
    "a number as the token": lambda said: said["metadata"].update(auth_token=5),
    "a list as the header": lambda said: said.update(header=[]),
    "a text as the metadata": lambda said: said.update(metadata="x"),
    "an unknown type": lambda said: said["header"].update(type="shout"),
    "no header": lambda said: said.pop("header"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_wrong_types_in_an_envelope_are_a_bad_envelope(tmp_path: Path, what: str) -> None:
    async with asyncio.timeout(LIMIT), served(echo(), settings(tmp_path, "one")) as url:
        token = await asyncio.to_thread(hello, url, "one")
        said = envelope("request", {"action": "execute", "query": "hi"}, to="one", token=token)
        WRONG[what](said)
        body = json.dumps(said).encode()
        for path in ("/iat", "/a2a", "/a2a/stream"):
            status, _, told = await asyncio.to_thread(fetch, url + path, body)
            assert status == 400, path
            assert json.loads(told)["payload"]["error"]["code"] == "bad_envelope"
        async with open_socket(url.replace("http", "ws") + "/iat/ws") as socket:
            await socket.send(body.decode())
            told = json.loads(await socket.recv())
            assert told["payload"]["error"]["code"] == "bad_envelope"


async def test_who_shows_no_credentials_in_a_whole_envelope_is_told_so(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), served(echo(), settings(tmp_path, "one")) as url:
        for kind, payload in (
            ("request", {"action": "execute", "query": "hi"}),
            ("request", {"action": "execute", "query": 5}),
            ("notification", {"action": "nothing of the kind"}),
        ):
            said = envelope(kind, payload, to="one", token="guessed")
            status, told = await asyncio.to_thread(post, f"{url}/iat", said)
            assert status == 401
            assert told["payload"]["error"]["code"] == "unauthorized"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/a2a/stream", None),
        ("/a2a/stream?system=x", None),
        ("/a2a/stream", {"action": "nothing of the kind"}),
        ("/a2a/stream", {"action": "watch", "task_id": "nobody's"}),
        ("/a2a/stream", {"action": "execute"}),
    ],
)
async def test_a_refusal_of_a_stream_is_an_event(
    tmp_path: Path, path: str, body: Json | None
) -> None:
    async with asyncio.timeout(LIMIT), served(echo(), settings(tmp_path, "one")) as url:
        token = await asyncio.to_thread(hello, url, "one")
        said = envelope("request", body, to="one") if body is not None else None
        status, kind, told = await asyncio.to_thread(
            fetch,
            url + path,
            json.dumps(said).encode() if said else None,
            authorization=f"Bearer {token}",
        )
    assert status >= 400 or kind.startswith("text/event-stream"), (status, kind, told)
    (data,) = [line[6:] for line in told.decode().splitlines() if line.startswith("data: ")]
    assert "error" in json.loads(data).get("payload", json.loads(data))


async def test_a_message_for_another_agent_of_the_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    iat = Iat(secret=Secret(file=str(tmp_path / "secret")))
    agents = {"alpha": desk("alpha"), "beta": desk("beta")}
    async with asyncio.timeout(LIMIT), serving(agents, iat=iat) as door:
        url = f"{door.url}/agents/alpha"
        token = await asyncio.to_thread(hello, url, "alpha")

        async def execute(to: str, kind: str = "request") -> tuple[int, Json]:
            said = envelope(kind, {"action": "execute", "query": "hi"}, to=to, token=token)
            return await asyncio.to_thread(post, f"{url}/iat", said)

        for own in ("alpha", "", "nobody we know"):
            _, told = await execute(own)
            assert told["payload"]["action"] == "done", told
        _, told = await execute("beta")
        error = told["payload"]["error"]
        assert (error["code"], error["details"]["field"]) == ("bad_params", "header.to")
        await execute("beta", "notification")
        done = (await door.app.mounts["alpha"].peer.counts())["completed"]
        assert done == 3
        async with open_socket(url.replace("http", "ws") + "/iat/ws") as socket:
            said = envelope("request", {"action": "pulse"}, to="beta", token=token)
            await socket.send(json.dumps(said))
            assert json.loads(await socket.recv())["payload"]["error"]["code"] == "bad_params"


async def test_a_message_for_a_sub_agent_is_not_for_its_host(tmp_path: Path) -> None:
    host = engine_host()
    with running(Stranger(lambda stranger, asked: Reply(b"", 202))) as agent:
        async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")) as url:
            token = await asyncio.to_thread(register, agent, url, agent.url)
            await host.find("stranger", LIMIT)
            said = envelope("request", {"action": "pulse"}, to="stranger", token=token)
            _, told = await asyncio.to_thread(post, f"{url}/iat", said)
            assert told["payload"]["error"]["code"] == "bad_params"
            said = envelope("request", {"action": "pulse"}, to="engine", token=token)
            _, told = await asyncio.to_thread(post, f"{url}/iat", said)
            assert told["payload"]["ok"] is True
