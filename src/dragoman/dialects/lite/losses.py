"""The declared losses of A2A-Lite: what of a signal does not survive a chat room.

A task is known by its requester's name for it, or else by the id of the first message, and every
send is a stream. Of the metadata of a request only the skill and the priority remain. Texts are
joined, the address of a file becomes text, and nothing has metadata. A result is one artifact,
which is told when the task ends; before that, only what the agent says, its progress and its
questions are told, without times. A task that waits for credentials waits for input, a question is
its words, and notes are not told. A direct reply is a finished task. There are no messages to get
or list tasks, and no webhooks.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core import events as ev
from dragoman.core.events import AnyEvent, Stamped
from dragoman.core.extensions import PROGRESS
from dragoman.core.model import AnyPart, Artifact, Blob, Message, Role, State, Text
from dragoman.core.operations import CancelTask, GetExtendedCard, SendMessage, Watch
from dragoman.core.questions import question_at
from dragoman.core.session import Call, Signal, Update
from dragoman.core.task_names import called

from .callee import PRIORITY, REASON, SKILL, call_id
from .caller import ANSWER, id_out, name_out
from .parts import parts_in, parts_out, posted
from .states import NAMES, state_in
from .telling import artifact_out, figures_in, figures_out, question_told
from .wire import LiteMessage, parse, render, value_out


def carried(signal: Signal) -> Signal:
    """Returns what remains of a signal."""
    match signal:
        case Call(op=SendMessage() as op):
            return Call(name_out(op), _send(op), stream=True)
        case Call(op=CancelTask(task_id=task_id, metadata=metadata)):
            task = id_out(called(task_id))
            said = (metadata or {}).get(REASON)
            reason = _body(said) if isinstance(said, str) and said else "Please stop."
            cancel = CancelTask(task_id=task, metadata={REASON: reason})
            return Call(call_id(cancel, task), cancel)
        case Call(op=Watch(task_id=task_id)):
            task = id_out(called(task_id))
            return Call(task, Watch(task_id=task), stream=True)
        case Call(op=GetExtendedCard()):
            return Call("", GetExtendedCard())
        case Update(entry=Message(parts=parts, task_id=task_id)):
            return replace(signal, entry=_entry(task_id, 0, _result(parts_out(parts))))
        case Update(entry=Stamped() as entry):
            return replace(signal, entry=_entry(entry.task_id, entry.seq, _event(entry)))
        case _:
            return signal


def _send(op: SendMessage) -> SendMessage:
    name = name_out(op)
    about = {**(op.metadata or {}), **(op.message.metadata or {})}
    words = {key: about.get(key) for key in (SKILL, PRIORITY)}
    metadata = {
        key: value_out(value) for key, value in words.items() if isinstance(value, str) and value
    }
    parts = _parts(parts_out(op.message.parts)) or (Text(""),)
    message = Message(message_id=name, role=Role.USER, parts=parts)
    kept = {key: value for key, value in metadata.items() if value}
    return SendMessage(message=message, open_as=name, metadata=kept or None)


def _entry(task_id: str, seq: int, event: AnyEvent) -> Stamped:
    return Stamped(id_out(called(task_id)), "", seq, 0, event)


def _event(entry: Stamped) -> AnyEvent:
    match entry.event:
        case ev.ArtifactChunk(artifact=artifact):
            text, files = artifact_out(artifact)
            return _result((text, files))
        case ev.Asked() | ev.StateChanged(state=State.INPUT_REQUIRED | State.AUTH_REQUIRED):
            question = question_at(entry)
            assert question is not None  # noqa: S101  both ask something
            told = question_told(question, State.INPUT_REQUIRED)
            return _state(State.INPUT_REQUIRED, _parts((told.text, told.files)))
        case ev.StateChanged(state=State.COMPLETED):
            return ev.StateChanged(state=State.COMPLETED)
        case ev.StateChanged(state=state, message=message, metadata=metadata):
            parts = _parts(parts_out(message.parts)) if message is not None else ()
            figures = figures_in(figures_out((metadata or {}).get(PROGRESS)))
            told_state = state_in(NAMES[state])
            return _state(told_state, parts, {PROGRESS: figures} if figures else None)
        case ev.Opened():
            return ev.StateChanged(state=State.SUBMITTED)
        case ev.Noted(state=state):
            return ev.StateChanged(state=state)
        case ev.Snapshot(task=task):
            return ev.StateChanged(state=state_in(NAMES[task.state]))


def _state(
    state: State, parts: tuple[AnyPart, ...], metadata: dict[str, object] | None = None
) -> ev.StateChanged:
    said = Message(message_id="", role=Role.AGENT, parts=parts) if parts else None
    return ev.StateChanged(state=state, message=said, metadata=metadata)


def _result(told: tuple[str, tuple[Blob, ...]]) -> ev.ArtifactChunk:
    return ev.ArtifactChunk(artifact=Artifact(artifact_id=ANSWER, parts=_parts(told)))


def _parts(told: tuple[str, tuple[Blob, ...]]) -> tuple[AnyPart, ...]:
    body, files = told
    return parts_in(_body(body), posted(files))


def _body(text: str) -> str:
    read = parse(render(LiteMessage("task", {}, text)))
    return read.body if read is not None else ""
