"""One small caller over every binding: an operation in, canonical values or a typed error out.

The words are those of the caller-side codecs in `dragoman.dialects.a2a`; here are only the two
wires that carry their frames. Adding a binding is one row of `BINDINGS`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from itertools import count
from typing import Any, NamedTuple, Protocol

import grpc
from msgspec.structs import replace

from dragoman.agent.parts import parts_of
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped
from dragoman.core.model import Hook, Message, Role, Task
from dragoman.core.operations import (
    AnyOperation,
    CancelTask,
    GetTask,
    ListTasks,
    SendMessage,
    TaskPage,
    Watch,
)
from dragoman.core.session import Call, Fault, Frame, Result, Session, Signal, Update
from dragoman.dialects import DIALECTS
from dragoman.dialects.a2a import V0_3, RpcCaller
from dragoman.dialects.a2a.grpc.caller import failed
from dragoman.dialects.sse import SseParser
from equivalence.server import RunningServer, token

Change = Callable[[Frame], Frame]
"""What a scenario does to a request on its way."""
_numbers = count(1)
BINARY = "-bin"


class Wire(Protocol):
    """Carries one request and brings what it is answered, frame by frame; `heard` gets headers."""

    def __call__(
        self, server: RunningServer, frame: Frame, *, stream: bool, heard: dict[str, str]
    ) -> AsyncIterator[Frame]: ...


async def http(
    server: RunningServer, frame: Frame, *, stream: bool, heard: dict[str, str]
) -> AsyncIterator[Frame]:
    verb, _, path = frame.target.partition(" ")
    request = server.http.stream(
        verb, path or "/", content=frame.body or None, headers=dict(frame.headers)
    )
    async with request as reply:
        heard.update(reply.headers)
        status = reply.status_code
        if not reply.headers.get("content-type", "").startswith("text/event-stream"):
            yield Frame(await reply.aread(), status=status)
            return
        parser = SseParser()
        async for piece in reply.aiter_bytes():
            for event in parser.feed(piece):
                yield Frame(event.body, status=status, mark=event.mark)


async def rpc(
    server: RunningServer, frame: Frame, *, stream: bool, heard: dict[str, str]
) -> AsyncIterator[Frame]:
    make = server.channel.unary_stream if stream else server.channel.unary_unary
    call = make(frame.target)(frame.body, metadata=tuple(frame.headers.items()), timeout=60)
    try:
        if stream:
            async for body in call:
                yield Frame(body, status=0)
        else:
            yield Frame(await call, status=0)
        heard.update(_words(await call.trailing_metadata()))
    except grpc.aio.AioRpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        heard.update(_words(trailers.items()))
        details = trailers.get(f"grpc-status-details{BINARY}", b"")
        yield failed(error.code().value[0], error.details() or "", details)
    finally:
        call.cancel()


def _words(metadata: Any) -> dict[str, str]:
    return {name: value for name, value in metadata or () if not name.endswith(BINARY)}


class Binding(NamedTuple):
    """One version over one framing."""

    name: str
    version: str
    session: Callable[..., Session]
    wire: Wire
    extensions_header: str
    carried: Callable[[Signal], Signal]
    """What of a signal survives: the losses its dialect declares."""

    def borrowed(self, *about: Any) -> Session:
        """Whoever has words for everything; only 0.1 is ever in need of it."""
        return RpcCaller(V0_3, *about)


_NEW, _OLD = "a2a-extensions", "x-a2a-extensions"
BINDINGS = tuple(
    Binding(name, version, DIALECTS[dialect].caller, wire, header, DIALECTS[dialect].carried)
    for name, version, dialect, wire, header in (
        ("JSON-RPC 1.0", "1.0", "a2a-1.0", http, _NEW),
        ("JSON-RPC 0.3", "0.3", "a2a-0.3", http, _OLD),
        ("JSON-RPC 0.1", "0.1", "a2a-0.1", http, _OLD),
        ("REST 1.0", "1.0", "a2a-1.0-rest", http, _NEW),
        ("REST 0.3", "0.3", "a2a-0.3-rest", http, _OLD),
        ("gRPC 1.0", "1.0", "a2a-1.0-grpc", rpc, _NEW),
        ("gRPC 0.3", "0.3", "a2a-0.3-grpc", rpc, _OLD),
    )
)
NAMES = tuple(binding.name for binding in BINDINGS)


class Caller:
    """Someone who speaks one binding."""

    def __init__(
        self,
        server: RunningServer,
        binding: Binding,
        who: str = "alice",
        *,
        tenant: str = "",
        extensions: tuple[str, ...] = (),
    ) -> None:
        self.server, self.binding, self.who = server, binding, who
        self.tenant, self.extensions = tenant, extensions
        self.heard: dict[str, str] = {}
        """Headers or trailers of the last answer."""

    def as_(self, who: str) -> Caller:
        """Somebody else, who speaks the same."""
        return Caller(self.server, self.binding, who)

    def with_(self, *extensions: str, tenant: str = "") -> Caller:
        """The same one, with extensions activated, or in another tenant."""
        return Caller(self.server, self.binding, self.who, tenant=tenant, extensions=extensions)

    def over(self, binding: Binding) -> Caller:
        """The same one over another binding."""
        return Caller(self.server, binding, self.who)

    # One exchange

    async def call(self, op: AnyOperation, *, change: Change | None = None, **headers: str) -> Any:
        """The answer, or the error it is, as a `DragomanError`."""
        session, frame = self._asking(op, stream=False, headers=headers)
        frame = change(frame) if change else frame
        self.heard = {}
        wire = self.binding.wire(self.server, frame, stream=False, heard=self.heard)
        signals: list[Signal] = []
        async with aclosing(wire) as replies:
            async for reply in replies:
                signals += session.receive(reply)
        (signal,) = signals
        if isinstance(signal, Fault):
            raise signal.error
        assert isinstance(signal, Result), signal
        return signal.value

    async def stream(self, op: AnyOperation, **headers: str) -> AsyncIterator[Stamped | Message]:
        """Every step until the server closes."""
        session, frame = self._asking(op, stream=True, headers=headers)
        self.heard = {}
        wire = self.binding.wire(self.server, frame, stream=True, heard=self.heard)
        async with aclosing(wire) as replies:
            async for reply in replies:
                for signal in session.receive(reply):
                    if isinstance(signal, Fault):
                        raise signal.error
                    if isinstance(signal, Update):
                        yield signal.entry

    def _asking(
        self, op: AnyOperation, *, stream: bool, headers: Mapping[str, str]
    ) -> tuple[Session, Frame]:
        call, about = Call(next(_numbers), op, stream), (self.extensions, self.tenant)
        session = self.binding.session(*about)
        frames = list(session.send(call))
        if not frames:
            # The version has no words for it: asked all the same, in those of the next one.
            session = self.binding.borrowed(*about)
            frames = [
                replace(frame, headers={**frame.headers, "a2a-version": self.binding.version})
                for frame in session.send(call)
            ]
        (frame,) = frames
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        door = {"authorization": f"Bearer {token(self.who)}"} if self.who else {}
        return session, replace(frame, headers={**frame.headers, **door, **more})

    # What is asked most

    async def ask(self, *what: object, **about: Any) -> Task | Message:
        """Says something; a task or a direct reply."""
        answer: Task | Message = await self.call(said(*what, **about))
        return answer

    async def send(self, *what: object, **about: Any) -> Task:
        """Says something that a task comes of."""
        task = await self.ask(*what, **about)
        assert isinstance(task, Task), task
        return task

    async def get(self, task_id: str, length: int | None = None) -> Task:
        found: Task = await self.call(GetTask(task_id=task_id, history_length=length))
        return found

    async def cancel(self, task_id: str) -> Task:
        found: Task = await self.call(CancelTask(task_id=task_id))
        return found

    async def list(self, **filters: Any) -> TaskPage:
        page: TaskPage = await self.call(ListTasks(**filters))
        return page

    async def steps(self, *what: object, **about: Any) -> list[Stamped | Message]:
        """Says something; all steps."""
        return [step async for step in self.stream(said(*what, **about))]

    async def watch(self, task_id: str, **headers: str) -> list[Stamped | Message]:
        return [step async for step in self.stream(Watch(task_id=task_id), **headers)]

    async def error(self, asked: Any) -> str:
        """The name of the error that comes of it; what came instead, if none did."""
        try:
            return f"no error: {await asked}"
        except DragomanError as error:
            return error.reason

    async def as_told(self, task: Task, length: int = 99) -> str:
        """`alike`, if the task is what JSON-RPC 1.0 says of it, but for declared losses."""
        whole = await self.over(BINDINGS[0]).get(task.id, length)
        carried = self.binding.carried(Result(None, whole))
        assert isinstance(carried, Result), carried
        return "alike" if carried.value == task else f"{task} is not {carried.value}"


def said(
    *what: object,
    skill: str = "",
    task: str = "",
    context: str = "",
    metadata: dict[str, Any] | None = None,
    references: tuple[str, ...] = (),
    wait: bool = True,
    history: int | None = None,
    accepts: tuple[str, ...] = (),
    hook: Hook | None = None,
    about: dict[str, Any] | None = None,
) -> SendMessage:
    """A message with an id of its own; `about` is the metadata of the request."""
    skilled = {"skillId": skill} if skill else {}
    message = Message(
        message_id=f"m-{next(_numbers)}",
        role=Role.USER,
        parts=parts_of(list(what)),
        task_id=task,
        context_id=context,
        metadata={**skilled, **(metadata or {})} or None,
        references=references,
    )
    return SendMessage(
        message=message,
        wait=wait,
        history_length=history,
        accepts=accepts,
        hook=hook,
        metadata=about,
    )
