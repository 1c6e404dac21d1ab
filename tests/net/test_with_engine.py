"""The wires with the real engine behind them: what a client of ours relies on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec

from dragoman import Agent, Turn
from dragoman.engine import Engine
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App
from dragoman.server.serve import address
from dragoman.settings import Settings
from dragoman.store import open_store
from net.served_peer import call, said
from waiting import turns

V1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}

agent = Agent("Counter", description="Counts.")


@agent.skill("count")
async def count(turn: Turn):  # type: ignore[no-untyped-def]
    for number in range(int(turn.text)):
        await turns()
        yield f"{number} "


@asynccontextmanager
async def serving() -> AsyncIterator[httpx2.AsyncClient]:
    sock = bind("127.0.0.1", 0)
    base = address(sock)
    settings = Settings()
    app = App(agent, Engine(agent, open_store("memory:")), settings, Log("error"), base)
    await app.start()
    listener = GranianServer(app, sock, settings.limits)
    listener.begin()
    try:
        async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
            yield client
    finally:
        listener.refuse()
        await app.stop()
        await listener.end(1)


def marks(text: str) -> list[int]:
    return [int(line[3:]) for line in text.splitlines() if line.startswith("id:")]


async def test_a_cut_stream_is_resumed_behind_the_last_event_seen() -> None:
    async with serving() as client:
        body = call("SendStreamingMessage", said("40"))
        seen: list[str] = []
        async with client.stream("POST", "/", content=body, headers=V1) as stream:
            async for line in stream.aiter_lines():
                seen.append(line)
                if len(marks("\n".join(seen))) == 5 and line.startswith("data:"):
                    break  # and hang up
        data = next(line for line in seen if line.startswith("data:"))
        task = msgspec.json.decode(data[5:])["result"]["task"]["id"]
        while True:
            found = await client.post("/", content=call("GetTask", {"id": task}), headers=V1)
            if found.json()["result"]["status"]["state"] == "TASK_STATE_COMPLETED":
                break
        text = found.json()["result"]["artifacts"][0]["parts"][0]["text"]
        assert text == "".join(f"{number} " for number in range(40))
        again = await client.post(
            "/",
            content=call("SubscribeToTask", {"id": task}),
            headers={**V1, "Last-Event-ID": "5"},
        )
        assert marks(again.text) == list(range(6, 44))  # opened, working, 40 chunks, completed


async def test_the_same_idempotency_key_is_the_same_task() -> None:
    async with serving() as client:
        headers = {**V1, "Idempotency-Key": "k"}
        body = call("SendMessage", said("2"))
        tasks = [
            (await client.post("/", content=body, headers=headers)).json()["result"]["task"]["id"]
            for _ in range(2)
        ]
        assert tasks[0] == tasks[1]
        other = await client.post("/", content=call("SendMessage", said("3")), headers=headers)
        assert "error" in other.json()


async def test_many_streams_at_once() -> None:
    async with serving() as client:

        async def one() -> list[int]:
            body = call("SendStreamingMessage", said("50"))
            return marks((await client.post("/", content=body, headers=V1)).text)

        for found in await asyncio.gather(*(one() for _ in range(40))):
            assert found == list(range(1, 54))
