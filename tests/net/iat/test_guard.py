"""Nobody speaks IAT without showing who they are, and nothing shown is kept or told."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from net.iat.sub_agent import SECRET, open_server, signed

PATHS = ("/iat", "/a2a", "/a2a/stream")


@pytest.mark.parametrize("path", PATHS)
async def test_without_a_token_nothing_is_done_on_loopback_too(path: str) -> None:
    async with open_server() as server:
        for token in ("", "wrong", "x" * 43):
            said = server.envelope("execute", query="hello", token=token)
            reply = await server.post(said, path)
            assert reply.status_code == 401
            assert reply.json()["payload"]["error"]["code"] == "unauthorized"
        assert await server.app.mounts[""].peer.counts() == {"runnable": 0}


async def test_insecure_lets_everyone_in() -> None:
    async with open_server(insecure=True) as server:
        assert (await server.ask("execute", query="hello"))["result_summary"] == "HELLO "


async def test_the_secret_opens_a_session_and_does_nothing_else() -> None:
    async with open_server() as server:
        said = server.envelope("execute", query="hello", token=SECRET)
        assert (await server.post(said)).status_code == 401
        await server.join()
        assert (await server.ask("execute", query="hello"))["status"] == "completed"


async def test_from_must_be_who_has_the_token() -> None:
    async with open_server() as server:
        await server.join()
        reply = await server.post(server.envelope("execute", query="x", sender="host-2"))
        assert reply.status_code == 403


async def test_what_belongs_to_one_host_does_not_exist_for_another() -> None:
    async with open_server() as server:
        await server.join()
        task = (await server.ask("execute", query="ask me"))["task_id"]
        told = await server.ask("register", agent_id="host-2", sender="host-2", token=SECRET)
        other = {"sender": "host-2", "token": told["session_token"]}
        for action in ("task_status", "terminate", "watch"):
            found = await server.ask(action, task_id=task, **other)
            assert found["error"]["code"] == "task_not_found", action
        stolen = server.envelope(
            "", "response", parent_id=f"{task}/input:Which one?", value="x", **other
        )
        assert (await server.post(stolen)).json()["payload"]["error"]["code"] == "task_not_found"


async def test_a_signature_is_good_once_and_not_for_long() -> None:
    async with open_server() as server:
        body = json.dumps(server.envelope("execute", query="hello")).encode()

        async def sent(headers: dict[str, str], content: bytes = body) -> int:
            return (await server.client.post("/iat", content=content, headers=headers)).status_code

        good = signed(body)
        assert await sent(good) == 200
        assert await sent(good) == 401  # replayed
        assert await sent(signed(body), body + b" ") == 401
        assert await sent(signed(body, secret="another-secret-altogether")) == 401
        now = int(time.time())
        assert await sent(signed(body, now - 400)) == 401
        assert await sent(signed(body, now + 400)) == 401
        assert await sent(signed(body, now - 200)) == 200
        assert await sent({**signed(body, now - 100), "x-iat-timestamp": "x"}) == 401


async def test_tokens_are_in_no_log_and_no_store(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with open_server(tmp_path) as server:
        await server.join()
        token = server.token
        said: Any = server.envelope("execute", query="hello")
        events = [json.dumps(event) async for event in server.stream(said)]
        await server.post(server.envelope("execute", query="x", token="canary-token"))
        await server.post(server.envelope("execute", query="fail"))
    kept = all_bytes(tmp_path)
    shown = "".join(capfd.readouterr()) + "".join(events)
    for canary in (token, SECRET, "canary-token"):
        assert canary not in shown
        assert canary.encode() not in kept


async def test_switched_off_it_leaves_no_route() -> None:
    async with open_server(enabled=False) as server:
        for path in PATHS:
            assert (await server.post({}, path)).status_code == 404
        assert (await server.client.get("/manifest")).status_code == 404


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
