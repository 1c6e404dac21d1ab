"""IAT over HTTP/2 and HTTP/1.1, by hand: what the requirement asks for, sentence by sentence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from net.iat.sub_agent import READ, open_server


async def until(steps: Any, action: str) -> list[Any]:
    """Events up to the first with this action."""
    heard = []
    async for step in steps:
        heard.append(step)
        if step[2]["payload"].get("action") == action:
            return heard
    raise AssertionError(f"no {action} in {heard}")


def actions(events: list[Any]) -> list[tuple[str, str]]:
    return [(e["header"]["type"], e["payload"].get("action", "")) for _, _, e in events]


@pytest.mark.parametrize("http2", [True, False], ids=["http2", "http1.1"])
async def test_execute_streams_envelopes_to_a_done(http2: bool) -> None:
    async with open_server() as server:
        async with httpx2.AsyncClient(base_url=server.url, http1=not http2, http2=http2) as client:
            server.client, spare = client, server.client
            await server.join()
            said = server.envelope("execute", query="list unused imports", msg_id="8d1e")
            events = [event async for event in server.stream(said)]
            server.client = spare
        kinds = [kind for kind, _ in actions(events)]
        assert [name for _, name, _ in events] == kinds
        assert [int(mark) for mark, _, _ in events] == list(range(1, len(events) + 1))
        assert {e["header"]["parent_id"] for _, _, e in events} == {"8d1e"}
        assert {e["header"]["from"] for _, _, e in events} == {"go-agent"}
        assert {e["header"]["to"] for _, _, e in events} == {"host-1"}
        assert {e["metadata"]["trace_id"] for _, _, e in events} == {"tr-9"}
        assert ("chunk", "think") in actions(events)
        assert ("notification", "log") in actions(events)
        text = "".join(e["payload"]["text"] for _, _, e in events if "text" in e["payload"])
        assert text == "LIST UNUSED IMPORTS "
        done = events[-1][2]
        assert (done["header"]["type"], done["payload"]["action"]) == ("response", "done")
        assert done["payload"]["result_summary"] == "LIST UNUSED IMPORTS "
        assert done["payload"]["usage_stats"] == {"tokens": 812}


async def test_execute_without_a_stream_is_one_answer() -> None:
    async with open_server() as server:
        await server.join()
        told = await server.ask("execute", query="hello")
        assert (told["action"], told["status"]) == ("done", "completed")
        assert told["result_summary"] == "HELLO "
        told = await server.ask("execute", query="fail")
        assert (told["status"], told["error"]["code"]) == ("failed", "no_luck")


async def test_a_request_need_not_wait() -> None:
    async with open_server() as server:
        await server.join()
        told = await server.ask("execute", query="wait here", wait=False)
        assert told["action"] == "task_status"
        assert told["status"] in ("submitted", "working")
        task = told["task_id"]
        steps = server.stream(server.envelope("watch", task_id=task))
        first = await anext(steps)
        assert first[2]["header"]["type"] == "notification"
        assert first[2]["payload"]["status"] == "working"
        ended = await server.ask("terminate", task_id=task)
        assert ended["status"] == "canceled"
        *_, last = [step async for step in steps]
        assert last[2]["payload"]["action"] == "done"
        assert last[2]["payload"]["status"] == "canceled"
        assert (await server.ask("watch", task_id=task))["status"] == "canceled"
        silent = await server.post(server.envelope("execute", "notification", query="hello"))
        assert (silent.status_code, silent.content) == (204, b"")


async def test_a_stream_that_broke_goes_on_behind_its_cursor() -> None:
    async with open_server() as server:
        await server.join()
        whole = [event async for event in server.stream(server.envelope("execute", query="a b c"))]
        task = whole[0][2]["payload"]["task_id"]
        watch = server.envelope("watch", task_id=task)
        rest = [event async for event in server.stream(watch, **{"last-event-id": "4"})]
        assert [mark for mark, _, _ in rest] == [mark for mark, _, _ in whole[4:]]


async def test_a_tool_of_the_host_is_called_and_its_result_used() -> None:
    async with open_server() as server:
        await server.join(tools=[READ])
        said = server.envelope(
            "execute",
            query="read it",
            allowed_tools=["read_file"],
            context_fragments=[{"kind": "file", "ref": "a.go"}],
        )
        steps = server.stream(said)
        *_, (_, _, asked) = await until(steps, "call_tool")
        assert asked["header"]["type"] == "request"
        assert asked["payload"]["tool_name"] == "read_file"
        assert asked["payload"]["arguments"] == {"path": "pkg/b.go"}
        answer = server.envelope(
            "", "response", parent_id=asked["header"]["msg_id"], result="package b"
        )
        assert (await server.post(answer)).status_code == 204
        *_, (_, _, done) = [step async for step in steps]
        summary = done["payload"]["result_summary"]
        assert summary == "package b and ({'kind': 'file', 'ref': 'a.go'},)"


@pytest.mark.parametrize(
    ("query", "answer", "words"),
    [
        ("read it", {"result": 5}, "breaks its schema"),
        ("read it", {"error": {"code": "x", "message": "no such file"}}, "no such file"),
        ("misread it", None, "arguments of tool `read_file` break its schema"),
    ],
    ids=["wrong result", "failed tool", "wrong arguments"],
)
async def test_tools_are_held_to_their_schemas(query: str, answer: Any, words: str) -> None:
    async with open_server() as server:
        await server.join()
        steps = server.stream(server.envelope("execute", query=query, tools=[READ]))
        if answer is not None:
            *_, (_, _, asked) = await until(steps, "call_tool")
            parent = asked["header"]["msg_id"]
            await server.post(server.envelope("", "response", parent_id=parent, **answer))
        *_, (_, _, done) = [step async for step in steps]
        assert done["payload"]["status"] == "failed"
        assert words in done["payload"]["error"]["message"]


async def test_tools_that_are_not_allowed_are_not_called() -> None:
    async with open_server() as server:
        await server.join(tools=[READ])
        said = server.envelope("execute", query="read it", allowed_tools=[])
        *_, (_, _, done) = [step async for step in server.stream(said)]
        assert "offers no tool `read_file`" in done["payload"]["error"]["message"]
        bad = {"name": "x", "parameters": {"type": "nonsense"}}
        told = await server.ask("execute", query="read it", tools=[bad])
        assert told["error"]["code"] == "bad_params"


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ({"approved": True}, "deleted"),
        ({"approved": False}, "left alone"),
        ({"approved": "yes"}, "left alone"),
    ],
)
async def test_an_approval_blocks_until_it_is_answered(said: Any, result: str) -> None:
    async with open_server() as server:
        await server.join()
        steps = server.stream(server.envelope("execute", query="delete it"))
        *_, (_, _, asked) = await until(steps, "require_approval")
        payload = asked["payload"]
        assert asked["header"]["type"] == "request"
        assert payload["operation"] == "delete pkg/old.go"
        assert payload["details"] == {"path": "pkg/old.go"}
        status = await server.ask("task_status", task_id=payload["task_id"])
        assert status["status"] == "input-required"
        assert status["asks"]["approval_id"] == payload["approval_id"]
        answer = server.envelope("", "response", parent_id=asked["header"]["msg_id"], **said)
        assert (await server.post(answer)).status_code == 204
        *_, (_, _, done) = [step async for step in steps]
        assert done["payload"]["result_summary"] == result
        again = await server.post(answer)
        assert "error" in again.json()["payload"]


async def test_an_agent_introduces_itself_with_schemas() -> None:
    async with open_server() as server:
        told = await server.join("HELO")
        tools = {tool["name"]: tool for tool in told["tools"]}
        assert set(tools) == {"work", "add"}
        assert tools["add"]["parameters"]["required"] == ["a", "b"]
        assert tools["add"]["returns"] == {"type": "integer"}
        assert {"execute", "register", "pulse", "terminate"} <= set(told["actions"])
        manifest = (await server.client.get("/manifest")).json()
        assert manifest["tools"] == told["tools"]
        assert "session_token" not in manifest
        assert (await server.client.get("/health")).text == "ok"
        added = await server.ask("call_tool", tool_name="add", arguments={"a": 1, "b": 2})
        assert added["result"] == 3
        wrong = await server.ask("call_tool", tool_name="add", arguments={"a": "x"})
        assert wrong["error"]["code"] == "bad_params"


async def test_pulse_and_grants_and_unknown_words() -> None:
    async with open_server() as server:
        await server.join()
        assert (await server.ask("pulse"))["ok"] is True
        granted = await server.ask("grant_tool", tool=READ)
        assert (granted["action"], granted["ok"]) == ("grant_tool_ack", True)
        steps = server.stream(server.envelope("execute", query="read it"))
        *_, (_, _, asked) = await until(steps, "call_tool")  # granted, so allowed
        assert asked["payload"]["tool_name"] == "read_file"
        await steps.aclose()
        unknown = await server.ask("dance")
        assert unknown["error"]["code"] == "unknown_action"


async def test_the_flat_form_is_answered_in_the_flat_form() -> None:
    async with open_server() as server:
        await server.join()
        said = {
            "id": "m1",
            "from": "host-1",
            "to": "golang_agent",
            "type": "request",
            "action": "execute_task",
            "payload": {"content": "use uppercase hi"},
            "trace": {"traceId": "t", "spanId": "s"},
            "metadata": {},
            "timestamp": 1,
        }
        for path in ("/iat", "/a2a"):
            told = (await server.post(said, path, **{"x-iat-token": server.token})).json()
            assert (told["id"], told["type"], told["action"]) == ("m1", "response", "task_result")
            assert (told["from"], told["to"]) == ("golang_agent", "host-1")
            assert told["payload"]["result"] == "USE UPPERCASE HI "
            assert told["timestamp"] > 10**12
        events = [e async for e in server.stream(said, **{"x-iat-token": server.token})]
        assert {e["id"] for _, _, e in events} == {"m1"}
        assert "stream_chunk" in {e["type"] for _, _, e in events}


async def test_what_real_hosts_post_without_an_envelope() -> None:
    async with open_server() as server:
        token = {"x-iat-token": "a-secret-of-hosts-and-agents"}
        told = await server.post({"content": "hello you", "system": "be loud"}, "/a2a", **token)
        assert told.json() == {"result": "HELLO YOU "}
        steps = server.stream({"content": "hello you"}, "/a2a/stream", **token)
        events = [event async for _, _, event in steps]
        assert events == [
            {"type": "chunk", "text": "HELLO "},
            {"type": "chunk", "text": "YOU "},
        ]
        assert (await server.client.get("/a2a")).status_code == 405
        assert (await server.client.post("/a2a", content=b"{", headers=token)).status_code == 400


async def test_a_single_answer_tells_what_was_used_as_a_stream_does(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server:
        await server.join()
        for path in ("/iat", "/a2a"):
            told = (await server.post(server.envelope("execute", query="hello"), path)).json()
            assert told["payload"]["usage_stats"] == {"tokens": 812}
        task = told["payload"]["task_id"]
    async with open_server(tmp_path) as server:
        await server.join()
        steps = server.stream(server.envelope("watch", task_id=task))
        *_, (_, _, done) = [step async for step in steps]
        assert (done["payload"]["action"], done["payload"]["usage_stats"]) == (
            "done",
            {"tokens": 812},
        )
        asked = server.envelope("execute", query="ask me", detail="full")
        waiting = (await server.post(asked)).json()["payload"]
        assert waiting["task"]["usage"] == {"tokens": 812}
        more = server.envelope("execute", query="this", task_id=waiting["task_id"])
        assert (await server.post(more)).json()["payload"]["usage_stats"] == {"tokens": 812}


async def test_streams_share_one_connection() -> None:
    async with open_server() as server:
        await server.join()

        async def run(word: str) -> str:
            said = server.envelope("execute", query=word)
            *_, (_, _, done) = [step async for step in server.stream(said)]
            return str(done["payload"]["result_summary"])

        words = [f"word{number}" for number in range(20)]
        found = await asyncio.gather(*map(run, words))
        assert found == [f"{word.upper()} " for word in words]
        pool: Any = server.client._transport
        assert len(pool._pool.connections) == 1


async def test_bad_envelopes_are_told_so() -> None:
    async with open_server(insecure=True) as server:
        for body in (b"{", b"[]", b"{}", b'{"header":{}}', b'{"header":{"type":"dance"}}'):
            reply = await server.client.post("/iat", content=body)
            assert reply.status_code == 400, body
            assert json.loads(reply.content)["payload"]["error"]["message"]
        late = await server.post(server.envelope("execute", query="x", ttl=0))
        assert late.json()["payload"]["error"]["code"] == "ttl_exceeded"
        web = await server.client.post(
            "/iat", content=b"{}", headers={"content-type": "text/plain"}
        )
        assert web.status_code == 415


async def test_who_wants_one_answer_gets_no_stream() -> None:
    async with open_server() as server:
        await server.join()
        said = server.envelope("execute", query="hello", stream=False)
        reply = await server.post(said, accept="text/event-stream, application/json")
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["payload"]["action"] == "done"
