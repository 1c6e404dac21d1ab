"""The server's side of the link: it sends our requests and receives the responses of the agent.

One session serves all links of one agent, because an agent with two links may answer over either.
Answers are matched in the way real agents send them (dialects §3.3): the events of a task by the id
of the task, and the answer to `tasks/cancel` or `clearContext` by the id of the request.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Mapping

from msgspec import Struct

from dragoman.core import session as signals
from dragoman.core.errors import (
    DragomanError,
    NotCancelable,
    PeerRefused,
    TaskNotFound,
)
from dragoman.core.events import AnyEvent, Stamped
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Json, State, Status, Task
from dragoman.core.operations import CancelTask, Invoke, SendMessage, Watch
from dragoman.core.peer import Context
from dragoman.core.session import CallerSession, Frame, Id, Signal
from dragoman.core.task_names import called

from . import wire
from .assembly import AnswerAssembly
from .callee import CONVERSATION, DEVICE, LOGIN, NOTHING
from .device_commands import refusal_of
from .errors import error_in
from .events import SEQUENCE, exact
from .mirrored_frames import OpenLinks, RepeatedFrames, TaskFrames
from .parts import part_out
from .states import CLEARED, state_in
from .wire import EnvelopeIn, ResponseIn, encode, word

OUR_DEVICE = "dragoman"
"""The device of a request whose caller names none."""
MOST_TASKS = 10_000
"""The number of tasks whose session is remembered."""
MAX_UNCLAIMED_FRAMES, MAX_UNCLAIMED_BYTES = 256, 4 * 1024 * 1024
"""What is kept of tasks that an earlier process has opened, until they are followed again."""
EMPTY = wire.Message("user", ())
INQUIRY = "?"
"""Separates the id of a request from the number of an inquiry about its answer."""
REFUSAL = "!"
"""Separates the id of a request from the number of a refusal of commands."""


class LinkCall(Struct):
    """A request that has not been answered yet."""

    id: Id
    op: SendMessage | Watch | CancelTask | Invoke
    stream: bool
    task: str
    session: str
    assembly: AnswerAssembly
    frames: TaskFrames
    fold: Fold | None
    """The task so far, for a caller that waits for the whole task."""
    events: int = 0
    request: Frame | None = None
    """The message, until the agent has answered with anything."""
    inquiries: int = 0
    """How often the agent was asked for this answer."""


class XiaoYiCaller(CallerSession):
    """The server's side of all links of one agent."""

    def __init__(self, agent_id: str = "", *, now: Callable[[], int] = lambda: 0) -> None:
        self._agent_id, self._now = agent_id, now
        self._calls: dict[str, LinkCall] = {}
        """The open calls by the ids of their requests."""
        self._tasks: dict[str, LinkCall] = {}
        """The streams, by the names of their tasks."""
        self._sessions: OrderedDict[str, str] = OrderedDict()
        self._repeated, self._links = RepeatedFrames(), OpenLinks()
        self._replies: list[Frame] = []
        """The frames to send because of those that have arrived."""
        self._unclaimed: deque[tuple[str, Frame]] = deque()
        self._unclaimed_bytes = 0
        self._refusals = 0
        self.counts_hops = False
        """Whether the agent takes the number of hops with a message."""
        self._hops = 0
        self.was_copy = False
        """Whether the last frame was one that another link had brought."""
        self._silent = 0
        self._ignored = ""

    def using(self, ctx: Context) -> None:
        """Sets the hops of the next call."""
        self._hops = ctx.hops

    def link_opened(self, link: str) -> None:
        """Notes that the agent has opened a link, which is the `target` of its frames."""
        self._links.names.add(link)
        for call in self._calls.values():
            call.frames.link_opened(link)

    def link_closed(self, link: str) -> None:
        """Notes that a link of the agent was closed."""
        self._links.names.discard(link)
        for call in self._calls.values():
            call.frames.link_closed(link)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the request for a `Call`, or no frame if the link has no method for it. The
        `name` of the frame is its session, by which a link is chosen."""
        if not isinstance(signal, signals.Call):
            return ()
        op, id = signal.op, word(signal.id)
        if not id:
            self._silent += 1
            id = f"silent-{self._silent}"
        match op:
            case SendMessage():
                return (self._stream(signal, id, op),)
            case CancelTask(task_id=task_id):
                task = called(task_id)
                session = self._sessions.get(task, task)
                return (self._ask(signal, id, wire.CANCEL, task, session),)
            case Watch(task_id=task_id):
                task = called(task_id)
                session = self._sessions.get(task, task)
                frame = self._ask(signal, id, wire.RESUBSCRIBE, task, session)
                self._tasks[task] = self._calls[id]
                return (frame,)
            case Invoke(method=wire.CLEAR, params=params):
                named = params.get("sessionId") if isinstance(params, dict) else None
                if not isinstance(named, str) or not named:
                    return ()
                return (self._ask(signal, id, wire.CLEAR, id, named),)
            case _:
                return ()

    def _stream(self, call: signals.Call, id: str, op: SendMessage) -> Frame:
        message = op.message
        task = name_out(op)
        session = message.context_id or self._sessions.get(task) or task
        self.remember(task, session)
        about = {**(message.metadata or {}), **(op.metadata or {})}
        said = wire.Message(
            "user", tuple(map(part_out, message.parts)), "message", message.message_id
        )
        request = wire.Request(
            id,
            wire.STREAM,
            self._agent_id,
            session,
            task,
            wire.Params(task, session, said, _text(about, LOGIN, session)),
            _text(about, DEVICE, OUR_DEVICE),
            _text(about, CONVERSATION, session),
            self._hops if self.counts_hops else 0,
        )
        frame = _frame(request)
        found = self._open(call, id, op, task, session)
        if found is not None:
            self._tasks[task] = found
            found.request = frame
        return frame

    def remember(self, task: str, session: str) -> None:
        """Notes the session of a task, which requests about the task have to name."""
        self._sessions[task] = session
        self._sessions.move_to_end(task)
        if len(self._sessions) > MOST_TASKS:
            self._sessions.popitem(last=False)

    def _ask(self, call: signals.Call, id: str, method: str, task: str, session: str) -> Frame:
        params = wire.Params(task, session, EMPTY)
        self._open(call, id, call.op, task, session)
        return _frame(wire.Request(id, method, self._agent_id, session, task, params))

    def _open(
        self, call: signals.Call, id: str, op: object, task: str, session: str
    ) -> LinkCall | None:
        if call.silent:
            return None
        found = self._calls[id] = LinkCall(
            call.id,
            op,  # type: ignore[arg-type]  # one of those that `send` has matched
            call.stream,
            task,
            session,
            AnswerAssembly(task),
            TaskFrames(self._links, self._now),
            None if call.stream else Fold(task, session),
        )
        return found

    def abandon(self, id: Id) -> None:
        """Forgets a call whose answer nobody waits for any more."""
        self._close(word(id))

    def adopt(self, id: str, op: Watch, text: str) -> list[Frame]:
        """Follows a task of an earlier process, whose answer so far is this text, without asking
        the agent for it. Returns the frames of the task that have arrived already."""
        task = called(op.task_id)
        session = self._sessions.get(task, task)
        self._calls[id] = self._tasks[task] = LinkCall(
            id,
            op,
            True,
            task,
            session,
            AnswerAssembly(task, text),
            TaskFrames(self._links, self._now),
            None,
        )
        frames = [frame for name, frame in self._unclaimed if name == task]
        kept = [each for each in self._unclaimed if each[0] != task]
        self._unclaimed = deque(kept)
        self._unclaimed_bytes -= sum(len(each.body) for each in frames)
        return frames

    def inquire(self, sessions: Container[str]) -> list[Frame]:
        """Returns requests for the open answers of these sessions, since the link of a session was
        lost: maybe with a message, and maybe with a part of its answer. An agent that does not know
        the task gets its message again; an agent that does not know the method is left alone."""
        asked = []
        for task, found in self._tasks.items():
            if found.session in sessions:
                found.inquiries += 1
                id = f"{word(found.id)}{INQUIRY}{found.inquiries}"
                params = wire.Params(task, found.session, EMPTY)
                request = wire.Request(
                    id, wire.RESUBSCRIBE, self._agent_id, found.session, task, params
                )
                asked.append(_frame(request))
        return asked

    def repeated(self) -> Iterable[Frame]:
        """Returns the messages that the agent has not received, and the answers to its commands."""
        replies, self._replies = self._replies, []
        return replies

    def expects(self, frame: Frame) -> bool:
        """Returns True: every frame of an agent is for this side."""
        return True

    def notes(self) -> Iterable[Mapping[str, Json]]:
        """Returns why the last frame was ignored."""
        return ({"ignored": self._ignored},) if self._ignored else ()

    @property
    def settling(self) -> list[Id]:
        """Returns the calls whose task has been completed while its last piece is still awaited.
        Two seconds later, `settle` ends that wait."""
        return [each.id for each in self._calls.values() if each.assembly.settling]

    def settle(self, id: Id) -> Iterable[Signal]:
        """Returns the signals for the end of a task whose last piece did not arrive."""
        found = self._calls.get(word(id))
        return self._told(found, found.assembly.settle()) if found is not None else ()

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals of a frame. `frame.target` names the link that it came over. Frames
        without a use are ignored, so that one of them does not end a task."""
        self._ignored, self.was_copy = "", False
        try:
            envelope = wire.envelope_in(frame.body)
            if envelope.msg_type == wire.INIT:
                return (signals.Introduction(None, envelope.agent_id or ""),)
            if envelope.msg_type == wire.HEARTBEAT:
                return (signals.Ping(None),)
            if envelope.msg_type != wire.RESPONSE or envelope.msg_detail is None:
                self._ignored = "not a response"
                return ()
            response = wire.response_in(envelope.msg_detail)
            return self._response(envelope, response, frame)
        except DragomanError as error:
            self._ignored = error.message
            return ()

    def _response(
        self, envelope: EnvelopeIn, response: ResponseIn, frame: Frame
    ) -> Iterable[Signal]:
        result, failure = response.result, response.failure
        asked = self._calls.get(word(response.id))
        if asked is not None and not isinstance(asked.op, SendMessage | Watch):
            return (self._answer(asked, result, failure),)
        told = envelope.task_id, result.task_id if result is not None else None
        found = next((self._tasks[task] for task in told if task in self._tasks), None) or (
            asked or self._calls.get(word(response.id).rpartition(SEQUENCE)[0])
        )
        if found is None or not isinstance(found.op, SendMessage | Watch):
            self._ignored = "no such task"
            self._keep_unclaimed(next(filter(None, told), ""), frame)
            return ()
        key = (envelope.task_id, response.id, hash(envelope.msg_detail))
        repeated = self._repeated(frame.target, key)
        if found.frames.is_copy(frame.target, response, repeated=repeated):
            self._ignored, self.was_copy = "repeated", True
            return ()
        if failure is not None:
            error = error_in(failure)
            if word(response.id).startswith(f"{word(found.id)}{INQUIRY}"):
                if not isinstance(error, TaskNotFound):
                    self._ignored = "an inquiry was refused"
                    return ()
                if found.request is not None:
                    self._replies.append(found.request)
                    return ()
            if found.assembly.begun:
                return self._told(found, found.assembly.fail(error))
            self._close(_key_of(self._calls, found))
            return (signals.Fault(found.id, error),)
        if result is None:
            return ()
        found.request = None
        events = found.assembly.add(result, exact=exact(response.id))
        self._refuse_commands(found)
        return self._told(found, events)

    def _keep_unclaimed(self, task: str, frame: Frame) -> None:
        """Keeps a frame of a task that this process has not opened: the agent may be back sooner
        than the task is followed again."""
        if not task or task in self._sessions:
            return
        self._unclaimed.append((task, frame))
        self._unclaimed_bytes += len(frame.body)
        while (
            len(self._unclaimed) > MAX_UNCLAIMED_FRAMES
            or self._unclaimed_bytes > MAX_UNCLAIMED_BYTES
        ):
            self._unclaimed_bytes -= len(self._unclaimed.popleft()[1].body)

    def _refuse_commands(self, found: LinkCall) -> None:
        """Answers the commands for a phone, which would wait for one: there is none here."""
        commands, found.assembly.commands = found.assembly.commands, []
        if not commands:
            return
        self._refusals += 1
        message = wire.Message(
            "user", tuple(map(refusal_of, commands)), "message", f"refusal-{self._refusals}"
        )
        self._replies.append(
            _frame(
                wire.Request(
                    f"{word(found.id)}{REFUSAL}{self._refusals}",
                    wire.STREAM,
                    self._agent_id,
                    found.session,
                    found.task,
                    wire.Params(found.task, found.session, message, found.session),
                    OUR_DEVICE,
                    found.session,
                )
            )
        )

    def _answer(
        self, asked: LinkCall, result: wire.ResultIn | None, failure: wire.ErrorIn | None
    ) -> Signal:
        """Returns the answer to a cancel or a clear."""
        self._close(_key_of(self._calls, asked))
        if failure is not None:
            return signals.Fault(asked.id, error_in(failure))
        state = result.status.state if result is not None and result.status is not None else ""
        if isinstance(asked.op, Invoke):
            if state != CLEARED:
                error: DragomanError = PeerRefused(f"The context was not cleared: {state}")
                return signals.Fault(asked.id, error)
            return signals.Result(asked.id, {"status": {"state": CLEARED}})
        found = state_in(state)
        if found is State.UNKNOWN:
            return signals.Fault(asked.id, TaskNotFound(taskId=asked.task))
        if found is not State.CANCELED:
            return signals.Fault(asked.id, NotCancelable(taskId=asked.task))
        status = Status(State.CANCELED, self._now())
        task = Task(id=asked.task, context_id=asked.session, status=status)
        return signals.Result(asked.id, task)

    def _told(self, found: LinkCall, events: Iterable[AnyEvent]) -> list[Signal]:
        said: list[Signal] = []
        for event in events:
            found.events += 1
            entry = Stamped(found.task, found.session, found.events, self._now(), event)
            if found.fold is None:
                said.append(signals.Update(found.id, entry))
            else:
                found.fold.add(entry)
        if found.assembly.over:
            self._close(_key_of(self._calls, found))
            fold = found.fold
            said.append(
                signals.End(found.id) if fold is None else signals.Result(found.id, fold.task())
            )
        return said

    def _close(self, id: str) -> None:
        found = self._calls.pop(id, None)
        if found is not None and self._tasks.get(found.task) is found:
            del self._tasks[found.task]


def name_out(op: SendMessage) -> str:
    """Returns the name of a task on the link: its caller's name for it, or the id of its first
    message."""
    return called(op.message.task_id) or op.open_as or op.message.message_id


def _key_of(calls: Mapping[str, LinkCall], found: LinkCall) -> str:
    key = word(found.id)
    return key if calls.get(key) is found else ""


def _text(about: Mapping[str, Json], key: str, otherwise: str) -> str:
    value = about.get(key)
    return value if isinstance(value, str) and value else otherwise


def _frame(request: wire.Request) -> Frame:
    return Frame(encode(request), "", NOTHING, name=request.session_id)
