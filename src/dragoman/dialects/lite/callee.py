"""The agent's side of A2A-Lite: requests in a room become operations, and events are told there.

One session is what one requester says to one agent in one room. Its frames are posts (`post`). The
id of a call is the requester's id of the task. A text without a marker, a message of another type
and one that lacks a parameter are no calls; what people mean by them is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.core import session as signals
from dragoman.core.card import Card
from dragoman.core.events import Opened, Stamped
from dragoman.core.model import Json, Message, Role, State, Task, Text
from dragoman.core.operations import AnyOperation, CancelTask, GetExtendedCard, SendMessage, Watch
from dragoman.core.session import Frame, Id, Signal
from dragoman.core.task_names import LONGEST

from .card import CardDetails, body_out, card_out
from .errors import error_out
from .parts import parts_in, posted
from .post import Post, PostSession, frame_out
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
        op = operation_in(message, post, frame.mark)
        if op is None:
            self._ignored = f"nothing to do for {message.type}"
            return ()
        task, follows = message.task, isinstance(op, SendMessage | Watch)
        self._last = task
        id = call_id(op, task)
        self._calls[id] = task
        if follows:
            self._tellers[task] = TaskTeller(task)
        return (signals.Call(id, op, stream=follows),)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the post that a signal is told in. Many events are not told at all."""
        match signal:
            case signals.Update(id=id, entry=entry):
                task = self._task(id)
                return self._told(task, self._telling(task, entry))
            case signals.Result(id=id, value=value):
                return self._answer(self._close(id), value)
            case signals.Fault(id=id, error=error):
                task = self._close(id)
                return (frame_out(error_out(error, task)),) if task else ()
            case signals.End(id=id):
                self._close(id)
                return ()
            case signals.Introduction(card=Card() as card):
                return (self._card(card),)
            case _:
                return ()

    def _task(self, id: Id) -> str:
        """Returns the task that a call is about. A call without an id is the last one."""
        return self._calls.get(id, self._last)

    def _close(self, id: Id) -> str:
        task = self._task(id)
        self._calls.pop(id, None)
        if id == task:
            self._tellers.pop(task, None)
        return task

    def _telling(self, task: str, entry: Stamped | Message) -> Telling | None:
        if isinstance(entry, Message):
            return _finished(entry)
        if isinstance(entry.event, Opened):
            return Telling(state=State.SUBMITTED, text=GOT_IT, ack=True)
        return self._tellers.setdefault(task, TaskTeller(task)).add(entry)

    def _answer(self, task: str, value: object) -> Iterable[Frame]:
        match value:
            case Task():
                return self._told(task, current(value))
            case Message():
                return self._told(task, _finished(value))
            case Card():
                return (self._card(value),)
            case _:
                return ()

    def _told(self, task: str, telling: Telling | None) -> Iterable[Frame]:
        if telling is None or not task:
            return ()
        return (frame_out(telling.marked(task), posted(telling.files)),)

    def _card(self, card: Card) -> Frame:
        told = card_out(card, self._details, files=self._files)
        return frame_out(LiteMessage(CARD, {}, body_out(told)))


def operation_in(message: LiteMessage, post: Post, message_id: str = "") -> AnyOperation | None:
    """Returns what a message asks an agent to do, or None if it asks nothing."""
    task = message.task
    if message.type == DISCOVER:
        return GetExtendedCard()
    if not task or len(task) > LONGEST:
        return None
    if message.type == TASK:
        parts = parts_in(message.body, post.files)
        said = Message(
            message_id=message_id or task, role=Role.USER, parts=parts or (Text(message.body),)
        )
        return SendMessage(message=said, open_as=task, metadata=metadata_in(message))
    if message.type == CANCEL:
        reason = message.params.get("reason") or message.body
        return CancelTask(task_id=task, metadata={REASON: reason} if reason else None)
    if message.type == STATUS and "state" not in message.params:
        # Our own way to ask how a task is, after we have lost sight of it.
        return Watch(task_id=task)
    return None


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
