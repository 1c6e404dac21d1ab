"""A dialect of one's own: two small sessions and one record. Nothing else is told of it, and it is
served, listed on the card, and examined as all others are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec import Struct
from websockets.asyncio.client import connect

from contract import test_pair
from dragoman import dialects
from dragoman.core import errors, operations
from dragoman.core.dialect import Dialect, Route, Wire
from dragoman.core.errors import ConfigError, DragomanError, Malformed, TaskNotFound
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Json, Message, Role, Task, Text
from dragoman.core.operations import GetTask, SendMessage
from dragoman.core.session import Call, End, Fault, Frame, Id, Result, Session, Signal, Update
from dragoman.observability.log import Log
from dragoman.server.app import App
from dragoman.settings import Settings
from net.served_peer import LittlePeer, agent, open_server
from server import two_agents


class Asked(Struct):
    """What a toy caller says."""

    op: str
    args: msgspec.Raw
    id: str | int | None = None
    stream: bool = False


class Told(Struct, omit_defaults=True):
    """What a toy callee says."""

    id: str | int | None = None
    task: Task | None = None
    message: Message | None = None
    event: Stamped | None = None
    error: dict[str, Json] | None = None


class ToyCallee(Session):
    """The side that is asked."""

    dialect = "toy"
    _silent = False

    def receive(self, frame: Frame) -> Iterable[Signal]:
        try:
            asked = msgspec.json.decode(frame.body, type=Asked)
            kind = getattr(operations, asked.op)
            op = msgspec.json.decode(asked.args, type=kind)
        except (msgspec.DecodeError, AttributeError) as exc:
            return (Fault(None, Malformed(str(exc))),)
        self._silent = asked.id is None
        return (Call(asked.id, op, asked.stream, self._silent),)

    def send(self, signal: Signal) -> Iterable[Frame]:
        match signal:
            case Result() | Fault() if self._silent and signal.id is None:
                return (Frame(b"", status=204),)
            case Result(id=id, value=Task() as task):
                return (_frame(Told(id, task=task)),)
            case Result(id=id, value=Message() as message):
                return (_frame(Told(id, message=message)),)
            case Update(id=id, entry=Stamped() as entry):
                return (_frame(Told(id, event=entry)),)
            case Fault(id=id, error=error):
                said = {"name": type(error).__name__, "message": error.message}
                return (_frame(Told(id, error=said)),)
            case _:
                return ()


class ToyCaller(Session):
    """The side that asks."""

    def send(self, signal: Signal) -> Iterable[Frame]:
        if not isinstance(signal, Call):
            return ()
        asked = Asked(
            type(signal.op).__name__,
            msgspec.Raw(msgspec.json.encode(signal.op)),
            signal.id,
            signal.stream,
        )
        accept = "text/event-stream" if signal.stream else "application/json"
        headers = {"content-type": "application/json", "accept": accept}
        return (Frame(msgspec.json.encode(asked), "POST", headers),)

    def receive(self, frame: Frame) -> Iterable[Signal]:
        if not frame.body:
            return ()
        told = msgspec.json.decode(frame.body, type=Told)
        if told.error is not None:
            return (Fault(told.id, _error(told.error)),)
        if told.event is None:
            return (Result(told.id, told.task or told.message),)
        last = (End(told.id),) if _is_last(told.event) else ()
        return (Update(told.id, told.event), *last)


def _frame(told: Told) -> Frame:
    return Frame(msgspec.json.encode(told), status=200)


def _error(said: dict[str, Json]) -> DragomanError:
    error: DragomanError = getattr(errors, str(said["name"]))(str(said["message"]))
    return error


def _is_last(entry: Stamped) -> bool:
    match entry.event:
        case StateChanged(state=state):
            return state in FINAL
        case Snapshot(task=task):
            return task.state in FINAL
        case _:
            return False


def _caller(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return ToyCaller()


TOY = Dialect(
    name="toy",
    caller=_caller,
    callee=ToyCallee,
    routes=(Route("/toy"),),
    scheme="toy",
    listed_as="TOY",
)


class ToySocketCallee(ToyCallee):
    dialect = "toy-ws"


TOY_SOCKET = Dialect(
    name="toy-ws",
    wire=Wire.WEBSOCKET,
    caller=_caller,
    callee=ToySocketCallee,
    routes=(Route("/toy/ws", "GET"),),
    scheme="toy",
    listed_as="WEBSOCKET",
)


@pytest.fixture
def registered() -> Iterator[None]:
    added = TOY, TOY_SOCKET
    for each in added:
        dialects.register(each)
    yield
    for each in added:
        del dialects.DIALECTS[each.name]


EXAMINATIONS = [test for name, test in vars(test_pair).items() if name.startswith("test_")]


@pytest.mark.parametrize("examination", EXAMINATIONS, ids=lambda test: test.__name__)
def test_the_pair_tests_examine_it(examination: Callable[[Dialect], None]) -> None:
    examination(TOY)


def say(text: str, id: Id = "1", *, stream: bool = False) -> Call:
    message = Message(message_id="m", role=Role.USER, parts=(Text(text),))
    return Call(id, SendMessage(message=message), stream)


async def post(url: str, asked: Call) -> list[Signal]:
    """What our toy caller hears."""
    caller = TOY.caller()
    (frame,) = caller.send(asked)
    async with httpx2.AsyncClient() as client:
        answer = await client.post(url, content=frame.body, headers=dict(frame.headers))
    bodies = [answer.content]
    if asked.stream and answer.headers["content-type"] == "text/event-stream":
        bodies = [
            line.removeprefix("data: ").encode()
            for line in answer.text.splitlines()
            if line.startswith("data: ")
        ]
    return [heard for body in bodies for heard in caller.receive(Frame(body))]


@pytest.mark.usefixtures("registered")
async def test_it_is_served() -> None:
    async with open_server() as home:
        (told,) = await post(f"{home.url}/toy", say("hello"))
        assert isinstance(told, Result)
        assert isinstance(told.value, Task)
        assert told.value.text == "HELLO"
        (found,) = await post(f"{home.url}/toy", Call(2, GetTask(task_id=told.value.id)))
        assert found == Result(2, told.value)
        assert home.peer.asked[-1][1].dialect == "toy"
        (fault,) = await post(f"{home.url}/toy", Call(3, GetTask(task_id="nobody")))
        assert isinstance(fault, Fault)
        assert isinstance(fault.error, TaskNotFound)
        metrics = home.app.server.metrics
        assert ("GetTask", "toy") in metrics.latency
        assert metrics.errors["task_not_found", "toy"] == 1


@pytest.mark.usefixtures("registered")
async def test_it_is_served_as_a_stream() -> None:
    async with open_server() as home:
        heard = await post(f"{home.url}/toy", say("count 3", stream=True))
        updates = [signal.entry.seq for signal in heard if isinstance(signal, Update)]
        assert updates == [1, 2, 3, 4, 99]
        assert heard[-1] == End("1")


@pytest.mark.usefixtures("registered")
async def test_it_is_served_over_a_websocket() -> None:
    async with open_server() as home:
        url = f"ws://127.0.0.1:{home.port}/toy/ws"
        async with connect(url, proxy=None) as socket:
            caller = TOY_SOCKET.caller()
            for asked in (say("count 2", "a", stream=True), say("hello", "b")):
                (frame,) = caller.send(asked)
                await socket.send(frame.body.decode())
            heard: list[Any] = []
            while len(heard) < 6:
                body = await socket.recv()
                heard += caller.receive(Frame(body.encode() if isinstance(body, str) else body))
        answers = [signal for signal in heard if signal.id == "b"]
        assert [type(signal) for signal in answers] == [Result]
        updates = [signal for signal in heard if signal.id == "a"]
        assert [type(signal) for signal in updates] == [Update] * 4 + [End]


@pytest.mark.usefixtures("registered")
async def test_it_stands_on_the_card() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
        extensions = card["capabilities"]["extensions"]
        (ours,) = [each for each in extensions if each["uri"] == "urn:dragoman:dialects:1"]
        addresses = {each["dialect"]: each for each in ours["params"]["addresses"]}
        assert addresses["toy"] == {"dialect": "toy", "binding": "TOY", "url": f"{home.url}/toy"}
        assert addresses["toy-ws"]["url"] == f"{home.url}/toy/ws"


@pytest.mark.usefixtures("registered")
async def test_it_is_served_below_the_mount_point_of_each_agent() -> None:
    async with two_agents.serving() as two:
        for name in ("alpha", "beta"):
            base = f"{two.url}/agents/{name}"
            (told,) = await post(f"{base}/toy", say("hello"))
            assert isinstance(told, Result)
            assert isinstance(told.value, Task)
            assert told.value.text == f"{name} hello"
            async with connect(f"{base.replace('http', 'ws')}/toy/ws", proxy=None) as socket:
                caller = TOY_SOCKET.caller()
                (frame,) = caller.send(say("hello"))
                await socket.send(frame.body.decode())
                body = await socket.recv()
                (heard,) = caller.receive(Frame(body.encode() if isinstance(body, str) else body))
                assert isinstance(heard, Result)
            async with httpx2.AsyncClient(timeout=60) as client:
                card = (await client.get(f"{base}/.well-known/agent-card.json")).text
            assert f'"{base}/toy"' in card
            assert f'"{base}/toy/ws"' in card


async def test_a_dialect_that_is_not_registered_leaves_no_route() -> None:
    async with open_server() as home, httpx2.AsyncClient(base_url=home.url) as client:
        assert (await client.post("/toy")).status_code == 404


@pytest.mark.usefixtures("registered")
def test_two_dialects_cannot_be_served_at_one_route() -> None:
    rival = Dialect(name="rival", caller=_caller, callee=ToySocketCallee, routes=(Route("/toy"),))
    dialects.register(rival)
    try:
        with pytest.raises(ConfigError, match="POST /toy"):
            App(agent, LittlePeer(), Settings(), Log("error"), "http://127.0.0.1:1")
    finally:
        del dialects.DIALECTS["rival"]
