"""The agent's side of A2A-Lite: requests in a room become operations, and events are told there.

One session is what one requester says to one agent in one room. Its frames are posts (`post`). The
id of a call is the requester's id of the task. A text without a marker, a message of another type
and one that lacks a parameter are no calls; what people mean by them is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dragoman.core import session as signals
from dragoman.core.card import Card
from dragoman.core.events import Opened, Stamped
from dragoman.core.model import AnyPart, Json, Message, Role, State, Task, Text
from dragoman.core.operations import AnyOperation, CancelTask, GetExtendedCard, SendMessage, Watch
from dragoman.core.session import Frame, Id, Signal
from dragoman.core.task_names import fit

from .card import CardDetails, body_out, card_out
from .errors import refusal_of
from .parts import blobs_in, parts_in, posted
from .post import PostSession, frame_out
from .telling import TaskTeller, Telling, current, message_out
from .wire import CANCEL, CARD, DISCOVER, STATUS, TASK, LiteMessage

SKILL, PRIORITY, REASON = "skillId", "priority", "reason"
"""The keys of the metadata of a request that its marker names."""
CANCELING = "cancel "
"""What the id of a call that cancels a task begins with."""
GOT_IT = "Got it."


class LiteCallee(PostSession):
    """The agent's side of one conversation in a room."""

    def __init__(self, details: CardDetails | None = None, *, files: bool = True) -> None:
        """`details` stand on the card beside what the agent's own card says; `files` says whether
        the channel carries any."""
        self._details, self._files = details or CardDetails("agent"), files
        self._calls: dict[Id, str] = {}
        """The tasks of the calls that are not answered yet, by the ids of the calls."""
        self._tellers: dict[str, TaskTeller] = {}
        self._last = ""

    @property
    def dialect(self) -> str:
        """The name of the dialect."""
        return "lite"

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the `Call` that a post means, or nothing. The `mark` of the frame is the id of
        the chat message."""
        read = self._read(frame)
        if read is None:
            return ()
        post, message = read
        call = self.hear(message, blobs_in(post.files), frame.mark)
        return (call,) if call is not None else ()

    def hear(
        self, message: LiteMessage, more: Sequence[AnyPart] = (), message_id: str = ""
    ) -> signals.Call | None:
        """Returns what a message with a marker asks for, or None if it asks nothing. `more` are the
        parts that the channel carries beside it."""
        self._ignored = ""
        op = operation_in(message, more, message_id)
        if op is None:
            self._ignored = f"nothing to do for {message.type}"
            return None
        return self._call(op, message.task)

    def hear_plain(
        self, text: str, more: Sequence[AnyPart], task: str, message_id: str = ""
    ) -> signals.Call:
        """Returns the request of somebody who uses no markers. `task` is the id that we give it."""
        return self._call(send_in(text, more, task, message_id), task)

    def follow(self, task: str) -> None:
        """Takes up a task that was asked for in an earlier process."""
        self._calls[task] = self._last = task
        self._tellers[task] = TaskTeller(task)

    def state(self, task: str) -> State:
        """Returns the state of a task after the last event that was told of it."""
        teller = self._tellers.get(task)
        return teller.state if teller is not None else State.UNKNOWN

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the post that a signal is told in. Many events are not told at all."""
        match signal:
            case signals.Result(value=Card() as card) | signals.Introduction(card=Card() as card):
                if isinstance(signal, signals.Result):
                    self._close(signal.id)
                return (frame_out(self.introduce(card)),)
        task = self._task(getattr(signal, "id", None))
        telling = self.tell(signal)
        if telling is None or not task:
            return ()
        return (frame_out(telling.marked(task), posted(telling.files)),)

    def tell(self, signal: Signal) -> Telling | None:
        """Returns what is told of a signal that concerns a task, or None if it says nothing new."""
        match signal:
            case signals.Update(id=id, entry=entry):
                return self._telling(self._task(id), entry)
            case signals.Result(id=id, value=value):
                self._close(id)
                if isinstance(value, Task):
                    return current(value)
                return _finished(value) if isinstance(value, Message) else None
            case signals.Fault(id=id, error=error):
                self._close(id)
                return refusal_of(error)
            case signals.End(id=id):
                self._close(id)
        return None

    def introduce(self, card: Card) -> LiteMessage:
        """Returns the message that shows a card."""
        told = card_out(card, self._details, files=self._files)
        return LiteMessage(CARD, {}, body_out(told))

    def _call(self, op: AnyOperation, task: str) -> signals.Call:
        follows = isinstance(op, SendMessage | Watch)
        self._last = task
        id = call_id(op, task)
        self._calls[id] = task
        if follows and task not in self._tellers:
            self._tellers[task] = TaskTeller(task)
        return signals.Call(id, op, stream=follows)

    def _task(self, id: Id) -> str:
        """Returns the task that a call is about. A call without an id is the last one."""
        return self._calls.get(id, self._last)

    def _close(self, id: Id) -> None:
        task = self._task(id)
        self._calls.pop(id, None)
        if id == task:
            self._tellers.pop(task, None)

    def _telling(self, task: str, entry: Stamped | Message) -> Telling | None:
        if isinstance(entry, Message):
            return _finished(entry)
        told = self._tellers.setdefault(task, TaskTeller(task)).add(entry)
        if isinstance(entry.event, Opened):
            return Telling(state=State.SUBMITTED, text=GOT_IT, ack=True)
        return told


def operation_in(
    message: LiteMessage, more: Sequence[AnyPart] = (), message_id: str = ""
) -> AnyOperation | None:
    """Returns what a message asks an agent to do, or None if it asks nothing."""
    task = message.task
    if message.type == DISCOVER:
        return GetExtendedCard()
    if not fit(task):
        return None
    if message.type == TASK:
        asked = send_in(message.body, more, task, message_id)
        return replace(asked, metadata=metadata_in(message))
    if message.type == CANCEL:
        reason = message.params.get("reason") or message.body
        return CancelTask(task_id=task, metadata={REASON: reason} if reason else None)
    if message.type == STATUS and "state" not in message.params:
        # Our own way to ask how a task is, after we have lost sight of it.
        return Watch(task_id=task)
    return None


def send_in(text: str, more: Sequence[AnyPart], task: str, message_id: str = "") -> SendMessage:
    """Returns the request that a text makes."""
    parts = (*parts_in(text), *more) or (Text(text),)
    said = Message(message_id=message_id or task, role=Role.USER, parts=parts)
    return SendMessage(message=said, open_as=task)


def metadata_in(message: LiteMessage) -> dict[str, Json] | None:
    """Returns the metadata of a request."""
    named = {SKILL: message.params.get("skill"), PRIORITY: message.params.get("priority")}
    return {key: value for key, value in named.items() if value} or None


def call_id(op: AnyOperation, task: str) -> str:
    """Returns the id of a call: that of its task, or one of its own for a call that cancels it."""
    return f"{CANCELING}{task}" if isinstance(op, CancelTask) else task


def _finished(reply: Message) -> Telling:
    """Returns how a direct reply is told, which A2A-Lite does not know: as a finished task."""
    text, files = message_out(reply)
    return Telling(state=State.COMPLETED, text=text, files=files)
