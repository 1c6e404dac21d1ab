"""Bytes that are no UTF-8, and values deeper than any stack, at every address: refused, and nothing
crashes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Known, Secret, Tokens
from semantics.ways import RunningServer, served

PATHS = (
    *("/", "/a2a-go", "/iat", "/a2a", "/a2a/stream", "/manifest", "/health", "/healthz", "/readyz"),
    *("/metrics", "/.well-known/agent-card.json", "/.well-known/agent.json", "/nowhere"),
    *("/message:send", "/message:stream", "/tasks", "/tasks/t", "/tasks/t:cancel"),
    *("/tasks/t:subscribe", "/tasks/t/pushNotificationConfigs", "/extendedAgentCard"),
    *("/tasks/t/pushNotificationConfigs/h", "/acme/tasks/t", "/myorg.billing/refund"),
    *("/v1/message:send", "/v1/message:stream", "/v1/tasks", "/v1/tasks/t", "/v1/card"),
    *("/v1/tasks/t/pushNotificationConfigs", "/agent/authenticatedExtendedCard"),
    *("/tasks/send", "/tasks/get", "/tasks/stream"),
)
TOKEN = "token-of-alice-0123456789"
DEEP = b"[" * 300 + b"]" * 300
DEEPER = b"[" * 900 + b"]" * 900
BODIES = {
    "not UTF-8": b'{"content":"\xff\xfe"}',
    "not UTF-8 in a key": b'{"\xc3":1}',
    "not UTF-8 where nobody looks": b'{"content":"x","unknown":"\x80"}',
    "half a character": '{"content":"汉'.encode()[:-1] + b'"}',
    "a lone surrogate": b'{"content":"\\ud800"}',
    "no JSON": b"\xff" * 10,
    "deep": b'{"content":"x","params":{"a":%s},"metadata":%s}' % (DEEP, DEEP),
    "deeper": b'{"content":"x","params":{"a":%s}}' % DEEPER,
    "deep JSON-RPC": b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":%s}' % DEEP,
    "deep envelope": b'{"header":{"type":"request","msg_id":"1"},"payload":{"a":%s}}' % DEEP,
    "bushy": b'{"content":"x","params":{"a":[' + b"[]," * 200_000 + b"1]}}",
}


def desk(**about: Any) -> Agent:
    agent = Agent("Desk", **about)

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text

    return agent


class Line:
    """Raw requests to a server, and what it logged."""

    def __init__(self, server: RunningServer, log: int) -> None:
        self.server, self._log = server, log

    async def say(self, head: bytes, body: bytes = b"") -> int:
        """The status of the answer to a request of these bytes."""
        url = self.server.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            size = b"content-length: %d\r\nconnection: close\r\nhost: localhost\r\n\r\n" % len(body)
            writer.write(head + b"content-type: application/json\r\n" + size + body)
            async with asyncio.timeout(60):
                answer = await reader.read(-1 if b"stream" not in head else 4096)
        finally:
            writer.close()
        return int(answer.split()[1]) if answer else 0

    def crashes(self) -> list[str]:
        self.server.app.log.close(10)
        try:
            lines = os.read(self._log, 1 << 20).decode().splitlines()
        except BlockingIOError:
            return []
        return [line for line in lines if line and "loop is blocked" not in line]  # a busy machine


@asynccontextmanager
async def line(agent: Agent) -> AsyncIterator[Line]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        async with served(agent, log_fd=writing) as server:
            talk = Line(server, reading)
            yield talk
            assert talk.crashes() == []  # nothing was logged as an error
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("locked", [False, True], ids=["open", "locked"])
async def test_no_address_crashes_on_bytes_that_are_no_utf8(
    locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_ALICE", TOKEN)
    alice = Tokens(callers={"alice": Known(secret=Secret(env="TOKEN_OF_ALICE"))})
    async with line(desk(auth={"key": alice} if locked else {})) as talk:
        for path in PATHS:
            for verb in (b"GET", b"POST", b"DELETE"):
                told = {
                    "path": await talk.say(b"%b %b/%%ff%%c3 HTTP/1.1\r\n" % (verb, path.encode())),
                    "raw path": await talk.say(b"%b %b\xff HTTP/1.1\r\n" % (verb, path.encode())),
                    "query": await talk.say(
                        b"%b %b?%%ff=%%c3&pageToken=%%80&A2A-Version=%%ff HTTP/1.1\r\n"
                        % (verb, path.encode())
                    ),
                    "headers": await talk.say(
                        b"%b %b HTTP/1.1\r\na2a-version: \xff\r\na2a-extensions: \xc3\x28\r\n"
                        b"authorization: Bearer \xff\xfe\r\nlast-event-id: \x80\r\n"
                        b"idempotency-key: \xff\r\ntraceparent: \xff\r\naccept: \xff\r\n"
                        % (verb, path.encode())
                    ),
                }
                assert all(status < 500 for status in told.values()), (verb, path, told)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("who", ["anyone", "stranger", "alice"])
async def test_no_address_crashes_on_a_body(
    body: bytes, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_ALICE", TOKEN)
    alice = Tokens(callers={"alice": Known(secret=Secret(env="TOKEN_OF_ALICE"))})
    known = f"authorization: Bearer {TOKEN}\r\n" if who == "alice" else ""
    async with line(desk(auth={} if who == "anyone" else {"key": alice})) as talk:
        for path in PATHS:
            status = await talk.say(f"POST {path} HTTP/1.1\r\n{known}".encode(), body)
            assert 0 < status < 500, path
        counts = await talk.server.app.mounts[""].peer.counts()
        assert not sum(counts.values()), "nothing of this may become a task"


async def test_the_plain_address_of_iat_does_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests above would notice a task."""
    monkeypatch.setenv("TOKEN_OF_ALICE", TOKEN)
    alice = Tokens(callers={"alice": Known(secret=Secret(env="TOKEN_OF_ALICE"))})
    async with line(desk(auth={"key": alice})) as talk:
        known = f"POST /a2a HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\n".encode()
        assert await talk.say(known, b'{"content":"x","params":{"a":[[]]}}') == 200
        assert (await talk.server.app.mounts[""].peer.counts())["completed"] == 1
