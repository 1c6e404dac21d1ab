"""Sessions: one conversation in one dialect, without I/O. A session turns frames into signals and
signals into frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

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
    """One message as the wire carries it, without its SSE, WebSocket or gRPC framing. A frame with
    the content type `text/event-stream` holds one event of the stream."""

    body: bytes
    target: str = ""
    headers: Mapping[str, str] = {}
    status: int | None = None
    mark: str = ""
    """The position in a stream (the SSE id), after which a reader can resume."""
    name: str = ""
    """The kind of event (the SSE event), in dialects that name it."""


class Call(Struct, frozen=True, gc=False):
    """The caller requests an operation. A `silent` call expects no answer."""

    id: Id
    op: AnyOperation
    stream: bool = False
    silent: bool = False


class Result(Struct, frozen=True, gc=False):
    """The callee answers a call with its only result."""

    id: Id
    value: Task | Message | TaskPage | Card | Hook | HookPage | Json


class Update(Struct, frozen=True, gc=False):
    """The callee sends one event of a stream, or the direct reply that is the whole stream."""

    id: Id
    entry: Stamped | Message


class End(Struct, frozen=True, gc=False):
    """The callee has sent the whole stream."""

    id: Id


class Fault(Struct, frozen=True):
    """The callee answers a call with an error."""

    id: Id
    error: DragomanError


class Introduction(Struct, frozen=True, gc=False):
    """Either side introduces itself: who it is, and which tools it runs for the other side. The
    `Answer` to it may hold a welcome."""

    id: Id
    who: str
    card: Card | None = None
    """The card of this side; None if it has introduced itself before and only offers more
    tools."""
    tools: tuple[Tool, ...] = ()
    workspace: str = ""
    """The folder in which this side works, if it names one."""
    callable: bool = True
    """Whether this side can be called in turn. A mere client cannot."""


class Ping(Struct, frozen=True, gc=False):
    """Either side checks whether the other one is alive. The `Answer` to it confirms that."""

    id: Id


class Posted(Struct, frozen=True, gc=False):
    """The other side sends an event of a call of ours as a message of its own, which is answered
    when the event is a question and has its answer."""

    id: Id
    frame: Frame


Signal = Call | Result | Update | End | Fault | Introduction | Ping | Posted

Steps = tuple[list[Stamped | Message], bool, DragomanError | None]
"""Events of a stream, whether the stream ended with them, and the error that follows them."""


def steps(signals: Iterable[Signal]) -> Steps:
    """Returns the events in these signals. No signal is read behind the end of the stream, or
    behind an error."""
    entries: list[Stamped | Message] = []
    for signal in signals:
        # `type` is compared, because an `isinstance` that fails costs a search in the metaclass of
        # a Struct.
        if type(signal) is Update:
            entries.append(signal.entry)
        elif type(signal) is Fault:
            return entries, False, signal.error
        elif type(signal) is End:
            return entries, True, None
    return entries, False, None


class Session(ABC):
    """One conversation with one peer: an HTTP exchange, a WebSocket connection or a chat thread. It
    does no I/O.

    An invalid call is data: `receive` yields a `Fault`, which the driver sends back. It raises an
    error only if the conversation cannot continue.
    """

    follows_questions = False
    """Whether the streams of this callee continue after a question of the task, because the answer
    arrives while the caller still listens. In A2A a stream ends with the question, and the next
    stream begins after it."""

    repeats = False
    """Whether this is a caller that may send a call again in another form
    (`CallerSession.repeated`)."""

    @property
    def dialect(self) -> str:
        """The name of the `Dialect` that the caller of this callee speaks, as far as it is
        known."""
        return ""

    @property
    def tenant(self) -> str:
        """The tenant that the caller of this callee named, if its dialect can express it."""
        return ""

    @property
    def extensions_header(self) -> str:
        """The header in which this callee names the active extensions; empty if its version has no
        such header."""
        return ""

    @abstractmethod
    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals that a frame means."""

    def receive_events(self, frames: Sequence[Frame]) -> Steps:
        """Returns what the frames of a stream mean that have arrived together. Each is received
        when the signals before it were read, because none counts behind the end of a stream."""
        return steps(chain.from_iterable(map(self.receive, frames)))

    @abstractmethod
    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the frames that express this signal, or none if the dialect cannot express it."""

    def notes(self) -> Iterable[Mapping[str, Json]]:
        """Returns how the last frame was interpreted where it was ambiguous: fields for the driver
        to log, which are computed only on request. They never hold content."""
        return ()


class CallerSession(Session):
    """The caller's side of one exchange or one connection. Every caller transport can carry it.

    The defaults suit a dialect in which an answer arrives in the exchange of its call.
    """

    repeats = True

    def using(self, ctx: Context) -> None:
        """Sets the context of the next call, as far as the dialect itself expresses it: tools,
        trace, cursor, hops, idempotency key and deadline."""
        return

    def repeated(self) -> Iterable[Frame]:
        """Returns the frames to send again in another form, because the other side did not
        understand the previous form, and forgets them. The call has no answer until these frames
        have one."""
        return ()

    def expects(self, frame: Frame) -> bool:
        """Returns whether this frame answers a call of this side. On a channel where both sides
        make calls, every other frame is for the callee."""
        return True

    def abandon(self, id: Id) -> None:
        """Forgets a call whose answer nobody waits for any more."""
        return


class Duplex(ABC):
    """The caller and the callee session that share one channel, where both sides may make calls."""

    caller: CallerSession
    callee: Session

    @abstractmethod
    def whose(self, frame: Frame) -> Session | None:
        """Returns the session that a frame is for: the caller's if it answers a call of ours, and
        otherwise the callee's. Returns None if it is a frame of our own that came back. Raises
        `DragomanError` if the frame cannot be read."""


class CallerConversation(ABC):
    """What a caller keeps from one exchange or connection to the next, in a dialect that begins
    with an `Introduction`: its identity towards the other side, and the form of the dialect that
    the other side speaks. It does no I/O."""

    @property
    @abstractmethod
    def recognized(self) -> bool:
        """Whether the sessions carry a session token that the other side gave us. It identifies
        us, so no other credentials are needed."""

    @property
    @abstractmethod
    def token(self) -> str:
        """The session token; empty if there is none."""

    @abstractmethod
    def begin(self) -> CallerSession:
        """Returns a session for one exchange or one connection."""

    @abstractmethod
    def forget(self) -> None:
        """Drops the session token, because the other side does not accept it any more."""

    @abstractmethod
    def name_peer(self, name: str) -> None:
        """Sets the name of the other side in messages from now on, unless it already has one."""
