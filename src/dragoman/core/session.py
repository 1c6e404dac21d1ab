"""One conversation in one dialect, free of I/O: frames in, signals out; signals in, frames out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from msgspec import Struct

from .card import Card, Tool
from .errors import DragomanError
from .events import Stamped
from .model import Hook, Json, Message, Task
from .operations import AnyOperation, HookPage, TaskPage
from .peer import Context

Id = str | int | float | None
"""The id that the caller gave its call. It is echoed unchanged."""


class Frame(Struct, frozen=True, gc=False):
    """One message as the wire carries it. SSE, WebSocket or gRPC framing is already off: an answer
    whose content type is `text/event-stream` is its only event."""

    body: bytes
    target: str = ""
    headers: Mapping[str, str] = {}
    status: int | None = None
    mark: str = ""
    """The place in a stream (the SSE id), behind which a reader can resume."""
    name: str = ""
    """The kind of event (the SSE event), in dialects that name it."""


class Call(Struct, frozen=True, gc=False):
    """Caller: do this. `silent` wants no answer."""

    id: Id
    op: AnyOperation
    stream: bool = False
    silent: bool = False


class Result(Struct, frozen=True, gc=False):
    """Callee: the one result."""

    id: Id
    value: Task | Message | TaskPage | Card | Hook | HookPage | Json


class Update(Struct, frozen=True, gc=False):
    """Callee: one event of a stream, or the direct reply that is all of it."""

    id: Id
    entry: Stamped | Message


class End(Struct, frozen=True, gc=False):
    """Callee: the stream is over."""

    id: Id


class Fault(Struct, frozen=True):
    """Callee: it cannot be done, and why."""

    id: Id
    error: DragomanError


class Introduction(Struct, frozen=True, gc=False):
    """Either side: who I am and what I run for you. An `Answer` to it may hold a welcome."""

    id: Id
    who: str
    card: Card | None = None
    """None if this side has introduced itself before and only offers some more tools."""
    tools: tuple[Tool, ...] = ()
    workspace: str = ""
    """The folder in which it works, if it says so."""
    callable: bool = True
    """Whether it can be asked in turn. A client that only asks cannot."""


class Ping(Struct, frozen=True, gc=False):
    """Either side: are you there? The `Answer` to it says so."""

    id: Id


Signal = Call | Result | Update | End | Fault | Introduction | Ping


class Session(ABC):
    """One conversation with one peer: an HTTP exchange, a WebSocket, a chat thread. Pure.

    A bad call is data: `receive` yields a `Fault` that the driver sends back. It raises only when
    nothing sensible can follow.
    """

    follows_questions = False
    """Of a callee: whether a stream goes on behind a question of the task, since the answer comes
    while the caller still listens. In A2A a stream ends there, and the next one begins behind."""

    @property
    def dialect(self) -> str:
        """The name of the record of the dialect that the caller speaks, as far as it is known; of
        a callee."""
        return ""

    @property
    def tenant(self) -> str:
        """The tenant the caller named, if its dialect has a word for it; of a callee."""
        return ""

    @property
    def extensions_header(self) -> str:
        """The header in which its version tells what extensions are active; of a callee. Empty: it
        has none."""
        return ""

    @abstractmethod
    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals that a frame means."""

    @abstractmethod
    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the frames that say this signal, or none if the dialect cannot express it."""

    def notes(self) -> Iterable[Mapping[str, Json]]:
        """What was decided in reading the last frame where it could be read in more than one way:
        fields for the driver to log, made only when it asks. Never content."""
        return ()


class CallerSession(Session):
    """The side that asks, over one exchange or one connection. Every caller transport carries it.

    The defaults suit a dialect whose answers belong to the exchange they come in.
    """

    def using(self, ctx: Context) -> None:
        """Sets what the next call is made with, where the dialect itself has words for it: tools,
        trace, cursor, hops, idempotency key, deadline."""
        return

    def repeated(self) -> Iterable[Frame]:
        """Takes the frames to send once more, since the other side did not know the form of the
        ones before. Until they are answered, there is no answer."""
        return ()

    def expects(self, frame: Frame) -> bool:
        """Whether this frame answers a call of this side. On a channel where both sides ask, every
        other frame is for the callee."""
        return True

    def abandon(self, id: Id) -> None:
        """Nobody waits for the answer to this call any more."""
        return


class Duplex(ABC):
    """The caller and the callee session that share one channel, where both sides may ask."""

    caller: CallerSession
    callee: Session
    name = ""
    """How this side is called: the ids of its calls begin with it."""

    @abstractmethod
    def whose(self, frame: Frame) -> Session | None:
        """The session that a frame is for: the caller's if it answers a call of ours, else the
        callee's; None if our own words came back. Raises `DragomanError` if it cannot be read."""


class CallerConversation(ABC):
    """What a caller keeps from one exchange or connection to the next, in a dialect that begins
    with an `Introduction`: who it is to the other side, and which form that one speaks. Pure."""

    @property
    @abstractmethod
    def recognized(self) -> bool:
        """Whether its sessions show who we are, by something that the other side gave us: a
        session token. Nothing else has to be proved then."""

    @abstractmethod
    def begin(self) -> CallerSession:
        """A session for one exchange or one connection."""

    @abstractmethod
    def forget(self) -> None:
        """Drops what the other side gave us, since it does not take it any more."""

    @abstractmethod
    def name_peer(self, name: str) -> None:
        """What the other side is called in messages from now on, unless it has a name already."""
