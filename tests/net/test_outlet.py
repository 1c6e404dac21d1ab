"""The body of a stream, on servers that take it at once, that make us wait, and that are both."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from dragoman.core.events import Stamped, StateChanged
from dragoman.core.model import State
from dragoman.core.peer import Batch, Tap
from dragoman.core.session import Frame, Signal, Update
from dragoman.dialects.sse import KEEP_ALIVE
from dragoman.net.http.sse_writer import SseWriter
from dragoman.observability.metrics import Metrics
from waiting import stays


class Numbers:
    """Says the number of each event."""

    def send(self, signal: Signal) -> tuple[Frame, ...]:
        if isinstance(signal, Update) and isinstance(signal.entry, Stamped):
            return (Frame(b"%d" % signal.entry.seq),)
        return ()


class Taken:
    def __await__(self) -> Generator[Any, None, None]:
        return iter(())  # type: ignore[return-value]


class Server:
    """Takes what is sent: at once, or (`slow`) when the future it gives is done."""

    def __init__(self) -> None:
        self.slow = False
        self.bodies: list[bytes] = []
        self.waiting: list[asyncio.Future[None]] = []

    def send(self, message: dict[str, Any]) -> Any:
        self.bodies.append(message.get("body", b""))
        if not self.slow:
            return Taken()
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    async def coroutine(self, message: dict[str, Any]) -> None:
        self.send(message)


def entries(*numbers: int) -> list[Stamped]:
    return [Stamped("t", "c", seq, 0, StateChanged(state=State.WORKING)) for seq in numbers]


def seen(server: Server) -> list[int]:
    text = b"".join(server.bodies).decode()
    return [int(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


async def started(server: Server, send: Any) -> SseWriter:
    out = SseWriter(Numbers(), 1, send, Metrics())
    await out.start({"type": "http.response.start"})
    return out


async def test_live_events_are_poured_where_the_server_takes_them_at_once() -> None:
    server, tap = Server(), Tap()
    out = await started(server, server.send)
    await out.write(Batch(entries(1, 2), False, tap))
    assert tap.sink is not None
    tap.sink(entries(3))
    tap.sink(entries(4, 5))
    assert seen(server) == [1, 2, 3, 4, 5]
    out.close()
    assert tap.sink is None


async def test_a_server_that_is_asked_to_wait_for_is_waited_for() -> None:
    server, tap = Server(), Tap()
    out = await started(server, server.coroutine)
    await out.write(Batch(entries(1), False, tap))
    assert tap.sink is None
    assert seen(server) == [1]


async def test_one_that_fills_up_gets_nothing_more_before_it_has_room() -> None:
    server, tap = Server(), Tap()
    out = await started(server, server.send)
    await out.write(Batch(entries(1), False, tap))
    server.slow = True
    assert tap.sink is not None
    tap.sink(entries(2))
    assert tap.sink is None  # from here on the reader is woken
    writing = asyncio.create_task(out.write(Batch(entries(3), False, tap)))
    await stays(lambda: seen(server) == [1, 2])
    server.slow = False
    server.waiting[0].set_result(None)
    await writing
    assert seen(server) == [1, 2, 3]
    assert tap.sink is not None


async def test_nothing_to_say_is_a_comment() -> None:
    server = Server()
    out = await started(server, server.send)
    await out.write(Batch([], False))
    assert server.bodies[-1] == KEEP_ALIVE


@pytest.mark.parametrize("last", [True, False])
async def test_every_event_is_counted_once(last: bool) -> None:
    server, tap, metrics = Server(), Tap(), Metrics()
    out = SseWriter(Numbers(), 1, server.send, metrics)
    await out.start({"type": "http.response.start"})
    await out.write(Batch(entries(1), False, tap))
    assert tap.sink is not None
    tap.sink(entries(2))
    await out.write(Batch(entries(3), last, tap))
    assert metrics.events == 3
