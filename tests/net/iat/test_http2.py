"""HTTP/2 as clients really speak it: many requests on one connection, each read to its end."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import pytest

from net.iat.sub_agent import RunningAgent, open_server

MANY = 20_000 if os.environ.get("DRAGOMAN_FULL") else 640
AT_ONCE = 64


class Wire:
    """A connection whose frames are sent one by one."""

    def __init__(self, server: RunningAgent) -> None:
        self._server = server
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.heard: dict[int, list[type[h2.events.Event]]] = {}

    async def open(self) -> None:
        at = urlsplit(self._server.url)
        self._reader, self._writer = await asyncio.open_connection(at.hostname, at.port)
        self._h2.initiate_connection()
        self._flush()

    def close(self) -> None:
        self._writer.close()

    def ask(self, said: dict[str, Any], *, end: bool) -> int:
        """Sends a request: its headers and its body, and (or not) its end."""
        stream, body = self._h2.get_next_available_stream_id(), json.dumps(said).encode()
        self._h2.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":authority", urlsplit(self._server.url).netloc),
                (":path", "/iat"),
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
            ],
        )
        self._h2.send_data(stream, body)
        self._flush()
        if end:
            self.end(stream)
        return stream

    def end(self, stream: int) -> None:
        self._h2.end_stream(stream)
        self._flush()

    async def answered(self, stream: int) -> None:
        """Reads until this stream is over."""
        over = {h2.events.StreamEnded, h2.events.StreamReset}
        async with asyncio.timeout(60):
            while over.isdisjoint(self.heard.get(stream, ())):
                for event in self._h2.receive_data(await self._reader.read(65_536)):
                    self.heard.setdefault(getattr(event, "stream_id", 0), []).append(type(event))
                self._flush()

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())


async def test_a_request_is_answered_when_it_has_ended() -> None:
    """Answered before, it would be reset (RFC 9113 §8.1), and httpx takes that for a failure."""
    async with open_server() as server:
        await server.join()
        wire = Wire(server)
        await wire.open()
        try:
            first = wire.ask(server.envelope("pulse"), end=False)
            second = wire.ask(server.envelope("pulse"), end=True)
            await wire.answered(second)
            assert first not in wire.heard
            wire.end(first)
            await wire.answered(first)
            for stream in (first, second):
                assert h2.events.ResponseReceived in wire.heard[stream]
                assert h2.events.StreamReset not in wire.heard[stream]
        finally:
            wire.close()


@pytest.mark.slow  # hundreds of requests
@pytest.mark.parametrize("streams", [False, True], ids=["json", "sse"])
async def test_one_connection_carries_many_requests(streams: bool) -> None:
    async with open_server() as server:
        await server.join()
        left = iter(range(MANY))

        async def work() -> int:
            done = 0
            for _ in left:
                said = server.envelope("execute", query="hello")
                if streams:
                    *_, (_, _, told) = [step async for step in server.stream(said)]
                    assert told["payload"]["status"] == "completed"
                else:
                    assert (await server.post(said)).json()["payload"]["status"] == "completed"
                done += 1
            return done

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(work()) for _ in range(AT_ONCE)]
        assert sum(worker.result() for worker in workers) == MANY
        pool: Any = server.client._transport
        assert len(pool._pool.connections) == 1
