"""The requester's side of A2A-Lite: our calls are said in a room, and what an agent tells there
becomes events.

One session is our conversation with one agent in one room; its frames are posts (`post`). The
messages of an agent name the task that they are about. A task may be told to be completed before
its result comes, so that such a task waits for it; the driver ends that wait with `settle`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from dragoman.core import events as ev
from dragoman.core import session as signals
from dragoman.core.errors import NotCancelable
from dragoman.core.events import AnyEvent, Stamped
from dragoman.core.extensions import PROGRESS
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.core.model import AnyPart, Artifact, Blob, Json, Message, Role, State, Status, Task
from dragoman.core.operations import CancelTask, GetExtendedCard, SendMessage, Watch
from dragoman.core.session import CallerSession, Frame, Id, Signal
from dragoman.core.task_names import called

from .callee import PRIORITY, REASON, SKILL
from .card import body_in, card_in
from .errors import error_in
from .parts import blobs_in, name_of, parts_in, parts_out, posted
from .post import PostSession, frame_out
from .states import state_in
from .telling import figures_in
from .wire import ACK, CANCEL, CARD, DISCOVER, RESULT, STATUS, TASK, LiteMessage

ANSWER = "result"
"""The id of the artifact that holds the result of a task."""
INQUIRY = "How is it going?"
STATE = "state"
"""The key in the metadata of an event for a state that we do not know."""
_safe_id = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RoomCall(Struct):
    """A call that has not been answered yet."""

    id: Id
    task: str
    stream: bool
    fold: Fold
    events: int = 0
    over: bool = False
    ending: ev.StateChanged | None = None
    """The end of a task whose result is still awaited."""


class LiteCaller(PostSession, CallerSession):
    """Our side of the conversation with one agent."""

    def __init__(self, agent: str = "", *, now: Callable[[], int] = lambda: 0) -> None:
        """`agent` names the agent if its card does not."""
        self._agent, self._now = agent, now
        self._tasks: dict[str, RoomCall] = {}
        """The open calls that follow a task, by the id of the task."""
        self._cancels: dict[str, Id] = {}
        self._discovering: list[Id] = []
        self._messages = 0

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the post for a `Call`, or none if A2A-Lite has no message for it."""
        asked = self.ask(signal) if isinstance(signal, signals.Call) else None
        if asked is None:
            return ()
        message, files = asked
        return (frame_out(message, posted(files)),)

    def ask(self, call: signals.Call) -> tuple[LiteMessage, tuple[Blob, ...]] | None:
        """Returns the message that makes a call, with its files, or None if A2A-Lite has no message
        for it."""
        match call.op:
            case SendMessage() as op:
                return self._request(call, op)
            case CancelTask(task_id=task_id, metadata=metadata):
                task = id_out(called(task_id))
                if not call.silent:
                    self._cancels[task] = call.id
                reason = (metadata or {}).get(REASON)
                return cancel_out(task, reason if isinstance(reason, str) else ""), ()
            case Watch(task_id=task_id):
                task = id_out(called(task_id))
                self._open(call, task)
                return LiteMessage(STATUS, {"task": task}, INQUIRY), ()
            case GetExtendedCard():
                if not call.silent:
                    self._discovering.append(call.id)
                return LiteMessage(DISCOVER, {}, "What can you do?"), ()
            case _:
                return None

    def _request(self, call: signals.Call, op: SendMessage) -> tuple[LiteMessage, tuple[Blob, ...]]:
        task = name_out(op)
        self._open(call, task)
        body, files = parts_out(op.message.parts)
        params = {"id": task}
        about = {**(op.metadata or {}), **(op.message.metadata or {})}
        for key, name in ((SKILL, "skill"), (PRIORITY, "priority")):
            value = about.get(key)
            if isinstance(value, str) and value:
                params[name] = value
        return LiteMessage(TASK, params, body, tuple(map(name_of, files))), files

    def _open(self, call: signals.Call, task: str) -> None:
        if not call.silent:
            self._tasks[task] = RoomCall(call.id, task, call.stream, Fold(task, ""))

    def abandon(self, id: Id) -> None:
        """Forgets a call whose answer nobody waits for any more."""
        self._tasks = {task: call for task, call in self._tasks.items() if call.id != id}
        self._cancels = {task: each for task, each in self._cancels.items() if each != id}
        self._discovering = [each for each in self._discovering if each != id]

    @property
    def settling(self) -> list[Id]:
        """The calls whose task has been completed while its result is still awaited. Two seconds
        later, `settle` ends that wait."""
        return [each.id for each in self._tasks.values() if each.ending is not None]

    def settle(self, id: Id) -> Iterable[Signal]:
        """Returns the signals for the end of a task whose result did not come."""
        for call in self._tasks.values():
            if call.id == id and call.ending is not None:
                call.over = True
                return self._told(call, [call.ending])
        return ()

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals of a post. One without a use is ignored, so that it ends no task."""
        read = self._read(frame)
        if read is None:
            return ()
        post, message = read
        return self.hear(message, blobs_in(post.files))

    def hear(self, message: LiteMessage, files: Sequence[Blob] = ()) -> Iterable[Signal]:
        """Returns the signals of a message with a marker, and of the files beside it."""
        self._ignored = ""
        if message.type == CARD:
            return self._introduced(message)
        if message.type not in (ACK, STATUS, RESULT):
            self._ignored = f"nothing to do for {message.type}"
            return ()
        return self._heard(message, files)

    def hear_plain(self, text: str, files: Sequence[Blob] = ()) -> Iterable[Signal]:
        """Returns the signals of a text of an agent that uses no markers: it answers the only task
        that is open, if there is just one."""
        if len(self._tasks) != 1:
            return ()
        (task,) = self._tasks
        params = {"task": task, "state": "completed"}
        return self._heard(LiteMessage(RESULT, params, text), files)

    def _introduced(self, message: LiteMessage) -> Iterable[Signal]:
        card = card_in(body_in(message.body, self._agent).card)
        asked, self._discovering = self._discovering, []
        if asked:
            return [signals.Result(id, card) for id in asked]
        return (signals.Introduction(None, self._agent, card),)

    def _heard(self, message: LiteMessage, files: Sequence[Blob]) -> Iterable[Signal]:
        task = message.task
        call = self._tasks.get(task)
        if call is None and task not in self._cancels:
            self._ignored = "no such task"
            return ()
        error = error_in(message)
        if error is not None and task in self._cancels:
            return (signals.Fault(self._cancels.pop(task), error),)
        if call is not None and error is not None and not call.events:
            del self._tasks[task]
            return (signals.Fault(call.id, error),)
        state = state_in(message.params.get("state", "")) if message.type != ACK else None
        told = self._told(call, self._events(call, message, files)) if call is not None else []
        if state in FINAL and task in self._cancels:
            told.append(self._canceled(task, state))
        return told

    def _canceled(self, task: str, state: State) -> Signal:
        """Returns the answer to a cancel, when the task has ended."""
        id = self._cancels.pop(task)
        if state is not State.CANCELED:
            return signals.Fault(id, NotCancelable(taskId=task))
        status = Status(State.CANCELED, self._now())
        return signals.Result(id, Task(id=task, context_id="", status=status))

    def _events(
        self, call: RoomCall, message: LiteMessage, files: Sequence[Blob]
    ) -> list[AnyEvent]:
        """Returns what a message tells of a task."""
        if message.type == ACK:
            return [] if call.events else [ev.StateChanged(state=State.SUBMITTED)]
        named = message.params.get("state", "")
        state = state_in(named)
        if state is State.UNKNOWN and message.type == RESULT and not named:
            state = State.COMPLETED
        parts = (*parts_in(message.body), *files)
        if state is State.COMPLETED:
            return self._completed(call, message, parts)
        said = self._said(call, parts) if parts else None
        if state in FINAL or state is State.INPUT_REQUIRED:
            call.over = True
            return [ev.StateChanged(state=state, message=said)]
        if state is State.SUBMITTED and not call.events:
            return [ev.StateChanged(state=state, message=said)]
        if state is State.SUBMITTED and said is None:
            return []  # nothing new after the ack
        metadata: dict[str, Json] = {}
        if figures := figures_in(message.params):
            metadata[PROGRESS] = figures
        if state is State.UNKNOWN and named:
            metadata[STATE] = named
        return [ev.StateChanged(state=State.WORKING, message=said, metadata=metadata or None)]

    def _completed(
        self, call: RoomCall, message: LiteMessage, parts: tuple[AnyPart, ...]
    ) -> list[AnyEvent]:
        done = ev.StateChanged(state=State.COMPLETED)
        made: list[AnyEvent] = []
        if parts:
            made.append(ev.ArtifactChunk(artifact=Artifact(artifact_id=ANSWER, parts=parts)))
        if message.type == STATUS and not parts:
            call.ending = done
            return made
        call.over = True
        return [*made, done]

    def _told(self, call: RoomCall, events: Iterable[AnyEvent]) -> list[Signal]:
        said: list[Signal] = []
        for event in events:
            call.events += 1
            entry = Stamped(call.task, "", call.events, self._now(), event)
            call.fold.add(entry)
            if call.stream:
                said.append(signals.Update(call.id, entry))
        if call.over:
            self._tasks.pop(call.task, None)
            task = call.fold.task()
            said.append(signals.End(call.id) if call.stream else signals.Result(call.id, task))
        return said

    def _said(self, call: RoomCall, parts: tuple[AnyPart, ...]) -> Message:
        self._messages += 1
        id = f"{call.task}.{self._messages}"
        return Message(message_id=id, role=Role.AGENT, parts=parts, task_id=call.task)


def name_out(op: SendMessage) -> str:
    """Returns the id of a task in the room: its caller's name for it, or the id of its first
    message."""
    return id_out(called(op.message.task_id) or op.open_as or op.message.message_id)


def id_out(name: str) -> str:
    """Returns a name as an id that every agent reads; another name is replaced by its digest."""
    if _safe_id.fullmatch(name):
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def cancel_out(task: str, reason: str = "") -> LiteMessage:
    """Returns the message that cancels a task. A reason of several words is its body."""
    if reason and _safe_id.fullmatch(reason):
        return LiteMessage(CANCEL, {"task": task, "reason": reason}, "Please stop.")
    return LiteMessage(CANCEL, {"task": task}, reason or "Please stop.")
