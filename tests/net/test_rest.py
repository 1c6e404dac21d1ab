"""REST over real sockets: both versions, their streams, and what HTTP itself has to say."""

from __future__ import annotations

import httpx2
import pytest

from dragoman.core.extensions import CURSOR
from dragoman.core.operations import GetTask
from dragoman.observability.metrics import AgentFigures, exposition
from net.served_peer import open_server, said

OLD = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}}


async def test_a_task_is_sent_and_got_in_both_versions() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        new = await client.post("/message:send", json=said("hi"), headers={"A2A-Version": "1.0"})
        assert (new.status_code, new.headers["content-type"]) == (200, "application/json")
        assert new.json()["task"]["artifacts"][0]["parts"] == [{"text": "HI"}]
        old = await client.post("/v1/message:send", json=OLD)
        assert old.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        for path in ("/tasks/1?historyLength=1", "/v1/tasks/1"):
            assert (await client.get(path)).json()["id"] == "1"
        dialects = [ctx.dialect for _, ctx in home.peer.asked]
        assert dialects == ["a2a-1.0-rest", "a2a-0.3-rest", "a2a-1.0-rest", "a2a-0.3-rest"]


async def test_ids_arrive_as_they_were_meant() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        for path in ("/tasks/a%2Fb%3Acancel%25", "/v1/tasks/a%2Fb%3Acancel%25"):
            assert (await client.get(path)).status_code == 404
            assert home.peer.asked[-1][0] == GetTask(task_id="a/b:cancel%")


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_a_stream_has_no_envelope_and_can_be_resumed(prefix: str) -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        path = f"{prefix}/message:stream"
        answer = await client.post(path, json=said("count 3"), headers={"Last-Event-ID": "1"})
        assert answer.headers["content-type"] == "text/event-stream"
        assert home.peer.asked[-1][1].cursor == 1
        assert answer.text.count("data: {") == 5
        assert 'id: 1\ndata: {"task":{"id":"t"' in answer.text
        assert "jsonrpc" not in answer.text
        broken = await client.post(path, json=said("crash later"))
        assert "Internal error" in broken.text.splitlines()[-2]
        early = await client.post(path, json=said("crash"))
        assert (early.status_code, early.headers["content-type"]) == (500, "application/json")
        for verb in ("GET", "POST"):
            lost = await client.request(verb, f"{prefix}/tasks/no:subscribe")
            assert lost.status_code == 404
        assert home.peer.open == 0


async def test_a_cursor_that_is_none_is_refused() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        answer = await client.get("/tasks/1:subscribe", headers={"Last-Event-ID": "abc"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)


async def test_what_http_refuses_is_told_in_the_form_of_the_version() -> None:
    async with open_server(body_size=2000) as home, httpx2.AsyncClient(base_url=home.url) as client:
        wrong = await client.put("/tasks/1")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")
        assert wrong.json()["error"]["status"] == "UNIMPLEMENTED"
        wrong = await client.get("/v1/message:send")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert wrong.json()["code"] == -32601
        assert (await client.get("/v1/nowhere")).json()["type"] == "MethodNotFoundError"
        assert (await client.get("/tasks/1/nowhere")).json()["error"]["code"] == 404
        form = await client.post("/message:send", data={"a": "b"})
        assert (form.status_code, form.json()["error"]["code"]) == (415, 415)
        large = await client.post("/message:send", json=said("x" * 3000))
        assert (large.status_code, large.json()["error"]["code"]) == (413, 413)
        tenant = await client.get("/acme/tasks/1")
        assert (tenant.status_code, tenant.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
        assert (await client.get("/nowhere")).json()["error"] == "not_found"


async def test_a2a_json_and_extensions_are_for_those_who_ask() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        await client.post("/message:send", json=said("hi"))
        headers = {"Accept": "application/a2a+json", "A2A-Extensions": CURSOR}
        new = await client.get("/tasks/1", headers=headers)
        assert new.headers["content-type"] == "application/a2a+json"
        assert new.headers["a2a-extensions"] == CURSOR
        # Whatever name a caller uses, each version answers under its own (a2a-wire §11.1).
        old = await client.get("/v1/tasks/1", headers=headers)
        assert old.headers["content-type"] == "application/json"
        assert old.headers["x-a2a-extensions"] == CURSOR


async def test_the_card_lists_rest_and_0_2_finds_its_extended_card() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
        listed = [
            (i["protocolBinding"], i["protocolVersion"], i["url"])
            for i in card["supportedInterfaces"]
        ]
        assert {("HTTP+JSON", "1.0", home.url), ("HTTP+JSON", "0.3", home.url)} <= {*listed}
        assert {"url": home.url, "transport": "HTTP+JSON"} in card["additionalInterfaces"]
        await client.get("/agent/authenticatedExtendedCard")
        assert exposition(
            [AgentFigures("", home.app.server.metrics, {}, None)], streams=0, blocked=0
        ).count(b'method="GetExtendedCard",dialect="a2a-0.3-rest"')


async def test_operations_are_counted_by_dialect() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        await client.post("/message:send", json=said("hi"))
        metrics = (await client.get("/metrics")).text
        assert 'method="SendMessage",dialect="a2a-1.0-rest"} 1' in metrics
