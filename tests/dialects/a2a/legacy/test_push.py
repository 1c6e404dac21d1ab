"""Webhooks of the older dialects: one a task, told in the words of its owner."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.core.dialect import Dialect
from dragoman.core.peer import Context
from dragoman.core.session import Call, Frame, Result
from dragoman.dialects import DIALECTS
from dragoman.engine import Engine
from webhooks.harness import empty, engine
from webhooks.receiver import Receiver

HEADERS = {"content-type": "application/json"}
both = pytest.mark.parametrize(
    "dialect", [DIALECTS["a2a-0.1"], DIALECTS["a2a-go"]], ids=lambda dialect: dialect.name
)


async def ask(running: Engine, dialect: Dialect, method: str, params: dict[str, Any]) -> Any:
    """What the dialect's callee answers."""
    callee = dialect.callee()
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    (call,) = callee.receive(Frame(json.dumps(body).encode(), "POST /", HEADERS))
    assert isinstance(call, Call), call
    ctx = Context(principal="alice", dialect=dialect.name)
    (frame,) = callee.send(Result(call.id, await running.call(call.op, ctx)))
    return json.loads(frame.body)["result"]


def sending(text: str, skill: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": "t-1", "message": message, "metadata": {"skillId": skill}, **more}


@both
async def test_a_webhook_set_with_the_send_is_told_the_task(dialect: Dialect) -> None:
    async with Receiver() as receiver, engine() as running:
        config = {"url": receiver.url, "token": "k"}
        await ask(running, dialect, "tasks/send", sending("2", "count", pushNotification=config))
        await empty(running)
        told = receiver.heard[-1]
        assert told.headers["x-a2a-notification-token"] == "k"
        assert told.json["id"] == "t-1"
        assert "kind" not in told.json
        assert told.json["artifacts"][0]["parts"][0]["type"] == "text"


@both
async def test_the_next_webhook_takes_the_place_of_the_last(dialect: Dialect) -> None:
    async with Receiver() as receiver, engine() as running:
        await ask(running, dialect, "tasks/send", sending("?", "wait"))
        for path in ("a", "b"):
            params = {"id": "t-1", "pushNotificationConfig": {"url": f"{receiver.url}/{path}"}}
            found = await ask(running, dialect, "tasks/pushNotification/set", params)
            assert found.get("pushNotificationConfig", found)["url"].endswith(path)
        found = await ask(running, dialect, "tasks/pushNotification/get", {"id": "t-1"})
        assert found.get("pushNotificationConfig", found)["url"].endswith("/b")
        assert found.get("id", "t-1") == "t-1"
        await ask(running, dialect, "tasks/send", sending("this", "wait"))
        await empty(running)
        assert {told.path for told in receiver.heard} == {"/hook/b"}
