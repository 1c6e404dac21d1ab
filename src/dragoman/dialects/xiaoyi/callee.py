"""The agent's side of the link: it receives the requests of a server and sends the responses of the
agent.

One session is one link. The agent dials, so it sends an `Introduction` and `Ping`s itself: `init`
and the heartbeat, which have no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dragoman.core import session as signals
from dragoman.core.errors import BadParams, DragomanError, TaskNotFound, UnknownMethod
from dragoman.core.model import Json, Message, Role, State, Task
from dragoman.core.operations import CancelTask, Invoke, SendMessage, Watch
from dragoman.core.session import Frame, Id, Session, Signal
from dragoman.core.task_names import LONGEST, fit

from ..jsonrpc import ResultOut
from . import wire
from .errors import error_out
from .events import SEQUENCE, LinkEventEncoder
from .parts import parts_in
from .states import CLEARED, NAMES
from .wire import RequestIn, encode, word

NOTHING: Mapping[str, str] = {}
DEVICE, CONVERSATION, LOGIN = "deviceId", "conversationId", "agentLoginSessionId"
"""The keys of a task's metadata that identify the user's device, the conversation on the phone, and
the login."""
NO_REQUEST = RequestIn()


class LinkRequest(Struct):
    """A request that has not been answered yet."""

    request: RequestIn
    encoder: LinkEventEncoder
    op: object = None
    events: int = 0


class LinkFailure(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    """An error response."""

    id: Id
    error: wire.Error


class XiaoYiCallee(Session):
    """The agent's side of one link."""

    def __init__(self, agent_id: str = "") -> None:
        """Requests for an agent other than `agent_id` are ignored; an empty id accepts all."""
        self._agent_id = agent_id
        self._requests: dict[str, LinkRequest] = {}
        self._last = NO_REQUEST
        self._ignored = ""

    @property
    def dialect(self) -> str:
        """The name of the dialect."""
        return "xiaoyi"

    @property
    def heard(self) -> RequestIn:
        """The latest request."""
        return self._last

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns a `Call` or a `Fault`, or nothing for a frame that is ignored."""
        self._last, self._ignored = NO_REQUEST, ""
        try:
            request = wire.request_in(frame.body)
        except DragomanError as error:
            return (signals.Fault(wire.id_in(frame.body), error),)
        if self._agent_id and request.agent_id and request.agent_id != self._agent_id:
            self._ignored = "another agent"
            return ()
        if request.msg_type is not None and not request.name:
            self._ignored = request.msg_type  # such as the heartbeat of a server
            return ()
        self._last = request
        try:
            op = _operation_in(request)
        except DragomanError as error:
            self._requests[word(request.id)] = LinkRequest(request, LinkEventEncoder())
            return (signals.Fault(request.id, error),)
        self._requests[word(request.id)] = LinkRequest(request, LinkEventEncoder(), op)
        return (signals.Call(request.id, op, stream=isinstance(op, SendMessage | Watch)),)

    def resume(self, id: Id, session: str, task: str) -> None:
        """Continues to answer a request that another link, or another process, has received."""
        request = RequestIn(id=id, agent_id=self._agent_id, session_id=session, task_id=task)
        self._requests[word(id)] = LinkRequest(request, LinkEventEncoder(task))

    def notes(self) -> Iterable[Mapping[str, Json]]:
        """Returns why the last frame was ignored."""
        return ({"ignored": self._ignored},) if self._ignored else ()

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the frames that express a signal. One event may need several."""
        match signal:
            case signals.Update(id=id, entry=entry):
                found = self._find(id)
                found.events += 1
                return self._results(found, id, found.encoder.event_out(entry))
            case signals.Result(id=id, value=value):
                return self._answer(id, value)
            case signals.Fault(id=id, error=error):
                return self._failure(id, error)
            case signals.End(id=id):
                self._requests.pop(word(id), None)
                return ()
            case signals.Introduction(who=who):
                return (_frame(wire.Envelope(wire.INIT, who)),)
            case signals.Ping():
                return (_frame(wire.Envelope(wire.HEARTBEAT, self._agent_id)),)
            case _:
                return ()

    def _find(self, id: Id) -> LinkRequest:
        return self._requests.get(word(id)) or LinkRequest(self._last, LinkEventEncoder())

    def _results(self, found: LinkRequest, id: Id, results: Iterable[object]) -> list[Frame]:
        inner = f"{word(id)}{SEQUENCE}{found.events}"
        return [
            self._response(found, ResultOut(inner, result), result.task_id)  # type: ignore[attr-defined]
            for result in results
        ]

    def _answer(self, id: Id, value: object) -> Iterable[Frame]:
        found = self._find(id)
        self._requests.pop(word(id), None)
        if isinstance(found.op, CancelTask):
            state = value.state if isinstance(value, Task) else State.CANCELED
            return (self._state(found, id, NAMES[state]),)
        if isinstance(found.op, Invoke):
            return (self._state(found, id, CLEARED),)
        if isinstance(value, Task):
            return self._results(found, id, found.encoder.task_out(value))
        if isinstance(value, Message):
            return self._results(found, id, found.encoder.event_out(value))
        return ()

    def _failure(self, id: Id, error: DragomanError) -> Iterable[Frame]:
        found = self._find(id)
        self._requests.pop(word(id), None)
        if isinstance(found.op, CancelTask | Invoke):
            # The answers to these two methods have states of their own for a failure.
            state = State.UNKNOWN if isinstance(error, TaskNotFound) else State.FAILED
            return (self._state(found, id, NAMES[state]),)
        return (self._response(found, LinkFailure(id, error_out(error)), found.request.task),)

    def _state(self, found: LinkRequest, id: Id, state: str) -> Frame:
        """Returns the answer to a request that is answered with a single state."""
        cancels = isinstance(found.op, CancelTask)
        task = found.request.task if cancels else ""
        answer = wire.Answer(wire.Status(state), task)
        return self._response(found, ResultOut(id, answer), task or word(id))

    def _response(self, found: LinkRequest, response: ResultOut | LinkFailure, task: str) -> Frame:
        detail = encode(response).decode()
        agent = self._agent_id or found.request.agent_id or ""
        session = found.request.session
        return _frame(wire.Envelope(wire.RESPONSE, agent, session, task, detail))


