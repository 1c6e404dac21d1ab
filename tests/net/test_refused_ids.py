"""What is refused at the door is told under the id of its request, if that could be read."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.net.http.request_body import LEFT_SIZE
from dragoman.settings import Rates
from semantics.ways import served

BIG = "x" * (LEFT_SIZE + 1)


def desk(**about: Any) -> Agent:
    agent = Agent("Desk", **about)

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text

    return agent


def asked(method: str, id: object, pad: str = "") -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"id": "t"}, "pad": pad}


@pytest.mark.parametrize("path", ["/", "/a2a-go"])
@pytest.mark.parametrize("id", ["a-1", 7, None])
async def test_a_caller_without_credentials_hears_the_id(
    path: str, id: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_ALICE", "token-of-alice-0123456789")
    alice = Known(secret=Secret(env="TOKEN_OF_ALICE"))
    agent = desk(auth={"key": Tokens(callers={"alice": alice})})
    async with served(agent) as server:
        for method in ("tasks/get", "tasks/resubscribe"):
            told = await server.client.post(path, json=asked(method, id))
            assert (told.status_code, told.json()["id"]) == (401, id)
        # Its body is not read to the end.
        large = await server.client.post(path, json=asked("tasks/get", id, BIG))
        assert (large.status_code, large.json()["id"]) == (401, None)
        broken = await server.client.post(
            path, content=b'{"id": 7', headers={"content-type": "application/json"}
        )
        assert (broken.status_code, broken.json()["id"]) == (401, None)


async def test_a_caller_that_asks_too_often_hears_the_id() -> None:
    async with served(desk(), rates=Rates(calls_per_minute=1)) as server:
        answers = [await server.client.post("/", json=asked("GetTask", n)) for n in range(1, 4)]
        assert [answer.json()["id"] for answer in answers] == [1, 2, 3]
        assert answers[-1].status_code == 429
        assert "retry-after" in answers[-1].headers


@pytest.mark.parametrize("path", ["/", "/a2a-go"])
async def test_a_body_that_is_not_called_json_is_refused_under_its_id(path: str) -> None:
    async with served(desk()) as server:
        request = httpx2.Request("POST", server.client.base_url.join(path), json=asked("x", 9))
        headers = {"content-type": "text/plain"}
        told = await server.client.post(path, content=request.content, headers=headers)
        assert (told.status_code, told.json()["id"]) == (415, 9)
        empty = await server.client.post(path, content=b"", headers=headers)
        assert (empty.status_code, empty.json()["id"]) == (415, None)
