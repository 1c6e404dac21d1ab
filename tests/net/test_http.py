"""The HTTP side over real sockets: routes, cards, calls and what the headers tell."""

from __future__ import annotations

import httpx2
import msgspec
import pytest

from dragoman.core.extensions import CURSOR
from net.served_peer import call, open_server, said, said_0_3

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}
V0 = {"Content-Type": "application/json"}


async def test_what_has_no_route_is_said_in_json() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        missing = await client.get("/nowhere")
        assert (missing.status_code, missing.json()["error"]) == (404, "not_found")
        wrong = await client.delete("/")
        # A browser may also get the page of the agent there; other clients may only post.
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, GET, HEAD")
        got = await client.get("/")
        assert (got.status_code, got.headers["allow"]) == (405, "POST")
        options = await client.options("/.well-known/agent-card.json")
        assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD")


async def test_both_dialects_are_answered_at_one_address() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        new = await client.post("/", content=call("SendMessage", said("hi")), headers=V1)
        assert new.status_code == 200
        assert new.headers["content-type"] == "application/json"
        assert new.json()["result"]["task"]["artifacts"][0]["parts"] == [{"text": "HI"}]
        old = await client.post("/", content=call("message/send", said_0_3("hi")), headers=V0)
        assert old.json()["result"]["kind"] == "task"
        in_query = await client.post(
            "/?A2A-Version=1.0", content=call("message/send", said_0_3("hi")), headers=V0
        )
        assert in_query.json()["error"]["code"] == -32009
        assert [ctx.dialect for _, ctx in home.peer.asked] == ["a2a-1.0", "a2a-0.3"]


async def test_http_2_works_too() -> None:
    pytest.importorskip("h2")  # comes with httpx2[http2]
    async with (
        open_server() as home,
        httpx2.AsyncClient(base_url=home.url, http2=True, http1=False) as client,
    ):
        answer = await client.post("/", content=call("SendMessage", said("hi")), headers=V1)
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
        stream = await client.post(
            "/", content=call("SendStreamingMessage", said("count 3")), headers=V1
        )
        assert stream.text.count("data:") == 5


async def test_the_card_has_a_form_for_each_reader_and_can_be_cached() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        path = "/.well-known/agent-card.json"
        merged = await client.get(path)
        pure = await client.get(path, headers={"A2A-Version": "1.0"})
        legacy = await client.get("/.well-known/agent.json")
        assert merged.json()["url"] == home.url
        assert merged.json()["supportedInterfaces"][0]["url"] == home.url
        assert "url" not in pure.json()
        assert legacy.json()["url"] == home.url
        assert merged.headers["vary"] == "A2A-Version"
        assert "max-age" in merged.headers["cache-control"]
        assert merged.headers["last-modified"].endswith("GMT")
        assert merged.headers["etag"] != pure.headers["etag"]
        again = await client.get(path, headers={"If-None-Match": merged.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == merged.headers["etag"]
        other = await client.get(path, headers={"If-None-Match": '"other"'})
        assert other.status_code == 200
        head = await client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(merged.content))


async def test_a_notification_is_done_and_answered_only_if_it_fails() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        body = b'{"jsonrpc":"2.0","method":"SendMessage","params":%s}'
        answer = await client.post("/", content=body % msgspec.json.encode(said("hi")), headers=V1)
        assert (answer.status_code, answer.content) == (204, b"")
        assert len(home.peer.tasks) == 1
        lost = await client.post("/", content=body % msgspec.json.encode(said("crash")), headers=V1)
        told = lost.json()
        assert (lost.status_code, told["id"], told["error"]["code"]) == (200, None, -32603)


async def test_headers_become_the_context() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        headers = [
            *V1.items(),
            ("A2A-Extensions", f"{CURSOR}, urn:unknown"),
            ("A2A-Extensions", "urn:third"),
            ("Idempotency-Key", "k1"),
            ("traceparent", TRACE),
            ("Last-Event-ID", "7"),
        ]
        answer = await client.post("/", content=call("SendMessage", said("hi")), headers=headers)
        (_, ctx) = home.peer.asked[-1]
        assert ctx.extensions == (CURSOR, "urn:unknown", "urn:third")
        assert (ctx.idempotency_key, ctx.trace, ctx.cursor) == ("k1", TRACE, 7)
        assert (ctx.principal, ctx.tenant) == ("anonymous", "")
        assert answer.headers["a2a-extensions"] == CURSOR  # only what the card declares
        old = await client.post(
            "/",
            content=call("message/send", said_0_3("hi")),
            headers={**V0, "X-A2A-Extensions": CURSOR, "traceparent": "00-zero-trace"},
        )
        assert old.headers["x-a2a-extensions"] == CURSOR
        assert home.peer.asked[-1][1].trace == ""  # W3C: an invalid one counts as none


@pytest.mark.parametrize("cursor", ["abc", "-1", "1.5", "9" * 30, "²"])
async def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        headers = [
            (b"A2A-Version", b"1.0"),
            (b"Content-Type", b"application/json"),
            (b"Last-Event-ID", cursor.encode()),
        ]
        body = call("SendStreamingMessage", said("count 1"), id=5)
        answer = await client.post("/", content=body, headers=headers)
        assert (answer.json()["error"]["code"], answer.json()["id"]) == (-32602, 5)


async def test_what_nobody_foresaw_shows_only_an_id(capfd: pytest.CaptureFixture[str]) -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        answer = await client.post("/", content=call("SendMessage", said("crash")), headers=V1)
        assert answer.json()["error"]["code"] == -32603
        assert "secret words" not in answer.text
        home.app.log.close()
        logged = capfd.readouterr().err
        assert "RuntimeError: secret words" in logged
        crash = logged.partition("error=")[2].split()[0]
        assert crash in answer.text
        assert logged.count("\n") == 1
        await client.post("/", content=call("SendMessage", said("hi")), headers=V1)


async def test_operations_pages() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        await client.post("/", content=call("SendMessage", said("hi")), headers=V1)
        await client.post("/", content=call("GetTask", {"id": "no"}), headers=V1)
        await client.post("/", content=call("SendStreamingMessage", said("count 2")), headers=V1)
        assert (await client.get("/healthz")).text == "ok\n"
        assert (await client.get("/readyz")).status_code == 200
        metrics = (await client.get("/metrics")).text
        for line in (
            'dragoman_requests_total{method="SendMessage",dialect="a2a-1.0"} 1',
            'dragoman_requests_total{method="SendMessage+stream",dialect="a2a-1.0"} 1',
            'dragoman_errors_total{reason="task_not_found",dialect="a2a-1.0"} 1',
            'dragoman_request_seconds_count{method="GetTask",dialect="a2a-1.0"} 1',
            "dragoman_streams 0",
            "dragoman_events_sent_total 4",
            'dragoman_tasks{state="completed"} 1',
            "dragoman_queue 0",
        ):
            assert line in metrics.splitlines()
        home.app.ready = False
        assert (await client.get("/readyz")).status_code == 503
