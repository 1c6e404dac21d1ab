"""The addresses of real hosts, which read nothing but `result` and `text` (dialects §2.3)."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import urlencode

import pytest

from dragoman import Agent, Turn
from net.iat.sub_agent import SECRET, RunningAgent, open_server, signed

TOKEN = {"x-iat-token": SECRET}


def half_way() -> Agent:
    """Says something, and then does not get to its end."""
    agent = Agent("go-agent")

    @agent.skill("work")
    async def work(turn: Turn) -> Any:
        if turn.text != "at once":
            yield "so far"
        if turn.text == "ask":
            yield await turn.ask("Which one?")
        elif turn.text == "reject":
            raise turn.reject("not my work")
        else:
            raise turn.fail("could not")

    return agent


async def told(server: RunningAgent, query: dict[str, str], **headers: str) -> list[Any]:
    """The events of a GET."""
    url = f"/a2a/stream?{urlencode(query)}"
    async with server.client.stream("GET", url, headers=headers or TOKEN) as reply:
        assert reply.status_code == 200, await reply.aread()
        assert reply.headers["content-type"] == "text/event-stream", await reply.aread()
        lines = [line async for line in reply.aiter_lines() if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines]


async def test_a_stream_is_asked_for_with_get() -> None:
    async with open_server() as server:
        asked = {"content": "héllo & ciao", "system": "be loud"}
        events = await told(server, asked)
        assert [event["text"] for event in events] == ["HÉLLO ", "& ", "CIAO "]
        assert {event["type"] for event in events} == {"chunk"}


async def test_a_get_shows_who_asks_as_everything_else_does() -> None:
    async with open_server() as server:
        query = urlencode({"content": "hello"})
        for headers in ({}, {"x-iat-token": "wrong"}, signed(b"")):
            reply = await server.client.get(f"/a2a/stream?{query}", headers=headers)
            assert reply.status_code == 401, headers
        # What is signed is the query: nothing else stands for what is asked.
        proof = {k: v for k, v in signed(query.encode()).items() if k.startswith("x-iat")}
        other = urlencode({"content": "something else"})
        assert (await server.client.get(f"/a2a/stream?{other}", headers=proof)).status_code == 401
        assert (await told(server, {"content": "hello"}, **proof))[0]["text"] == "HELLO "
        assert (await server.client.get(f"/a2a/stream?{query}", headers=proof)).status_code == 401
        assert (await server.app.mounts[""].peer.counts())["completed"] == 1


@pytest.mark.parametrize(
    "query", ["", "?content=", "?system=x", "?content=%ff", "?" + "&".join(["content=x"] * 99)]
)
async def test_a_get_that_asks_nothing_is_told_so(query: str) -> None:
    async with open_server() as server:
        reply = await server.client.get(f"/a2a/stream{query}", headers=TOKEN)
        assert reply.headers["content-type"] == "text/event-stream"
        said = json.loads(reply.text.removeprefix("data: "))
        assert said["text"] == said["error"]
        assert said["code"] == "bad_params"
        assert await server.app.mounts[""].peer.counts() == {"runnable": 0}


@pytest.mark.parametrize(
    ("content", "words", "status", "failed"),
    [
        ("fail", "could not", "failed", True),
        ("reject", "not my work", "rejected", True),
        ("ask", "Which one?", "input-required", False),
    ],
)
async def test_failures_and_questions_are_told_where_real_hosts_look(
    content: str, words: str, status: str, failed: bool
) -> None:
    async with open_server(agent=half_way()) as server:
        reply = (await server.post({"content": content}, "/a2a", **TOKEN)).json()
        assert reply["result"] == f"so far\n{words}"
        assert reply["status"] == status
        assert reply.get("error") == (words if failed else None)
        steps = server.stream({"content": content}, "/a2a/stream", **TOKEN)
        *before, last = [event async for _, _, event in steps]
        assert "".join(event["text"] for event in (*before, last)) == f"so far\n{words}"
        assert (last["type"], last["status"]) == ("chunk", status)
        assert last.get("error") == (words if failed else None)


async def test_a_failure_that_is_all_there_is_stands_alone() -> None:
    async with open_server(agent=half_way()) as server:
        reply = await server.post({"content": "at once"}, "/a2a", **TOKEN)
        assert reply.json() == {"result": "could not", "status": "failed", "error": "could not"}
        (event,) = await told(server, {"content": "at once"})
        assert event["text"] == event["error"] == "could not"


async def test_an_answer_that_is_only_a_message_is_told() -> None:
    agent = Agent("go-agent")

    @agent.skill("work", may_reply=True)
    async def work(turn: Turn) -> None:
        await turn.say("One moment.")
        await turn.reply("Good day")

    async with open_server(agent=agent) as server:
        reply = await server.post({"content": "hello"}, "/a2a", **TOKEN)
        assert reply.json() == {"result": "Good day"}
        assert [event["text"] for event in await told(server, {"content": "hello"})] == ["Good day"]


@pytest.mark.parametrize("path", ["/a2a", "/a2a/stream"])
async def test_a_refusal_is_told_where_real_hosts_look(path: str) -> None:
    key = "result" if path == "/a2a" else "text"
    async with open_server() as server:
        reply = await server.post({"content": "hello"}, path)
        said = reply.json()
        assert (reply.status_code, said["code"]) == (401, "unauthorized")
        assert said[key] == said["error"]


async def test_errors_are_words_for_who_speaks_flat() -> None:
    async with open_server() as server:
        await server.join()
        flat = {"id": "m1", "type": "request", "from": "host-1", "timestamp": int(time.time())}
        for path in ("/iat", "/a2a"):
            for said, code in (
                ({"action": "dance"}, "unknown_action"),
                ({"action": "execute_task", "payload": {"content": "fail"}}, "no_luck"),
                ({"action": "task_status", "payload": {"task_id": "x"}}, "task_not_found"),
                (
                    {
                        "action": "call_tool",
                        "payload": {"tool_name": "add", "arguments": {"a": "x"}},
                    },
                    "bad_params",
                ),
            ):
                reply = await server.post({**flat, **said}, path, **{"x-iat-token": server.token})
                payload = reply.json()["payload"]
                assert isinstance(payload["error"], str), payload
                assert payload["error"]
                assert payload["code"] == code
        refused = await server.post({**flat, "action": "pulse"}, **{"x-iat-token": "wrong"})
        assert refused.status_code == 401
        assert isinstance(refused.json()["payload"]["error"], str)
        steps = server.stream(
            {**flat, "action": "execute_task", "payload": {"content": "fail"}},
            **{"x-iat-token": server.token},
        )
        *_, (_, _, done) = [step async for step in steps]
        assert done["payload"]["error"] == "could not"
        nested = await server.ask("dance")
        assert nested["error"]["code"] == "unknown_action"
