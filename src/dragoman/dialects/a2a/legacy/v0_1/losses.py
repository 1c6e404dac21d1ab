"""The declared losses of A2A 0.1 and of the community a2a-go: what of a signal does not survive
them.

Messages have no ids, no references and no extensions, and belong to the task that they were sent
to. The id of a task is its caller's name for it, or else the id of the first message. A send always
waits, and without a number no history is sent. A rejected task becomes a failed one; a task that
waits for credentials waits for input. Events name their task but not its context, and no event
contains the task; only its state is sent. Artifacts are numbered, a direct reply is a finished
task, and a task has one webhook.

a2a-go begins the stream of a send with the task, has names for fewer states but sends the others in
metadata, and never sends the history. A webhook does not name its task.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core import events as ev
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped
from dragoman.core.model import AnyPart, Artifact, Data, Hook, Message, State, Status, Task, Text
from dragoman.core.operations import GetHook, GetTask, Invoke, SendMessage, SetHook
from dragoman.core.session import Call, Fault, Result, Signal, Update
from dragoman.core.task_names import called

from ... import errors
from ...members import Bag
from ...version import Version
from .calls import name_out, reply_task, task_of
from .convert import ID, Flavour, add_hint, part_in, part_out


class Losses(Struct, frozen=True):
    """The losses of one version, in one variant."""

    version: Version
    flavour: Flavour
    begins_with_task: bool = False
    names_hooks: bool = True

    def carried(self, signal: Signal) -> Signal:
        """Returns what remains of a signal."""
        match signal:
            case Call(op=SendMessage() as op):
                return replace(signal, op=self._send(op))
            case Call(op=GetTask(task_id=task_id, history_length=length)):
                return replace(signal, op=GetTask(task_id=task_id, history_length=length or 0))
            case Call(op=SetHook(hook=hook)):
                return replace(signal, op=SetHook(hook=_hook(hook, hook.task_id)))
            case Call(op=GetHook(task_id=task_id)):
                return replace(signal, op=GetHook(task_id=task_id))
            case Call(op=Invoke(method=method, params=None)):
                return replace(signal, op=Invoke(method=method, params={}))
            case Result(value=Hook() as hook):
                name = called(hook.task_id) if self.names_hooks else ""
                return replace(signal, value=_hook(hook, name))
            case Result(value=Task() as task):
                return replace(signal, value=self._task(task))
            case Result(value=Message() as message):
                return replace(signal, value=self._task(reply_task(message)))
            case Update(entry=entry):
                return replace(signal, entry=self._entry(entry))
            case Fault(error=error):
                return replace(signal, error=self._error(error))
            case _:
                return signal

    def _send(self, op: SendMessage) -> SendMessage:
        name, message = name_out(op), self._message(op.message)
        hook = replace(_hook(op.hook, name), task_id="") if op.hook is not None else None
        return SendMessage(
            message=replace(message, context_id=op.message.context_id),
            history_length=op.history_length or 0,
            accepts=op.accepts,
            hook=hook,
            metadata=op.metadata,
            open_as=name,
        )

    def _entry(self, entry: Stamped | Message) -> Stamped:
        beginning = task_of(entry) if self.begins_with_task else None
        seq = entry.seq if isinstance(entry, Stamped) else 0
        if beginning is not None:
            task = self._task(beginning)
            return Stamped(task.id, task.context_id, seq, task.status.at, ev.Snapshot(task=task))
        if not isinstance(entry, Stamped):
            task = reply_task(entry)
            return self._state_entry(task.id, 0, 0, task.status)
        place = entry.task_id, seq, entry.at
        match entry.event:
            case ev.ArtifactChunk() as event:
                # The first that is told in a stream; those behind it count on.
                artifact = self._artifact(event.artifact, 0)
                return Stamped(called(entry.task_id), "", seq, 0, replace(event, artifact=artifact))
            case ev.StateChanged(state=state, message=message, metadata=metadata):
                found = self._state_entry(*place, Status(state, entry.at, message))
                bag = self._metadata(metadata, state)
                return replace(found, event=replace(found.event, metadata=bag))
            case ev.Asked(state=state, message=message):
                return self._state_entry(*place, Status(state, entry.at, message))
            case ev.Noted(state=state):
                return self._state_entry(*place, Status(state, entry.at))
            case ev.Opened():
                return self._state_entry(*place, Status(State.SUBMITTED, entry.at))
            case ev.Snapshot(task=task):
                return self._state_entry(task.id, seq, task.status.at, task.status)

    def _state_entry(self, task_id: str, seq: int, at: int, status: Status) -> Stamped:
        found = self._status(status)
        event = ev.StateChanged(state=found.state, message=found.message)
        return Stamped(called(task_id), "", seq, at, event)

    def _status(self, status: Status) -> Status:
        state = status.state if self.flavour.hint else _SAME.get(status.state, status.state)
        message = self._message(status.message) if status.message is not None else None
        return Status(state, status.at, message)

    def _task(self, task: Task) -> Task:
        return Task(
            id=called(task.id),
            context_id=task.context_id,
            status=self._status(task.status),
            artifacts=tuple(self._artifact(made, i) for i, made in enumerate(task.artifacts)),
            history=tuple(map(self._message, task.history)) if self.flavour.history else (),
            metadata=self._metadata(task.metadata, task.state),
        )

    def _metadata(self, metadata: Bag, state: State) -> Bag:
        """Returns the metadata; if the state was sent in it, empty metadata becomes None."""
        return metadata if add_hint(metadata, state, self.flavour) is metadata else metadata or None

    def _message(self, message: Message) -> Message:
        parts = tuple(map(self._part, message.parts))
        return Message(message_id="", role=message.role, parts=parts, metadata=message.metadata)

    def _artifact(self, artifact: Artifact, place: int) -> Artifact:
        parts = tuple(map(self._part, artifact.parts))
        return replace(artifact, artifact_id=f"{ID}{place}", parts=parts, extensions=())

    def _part(self, part: AnyPart) -> AnyPart:
        """Returns the part with the values that are sent in its metadata (`_part_0_3`)."""
        return part_in(part_out(part, self.flavour)) if isinstance(part, Text | Data) else part

    def _error(self, error: DragomanError) -> DragomanError:
        version = self.version
        spelling = errors.spelling_of(error, version.spellings)
        message = errors.message_out(error, spelling)
        return errors.error_in(spelling.code, message, version.details(error), version.meanings)


_SAME = {State.REJECTED: State.FAILED, State.AUTH_REQUIRED: State.INPUT_REQUIRED}


def _hook(hook: Hook, name: str) -> Hook:
    return replace(hook, hook_id=name, task_id=name, dialect="")
