"""Answers with several parts, and results that are no text, between strangers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from dragoman import Agent, Turn
from dragoman.core.model import Blob, Data, Link, Text
from gateway.behind import gateway, settings
from iat.stranger import Asked, Json, Reply, Stranger, done, envelope, running, stream
from net.iat.sub_agent import open_server
from waiting import until

FILE = base64.b64encode(b"%PDF").decode()
PARTS = [
    {"text": "Before"},
    {"data": {"size": 3}},
    {"raw": FILE, "filename": "plan.pdf", "mediaType": "application/pdf"},
    {"text": "after"},
]
OURS = [
    {"kind": "text", "text": "Before"},
    {"kind": "data", "value": {"size": 3}},
    {"kind": "blob", "content": FILE, "filename": "plan.pdf", "media_type": "application/pdf"},
    {"kind": "text", "text": "after"},
]


def asks(stranger: Stranger, asked: Asked) -> Reply:
    """Asks for input in its stream, and is done when it has the answer."""

    def events() -> Iterator[Json]:
        question = envelope("request", {"action": "require_input", "prompt": "What?"}, asked.id)
        yield question
        stranger.wait_for(question)
        yield done(asked, "thanks")

    return stream(events())


async def rpc(client: httpx2.AsyncClient, method: str, **params: Any) -> Any:
    """One call of A2A 1.0, by hand."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = (await client.post("", json=body)).json()
    assert "error" not in answer, answer
    return answer["result"]


