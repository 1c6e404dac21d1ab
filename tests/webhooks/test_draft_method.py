"""SetTaskPushNotificationConfig, which the overview documents name: nested as in the drafts, or
flat as in 1.0. The caller is a plain HTTP client that knows the texts only."""

from __future__ import annotations

from typing import Any

import pytest

from cards.served import desk
from semantics.ways import RunningServer, served

URL = "https://hooks.example/a"
NESTED = {
    "pushNotificationConfig": {
        "id": "mine",
        "url": URL,
        "token": "k",
        "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "s"},
    }
}
NESTED_WITH_ONE_SCHEME = {
    "push_notification_config": {
        "id": "mine",
        "url": URL,
        "token": "k",
        "authentication": {"scheme": "Bearer", "credentials": "s"},
    }
}
FLAT = {
    "id": "mine",
    "url": URL,
    "token": "k",
    "authentication": {"scheme": "Bearer", "credentials": "s"},
}


async def call(running: RunningServer, method: str, params: dict[str, Any]) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await running.client.post("/", json=body, headers={"a2a-version": "1.0"})).json()


async def finished_task(running: RunningServer) -> str:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    return str((await call(running, "SendMessage", {"message": message}))["result"]["task"]["id"])


@pytest.mark.parametrize("config", [NESTED, NESTED_WITH_ONE_SCHEME, FLAT])
async def test_every_form_sets_the_webhook(config: dict[str, Any]) -> None:
    async with served(desk()) as running:
        task = await finished_task(running)
        answered = await call(running, "SetTaskPushNotificationConfig", {"taskId": task, **config})
        result = answered["result"]
        assert (result["id"], result["taskId"], result["url"]) == ("mine", task, URL)
        nested = result["pushNotificationConfig"]
        assert (nested["id"], nested["url"]) == ("mine", URL)
        assert nested["authentication"]["schemes"][0] == "Bearer"
        shown = await call(running, "GetTaskPushNotificationConfig", {"taskId": task, "id": "mine"})
        assert shown["result"]["authentication"]["scheme"] == "Bearer"
        assert shown["result"]["url"] == URL


async def test_a_nested_config_without_a_url_is_told_where_it_is_missing() -> None:
    async with served(desk()) as running:
        task = await finished_task(running)
        params = {"taskId": task, "pushNotificationConfig": {"id": "mine"}}
        error = (await call(running, "SetTaskPushNotificationConfig", params))["error"]
        assert error["code"] == -32602
        assert "pushNotificationConfig.url" in str(error)
