"""The same work seen from A2A, and questions that outlive the process that asked them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from net.iat.sub_agent import READ, RunningAgent, open_server

WORK = "urn:dragoman:work:1"


async def rpc(server: RunningAgent, method: str, **params: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"a2a-version": "1.0", "a2a-extensions": WORK}
    reply = await server.client.post("/", json=body, headers=headers)
    return dict(reply.json()["result"])


def said(*parts: Any, **members: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "parts": list(parts), **members}


async def test_a_caller_of_a2a_offers_tools_too() -> None:
    async with open_server(insecure=True) as server:
        tools = {f"{WORK}/tools": [READ]}
        sent = await rpc(server, "SendMessage", message=said({"text": "read it"}), metadata=tools)
        task = sent["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        _, asked = task["status"]["message"]["parts"]
        assert asked["data"] == {
            "kind": "tool",
            "question": "tool:read_file",
            "details": {"path": "pkg/b.go"},
        }
        answer = said({"data": {"result": "package b"}}, taskId=task["id"])
        done = (await rpc(server, "SendMessage", message=answer))["task"]
        assert done["artifacts"][0]["parts"] == [{"text": "package b and ()"}]


async def test_an_approval_asked_in_iat_is_given_in_a2a_and_back() -> None:
    async with open_server(insecure=True) as server:
        told = await server.ask("execute", query="delete it")
        assert told["asks"]["action"] == "require_approval"
        yes = said({"data": {"approved": True}}, taskId=told["task_id"])
        done = (await rpc(server, "SendMessage", message=yes))["task"]
        assert done["artifacts"][0]["parts"] == [{"text": "deleted"}]

        task = (await rpc(server, "SendMessage", message=said({"text": "delete it"})))["task"]
        status = await server.ask("task_status", task_id=task["id"])
        parent = status["asks"]["msg_id"]
        await server.post(server.envelope("", "response", parent_id=parent, approved=True))
        found = await server.ask("task_status", task_id=task["id"])
        while found["status"] == "working":
            found = await server.ask("task_status", task_id=task["id"])
        assert found["result_summary"] == "deleted"


async def test_a_tool_call_outlives_the_process_that_asked(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server:
        await server.join()
        told = await server.ask("execute", query="read it", tools=[READ])
        asked = told["asks"]
        assert asked["tool_name"] == "read_file"
    async with open_server(tmp_path) as server:
        await server.join()
        wrong = server.envelope("", "response", parent_id=asked["msg_id"], result=5)
        await server.post(wrong)
        watch = server.envelope("watch", task_id=told["task_id"])
        *_, (_, _, done) = [step async for step in server.stream(watch)]
        # Its schema is still known, and so is what came before the question.
        assert "breaks its schema" in done["payload"]["error"]["message"]


@pytest.mark.parametrize(
    ("version", "method", "role", "part"),
    [
        ("1.0", "SendMessage", "ROLE_USER", {"text": "hello"}),
        ("0.3", "message/send", "user", {"kind": "text", "text": "hello"}),
    ],
)
async def test_what_a_run_used_is_not_told_in_a2a(
    version: str, method: str, role: str, part: dict[str, str]
) -> None:
    async with open_server(insecure=True) as server:
        message = {"messageId": "m", "role": role, "parts": [part]}
        said = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
        told = await server.client.post("/", json=said, headers={"A2A-Version": version})
        assert "HELLO" in told.text
        assert "812" not in told.text
        assert "usage" not in told.text
