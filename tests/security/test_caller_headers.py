"""`server.caller_headers`: the request headers that a skill sees, and never credentials."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import ApiKeys, Known, Secret
from dragoman.core.errors import ConfigError
from dragoman.core.peer import NO_HEADERS
from dragoman.settings import Server, Settings
from dragoman.testing import Client
from dragoman.testing.served import served


def desk() -> Agent:
    agent = Agent("Desk")

    @agent.skill("look")
    async def look(turn: Turn) -> dict[str, str]:
        return dict(turn.caller.headers)

    return agent


async def test_a_skill_sees_the_chosen_headers_and_no_others() -> None:
    chosen = ("X-Request-Id", "accept-language")
    settings = Settings(server=Server(store="memory:", caller_headers=chosen))
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]},
        },
    }
    headers = {
        "A2A-Version": "1.0",
        "X-Request-ID": "r1",
        "Authorization": "Bearer s",
        "Cookie": "c=1",
    }
    async with served(desk(), settings) as url, httpx2.AsyncClient(timeout=60) as client:
        answer = (await client.post(url, json=call, headers=headers)).json()
        (artifact,) = answer["result"]["task"]["artifacts"]
        assert artifact["parts"] == [{"data": {"x-request-id": "r1"}}]


@pytest.mark.parametrize(
    "name", ["Authorization", "cookie", "X-Api-Key", "x-amz-security-token", "X-Desk"]
)
def test_a_header_with_credentials_cannot_be_chosen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragoman.security.access_control import AccessControl

    monkeypatch.setenv("KEY", "k" * 40)
    keys = ApiKeys(callers={"ada": Known(secret=Secret(env="KEY"))}, name="X-Desk")
    settings = Settings(server=Server(caller_headers=(name,)), auth={"keys": keys})
    with pytest.raises(ConfigError, match="may hold credentials"):
        AccessControl(desk(), settings)


async def test_a_task_that_is_resumed_still_has_them(tmp_path: Path) -> None:
    agent, seen = Agent("Desk"), []

    @agent.skill("look")
    async def look(turn: Turn) -> str:
        seen.append(dict(turn.caller.headers))
        return await turn.ask("Well?")

    store = f"sqlite:///{tmp_path}/tasks.db"
    async with Client(agent, store=store) as client:
        client.context = replace(client.context, headers={"x-request-id": "r1"})
        task = await client.send("x")
    async with Client(agent, store=store) as client:
        assert client.context.headers is NO_HEADERS
        await client.send("yes", task=task)
    assert seen == [{"x-request-id": "r1"}] * 2
