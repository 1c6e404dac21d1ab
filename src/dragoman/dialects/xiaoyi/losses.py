"""The declared losses of the XiaoYi link: what of a signal does not survive it.

Ids are strings, every send is a stream that its caller waits for, and the id of a task is its
caller's name for it, or else the id of the first message. Of the metadata of a request only the
device, the conversation and the login remain, which the server fills in; parts have none but the
`fileId` of a file, and data is an object. Events lose their times and metadata. All text is one
artifact without a name, under an id of the link; so is the message of a completed task. A rejected
task becomes a failed one, a task that waits for credentials waits for input, and of the notes only
thoughts are sent. A direct reply is a finished task. There is no method to get, list or follow
tasks, and no webhook.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from dragoman.core import events as ev
from dragoman.core.events import AnyEvent, Note, Stamped
from dragoman.core.model import AnyPart, Artifact, Message, Role, State, Text
from dragoman.core.operations import CancelTask, SendMessage
from dragoman.core.session import Call, Signal, Update
from dragoman.core.task_names import called

from . import wire
from .callee import CONVERSATION, DEVICE, LOGIN
from .caller import OUR_DEVICE, name_out
from .events import ANSWER
from .parts import part_in, part_out
from .states import NAMES, state_in
from .wire import encode, word

_read = msgspec.json.Decoder(wire.PartIn).decode


def carried(signal: Signal) -> Signal:
    """Returns what remains of a signal."""
    match signal:
        case Call(id=id, op=SendMessage() as op):
            return Call(word(id), _send(op), stream=True)
        case Call(id=id, op=CancelTask(task_id=task_id)):
            return Call(word(id), CancelTask(task_id=called(task_id)))
        case Call(id=id):
            return replace(signal, id=word(id), silent=False)
        case Update(entry=Message(task_id=task_id)):
            done = ev.StateChanged(state=State.COMPLETED)
            return replace(signal, entry=Stamped(called(task_id), "", 0, 0, done))
        case Update(entry=Stamped() as entry):
            told = Stamped(called(entry.task_id), "", entry.seq, 0, _event(entry.event))
            return replace(signal, entry=told)
        case _:
            return signal


def _send(op: SendMessage) -> SendMessage:
    message, name = op.message, name_out(op)
    session = message.context_id or name
    about = {**(message.metadata or {}), **(op.metadata or {})}
    filled = {DEVICE: OUR_DEVICE, CONVERSATION: session, LOGIN: session}
    given = {key: about[key] for key in filled if isinstance(about.get(key), str) and about[key]}
    return SendMessage(
        message=Message(
            message_id=message.message_id,
            role=Role.USER,
            parts=_parts(message.parts),
            context_id=session,
        ),
        open_as=name,
        metadata=filled | given,
    )


def _event(event: AnyEvent) -> AnyEvent:
    match event:
        case ev.ArtifactChunk(artifact=artifact, append=append):
            text = any(isinstance(part, Text) for part in artifact.parts)
            name = ANSWER if text else artifact.artifact_id
            made = Artifact(artifact_id=name, parts=_parts(artifact.parts))
            return ev.ArtifactChunk(artifact=made, append=append)
        case ev.StateChanged(state=State.COMPLETED):
            return ev.StateChanged(state=State.COMPLETED)
        case ev.StateChanged(state=state, message=message) | ev.Asked(state=state, message=message):
            return ev.StateChanged(state=state_in(NAMES[state]), message=_message(message))
        case ev.Noted(kind=Note.THOUGHT):
            return event
        case ev.Noted(state=state):
            return ev.StateChanged(state=state)
        case ev.Opened():
            return ev.StateChanged(state=State.SUBMITTED)
        case ev.Snapshot(task=task):
            return ev.StateChanged(state=state_in(NAMES[task.state]))


def _message(message: Message | None) -> Message | None:
    if message is None or not message.parts:
        return None
    return Message(message_id="", role=Role.AGENT, parts=_parts(message.parts))


def _parts(parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    found = (part_in(_read(encode(part_out(part)))) for part in parts)
    return tuple(part for part in found if part is not None)
