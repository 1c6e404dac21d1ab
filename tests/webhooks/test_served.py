"""Webhooks of a served agent: set over the wire, heard over the wire."""

from __future__ import annotations

from pathlib import Path

import httpx2
import msgspec
import pytest

from crash.client import Client, Refused, message
from crash.server import Server
from webhooks.receiver import Receiver

SETTINGS = "[server]\ngrpc = false\nallow_private = {private}\n[push]\nenabled = {enabled}\n"


async def served(folder: Path, *, private: bool = True, enabled: bool = True) -> Server:
    """`dragoman serve` with these settings."""
    words = {"private": str(private).lower(), "enabled": str(enabled).lower()}
    (folder / "dragoman.toml").write_text(SETTINGS.format(**words))
    server = Server(folder, f"sqlite:///{folder}/tasks.db")
    server.start()
    await server.ready()
    return server


@pytest.mark.slow  # starts processes
async def test_a_webhook_can_be_set_shown_and_ended(tmp_path: Path) -> None:
    with await served(tmp_path) as server:
        client = Client(server.url)
        async with Receiver() as receiver:
            config = {"url": receiver.url, "token": "a token of sixteen"}
            params = {
                "message": message("hello", "m1", "echo"),
                "configuration": {"taskPushNotificationConfig": config},
            }
            task = (await client.call("SendMessage", params))["task"]
            heard = await receiver.until(4)
            assert "task" in heard[0].json
            assert heard[0].headers["x-a2a-notification-token"] == config["token"]
            named = {"taskId": task["id"], "id": task["id"]}
            shown = await client.call("GetTaskPushNotificationConfig", named)
            assert (shown["url"], shown["token"]) == (receiver.url, "****teen")
            listed = await client.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
            assert len(listed["configs"]) == 1
            await client.call("DeleteTaskPushNotificationConfig", named)
            with pytest.raises(Refused) as refused:
                await client.call("GetTaskPushNotificationConfig", named)
            assert refused.value.code == -32001


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize(
    ("private", "enabled", "code"), [(False, True, -32602), (True, False, -32003)]
)
async def test_a_webhook_that_may_not_be_is_refused(
    tmp_path: Path, private: bool, enabled: bool, code: int
) -> None:
    with await served(tmp_path, private=private, enabled=enabled) as server:
        client = Client(server.url)
        async with httpx2.AsyncClient() as http:
            answer = await http.get(f"{server.url}/.well-known/agent-card.json")
        card = msgspec.json.decode(answer.content)
        assert card["capabilities"].get("pushNotifications", False) is enabled
        config = {"url": "http://127.0.0.1:9/hook"}
        params = {
            "message": message("hello", "m1", "echo"),
            "configuration": {"taskPushNotificationConfig": config},
        }
        with pytest.raises(Refused) as refused:
            await client.call("SendMessage", params)
        assert refused.value.code == code
        assert (await client.call("ListTasks", {}))["totalSize"] == 0