def _operation_in(request: RequestIn) -> SendMessage | Watch | CancelTask | Invoke:
    """Returns the operation of a request. Raises `BadParams` or `UnknownMethod`."""
    session, name = request.session, request.name
    if name not in (wire.STREAM, wire.CANCEL, wire.CLEAR, wire.RESUBSCRIBE):
        raise UnknownMethod(f"There is no method {name[:80]!r}")
    if not session:
        raise BadParams("Expected a sessionId", field="params.sessionId")
    if name == wire.CLEAR:
        return Invoke(method=wire.CLEAR, params={"sessionId": session})
    if not fit(request.task):
        raise BadParams(f"Expected at most {LONGEST} printable characters", field="params.id")
    if name == wire.CANCEL:
        return CancelTask(task_id=request.task)
    if name == wire.RESUBSCRIBE:
        return Watch(task_id=request.task)
    params = request.params or wire.ParamsIn()
    said = params.message or wire.MessageIn()
    message = Message(
        message_id=said.message_id or word(request.id),
        role=Role.USER,
        parts=parts_in(said.parts),
        context_id=session,
    )
    if not message.parts:
        raise BadParams("Expected at least one part", field="params.message.parts")
    about = {
        DEVICE: request.device_id,
        CONVERSATION: request.conversation_id,
        LOGIN: params.agent_login_session_id,
    }
    metadata: dict[str, Json] = {key: value for key, value in about.items() if value}
    return SendMessage(message=message, open_as=request.task, metadata=metadata or None)


def _frame(envelope: wire.Envelope) -> Frame:
    return Frame(encode(envelope), "", NOTHING)