def message(parts: list[Json], **more: Any) -> Json:
    return {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": parts, **more}


async def test_an_answer_keeps_all_its_parts_on_the_way_to_a_stranger(tmp_path: Path) -> None:
    with running(Stranger(asks, "/iat")) as agent:
        section = {"url": f"iat+{agent.url}/iat"}
        async with (
            asyncio.timeout(120),
            gateway({"desk": section}, settings(tmp_path)) as door,
            httpx2.AsyncClient(
                base_url=door.at("desk"), headers={"a2a-version": "1.0"}, timeout=60
            ) as client,
        ):
            found = await rpc(client, "SendMessage", message=message([{"text": "go"}]))
            task = found["task"]
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task
            await rpc(client, "SendMessage", message=message(PARTS, taskId=task["id"]))

            async def ended() -> bool:
                now = await rpc(client, "GetTask", id=task["id"])
                return bool(now["status"]["state"] == "TASK_STATE_COMPLETED")

            await until(ended)
    (answer,) = agent.answers.values()
    told = 'Before\n{"size":3}\nplan.pdf (application/pdf, 4 bytes)\nafter'
    assert (answer["value"], answer["parts"]) == (told, OURS)


def gives() -> Agent:
    """An agent whose results are no text, and which says what it was answered."""
    agent = Agent("go-agent", description="Gives.")

    @agent.skill("ask", default=True)
    async def ask(turn: Turn) -> dict[str, Any]:
        answer = await turn.ask("What?")
        files = [[each.filename, each.content.decode()] for each in answer.files]
        kinds = [type(part).__name__ for part in answer.message.parts]
        return {"text": str(answer), "data": answer.data, "files": files, "kinds": kinds}

    @agent.skill("file")
    async def file(turn: Turn) -> Blob:
        return Blob(b"%PDF", filename="plan.pdf", media_type="application/pdf")

    @agent.skill("data")
    async def data(turn: Turn) -> dict[str, int]:
        return {"size": 3}

    @agent.skill("mixed")
    async def mixed(turn: Turn) -> AsyncIterator[Any]:
        yield "Here: "
        yield "it is"
        await turn.artifact(Link("https://example.com/a.csv", filename="a.csv"))

    @agent.skill("said")
    async def said(turn: Turn) -> None:
        await turn.complete(Text("Look"), Data([1]))

    return agent


async def test_an_answer_of_a_foreign_host_keeps_all_its_parts() -> None:
    async with asyncio.timeout(120), open_server(agent=gives()) as server:
        await server.join()
        answer: Json = {}
        async for _, _, said in server.stream(server.envelope("execute", query="go")):
            if said["header"]["type"] == "request":
                reply = server.envelope(
                    "",
                    "response",
                    parent_id=said["header"]["msg_id"],
                    value="Before\nafter",
                    parts=OURS,
                )
                assert (await server.post(reply)).status_code == 204
            answer = said["payload"]
    told = json.loads(answer["result_summary"])
    assert told == {
        "text": "Before\nafter",
        "data": {"size": 3},
        "files": [["plan.pdf", "%PDF"]],
        "kinds": ["Text", "Data", "Blob", "Text"],
    }


RESULTS = {
    "file": ("plan.pdf (application/pdf, 4 bytes)", [OURS[2]]),
    "data": ('{"size":3}', [OURS[1]]),
    "mixed": (
        "Here: it is\na.csv (https://example.com/a.csv)",
        [
            {"kind": "text", "text": "Here: it is"},
            {"kind": "link", "url": "https://example.com/a.csv", "filename": "a.csv"},
        ],
    ),
    "said": ("Look\n[1]", [{"kind": "text", "text": "Look"}, {"kind": "data", "value": [1]}]),
}


@pytest.mark.parametrize("skill", RESULTS)
async def test_a_result_that_is_no_text_reaches_a_foreign_host(skill: str) -> None:
    summary, parts = RESULTS[skill]
    async with asyncio.timeout(120), open_server(agent=gives()) as server:
        await server.join()
        one = await server.ask("execute", query="go", skill=skill)
        assert (one["result_summary"], one["parts"]) == (summary, parts)
        async for _, _, said in server.stream(server.envelope("execute", query="go", skill=skill)):
            last = said["payload"]
        assert (last["result_summary"], last["parts"]) == (summary, parts)
        flat = {"id": "m1", "from": "host-1", "to": "go-agent", "type": "request"}
        flat |= {"action": "execute_task", "payload": {"content": "go", "skill": skill}}
        flat |= {"metadata": {"auth_token": f"bearer {server.token}"}}
        answer = (await server.post(flat, "/a2a")).json()["payload"]
        assert (answer["result"], answer["parts"]) == (summary, parts)


def old_agent(stranger: Stranger, asked: Asked) -> Reply:
    raise AssertionError("it speaks A2A 0.3")


class OldAgent(Stranger):
    """An agent of A2A 0.3 that answers with a file and with data, written from the source."""

    def __init__(self) -> None:
        super().__init__(old_agent)

    def reply(self, asked: Asked) -> Reply:
        file = {"name": "plan.pdf", "mimeType": "application/pdf", "bytes": FILE}
        parts = [{"kind": "file", "file": file}, {"kind": "data", "data": {"size": 3}}]
        task = {
            "kind": "task",
            "id": "t1",
            "contextId": "c1",
            "status": {"state": "completed"},
            "artifacts": [{"artifactId": "a1", "parts": parts}],
        }
        said = asked.said
        body = json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": task}).encode()
        return Reply(body)


async def test_files_of_a_relayed_agent_reach_a_foreign_host_and_a_flat_one(tmp_path: Path) -> None:
    summary = 'plan.pdf (application/pdf, 4 bytes)\n{"size":3}'
    with running(OldAgent()) as agent:
        about = {"name": "Old", "description": "Old.", "version": "1", "protocolVersion": "0.3.0"}
        modes = {"defaultInputModes": ["text"], "defaultOutputModes": ["text"], "skills": []}
        where = {"url": f"{agent.url}/", "preferredTransport": "JSONRPC", "capabilities": {}}
        card = json.dumps({**about, **modes, **where}).encode()
        agent.pages["/.well-known/agent-card.json"] = card
        section = {"url": agent.url}
        own = settings(tmp_path, name="desk")
        async with (
            asyncio.timeout(120),
            gateway({"desk": section}, own) as door,
            httpx2.AsyncClient(base_url=door.at("desk"), timeout=60) as client,
        ):
            secret = {"x-iat-token": (tmp_path / "secret").read_text()}
            hello = envelope("request", {"action": "HELO", "agent_id": "h"}, sender="h", to="desk")
            told = (await client.post("/iat", json=hello, headers=secret)).json()["payload"]
            execute = envelope(
                "request",
                {"action": "execute", "query": "go"},
                sender="h",
                to="desk",
                token=told["session_token"],
            )
            nested = (await client.post("/iat", json=execute)).json()["payload"]
            assert nested["result_summary"] == summary
            assert nested["parts"] == [OURS[2], OURS[1]]
            plain = (await client.post("/a2a", json={"content": "go"}, headers=secret)).json()
            assert plain == {"result": summary, "parts": [OURS[2], OURS[1]]}
            streamed = await client.post("/a2a/stream", json={"content": "go"}, headers=secret)
            chunks = [
                json.loads(line[6:]) for line in streamed.text.splitlines() if line[:6] == "data: "
            ]
            assert "\n".join(each["text"] for each in chunks) == summary
            assert [part for each in chunks for part in each["parts"]] == [OURS[2], OURS[1]]
