"""A dialect of one's own is called with nothing but its record: over HTTP and over WebSockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from granian.constants import Interfaces
from granian.server.embed import Server

from client.our_server import QUICK
from dragoman import State, Task, connect
from dragoman.core.dialect import Dialect, Route, Wire
from dragoman.core.errors import PeerRefused
from dragoman.core.events import ArtifactChunk, Stamped, StateChanged
from dragoman.core.model import Artifact, Status, Text
from dragoman.core.operations import GetTask, SendMessage, Watch
from dragoman.core.session import Call, CallerSession, End, Fault, Frame, Id, Result, Signal, Update
from dragoman.dialects import DIALECTS, register
from waiting import until


class ToyCaller(CallerSession):
    """`{"id", "do", "text"}` is answered with `{"id", "text", "over"}`, a word at a time."""

    def __init__(self, extensions: Iterable[str] = (), tenant: str = "") -> None:
        self._open: dict[str, Call] = {}

    def send(self, signal: Signal) -> Iterable[Frame]:
        if not isinstance(signal, Call):
            return ()
        match signal.op:
            case SendMessage(message=message):
                said = {"do": "stream" if signal.stream else "say", "text": message.text}
            case GetTask(task_id=name) | Watch(task_id=name):
                said = {"do": "look", "text": name}
            case _:
                return ()
        name = str(signal.id)
        self._open[name] = signal
        body = json.dumps({"id": name, **said}).encode()
        return (Frame(body, "POST", {"content-type": "application/json"}),)

    def receive(self, frame: Frame) -> Iterable[Signal]:
        told = json.loads(frame.body)
        call = self._open[told["id"]]
        if "wrong" in told:
            return (Fault(call.id, PeerRefused(told["wrong"])),)
        if not call.stream:
            parts = (Text(told["text"]),)
            made = Artifact(artifact_id="result", parts=parts)
            status = Status(State.COMPLETED, 0)
            task = Task(id=f"toy-{told['id']}", context_id="c", status=status, artifacts=(made,))
            return (Result(call.id, task),)
        made = Artifact(artifact_id="result", parts=(Text(told["text"]),))
        event: Any = ArtifactChunk(artifact=made, append=True, last=told["over"])
        name = f"toy-{told['id']}"
        step = Update(call.id, Stamped(name, "c", 0, 0, event))
        if not told["over"]:
            return (step,)
        done = Update(call.id, Stamped(name, "c", 0, 0, StateChanged(state=State.COMPLETED)))
        return (step, done, End(call.id))

    def expects(self, frame: Frame) -> bool:
        return json.loads(frame.body)["id"] in self._open

    def abandon(self, id: Id) -> None:
        self._open.pop(str(id), None)


TOY = Dialect(name="toy", caller=ToyCaller, callee=None, scheme="toy", routes=(Route("/toy"),))
TOY_WS = Dialect(
    name="toy-ws",
    wire=Wire.WEBSOCKET,
    caller=ToyCaller,
    callee=None,
    scheme="toy",
    routes=(Route("/toy/ws", "GET"),),
)


@pytest.fixture(autouse=True)
def registered() -> Any:
    for dialect in (TOY, TOY_WS):
        register(dialect)
    yield
    for dialect in (TOY, TOY_WS):
        del DIALECTS[dialect.name]


def answers(said: dict[str, Any]) -> list[dict[str, Any]]:
    if said["text"] == "no":
        return [{"id": said["id"], "wrong": "Not so"}]
    words = said["text"].upper().split()
    if said["do"] != "stream":
        return [{"id": said["id"], "text": " ".join(words)}]
    ends = [False] * (len(words) - 1) + [True]
    return [
        {"id": said["id"], "text": word + " ", "over": over}
        for word, over in zip(words, ends, strict=True)
    ]


async def app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """All that is served."""
    if scope["type"] == "websocket":
        assert scope["path"] == "/toy/ws"
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            for told in answers(json.loads(message["text"])):
                await send({"type": "websocket.send", "text": json.dumps(told)})
        return
    assert scope["path"] == "/toy"
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    said = json.loads(body)
    stream = said["do"] == "stream"
    kind = b"text/event-stream" if stream else b"application/json"
    head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}
    await send(head)
    for told in answers(said):
        text = json.dumps(told)
        line = f"data: {text}\n\n" if stream else text
        await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def toy_server() -> AsyncIterator[int]:
    from ports import own_port

    port = own_port()
    server = Server(app, address="127.0.0.1", port=port, interface=Interfaces.ASGINL)
    serving = asyncio.create_task(server.serve())

    async def listens() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    await until(listens)
    try:
        yield port
    finally:
        server.stop()
        await serving


@pytest.mark.parametrize("way", ["toy+http", "toy+ws"])
async def test_a_dialect_of_ones_own_is_called(way: str) -> None:
    async with (
        toy_server() as port,
        connect(f"{way}://127.0.0.1:{port}", limits=QUICK) as agent,
    ):
        assert agent.dialect == ("toy" if way == "toy+http" else "toy-ws")
        task = await agent.send("hello there")
        assert isinstance(task, Task)
        assert task.text == "HELLO THERE"
        events = agent.stream("one two three")
        chunks = [e async for e in events if isinstance(e, Stamped)]
        assert len(chunks) == 4
        assert events.task is not None
        assert (events.task.text, events.task.state) == ("ONE TWO THREE ", State.COMPLETED)
        with pytest.raises(PeerRefused, match="Not so"):
            await agent.send("no")
        texts = await asyncio.gather(*(agent.send(f"n{number}") for number in range(10)))
        assert [each.text for each in texts] == [f"N{number}" for number in range(10)]
