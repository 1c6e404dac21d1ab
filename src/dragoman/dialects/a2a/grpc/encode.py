"""Encodes tasks and events as protobuf. The two packages differ only in a few names of fields.

The canonical model is converted to protobuf directly: by way of ProtoJSON and the wire structs, a
send would cost 150 us more.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from dragoman.core import events as ev
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import ENDS_STREAM
from dragoman.core.model import AnyPart, Artifact, Json, Message, Role, State, Task
from dragoman.core.operations import TaskPage

from .. import extensions
from ..proto import Fields, Proto, bag_in, needed, spend, stamp_out
from ..scalars import Wrong, check_links, convert_each
from ..v1_0.convert import STATES_OUT

STATES = tuple(STATES_OUT)
"""The states by their number, which is the same in both versions; the table is in that order."""
NUMBERS = {state: number for number, state in enumerate(STATES)}
ROLES_IN = {1: Role.USER, 2: Role.AGENT}
ROLES_OUT = {role: number for number, role in ROLES_IN.items()}
# In Python 3.11, accessing a member of an enum costs ten times as much as a global variable.
_AGENT, _SUBMITTED = Role.AGENT, State.SUBMITTED

Event = tuple[str, Fields]
"""The member of a stream's message, and its content."""


class GrpcEncoder(Struct, frozen=True, kw_only=True):
    """The spelling of tasks and events in one version."""

    part_in: Callable[[Proto], AnyPart]
    part_out: Callable[[AnyPart], Fields]
    link: str
    """The field of a part that holds the address of a link."""
    parts: str = "parts"
    """The field of a message that holds its parts."""
    status_message: str = "message"
    """The field of a status that holds the agent's message."""
    message: str = "message"
    """The field of an answer that holds a direct reply."""
    final: bool = False
    """Whether an update says that it is the last one."""

    def request_in(self, request: Proto, field: str) -> Message:
        """Reads the message of a send, and checks that it has all required fields."""
        if not request.HasField(field):
            raise Wrong("Object missing required field `message`")
        message = getattr(request, field)
        if message.role not in ROLES_IN:
            raise Wrong("Expected `ROLE_USER` or `ROLE_AGENT`", ".message.role")
        needed(message.message_id, "a message id", ".message.messageId")
        if not getattr(message, self.parts):
            raise Wrong("Expected at least one part", f".message.{self.parts}")
        try:
            found = self.message_in(message)
            check_links(found.parts, f".{self.parts}", self.link)
            return found
        except Wrong as wrong:
            raise wrong.under(".message") from None

    def message_in(self, message: Proto) -> Message:
        """Returns a message."""
        parts = getattr(message, self.parts)
        spend(len(parts))
        return Message(
            message_id=message.message_id,
            role=ROLES_IN.get(message.role, _AGENT),
            parts=tuple(convert_each(self.part_in, parts, f".{self.parts}")),
            context_id=message.context_id,
            task_id=message.task_id,
            metadata=bag_in(message),
            extensions=tuple(message.extensions),
            references=tuple(message.reference_task_ids),
        )

    def message_out(self, message: Message) -> Fields:
        """Returns a message."""
        return {
            "message_id": message.message_id,
            "role": ROLES_OUT[message.role],
            self.parts: list(map(self.part_out, message.parts)),
            "context_id": message.context_id,
            "task_id": message.task_id,
            "metadata": message.metadata,
            "extensions": message.extensions,
            "reference_task_ids": message.references,
        }

    def artifact_out(self, artifact: Artifact) -> Fields:
        """Returns an artifact, or a piece of one."""
        return {
            "artifact_id": artifact.artifact_id,
            "parts": list(map(self.part_out, artifact.parts)),
            "name": artifact.name,
            "description": artifact.description,
            "metadata": artifact.metadata,
            "extensions": artifact.extensions,
        }

    def status_out(self, state: State, at: int, message: Message | None) -> Fields:
        """Returns a status."""
        return {
            "state": NUMBERS[state],
            "timestamp": stamp_out(at),
            self.status_message: self.message_out(message) if message is not None else None,
        }

    def task_out(self, task: Task) -> Fields:
        """Returns a task."""
        status = task.status
        return {
            "id": task.id,
            "context_id": task.context_id,
            "status": self.status_out(status.state, status.at, status.message),
            "artifacts": list(map(self.artifact_out, task.artifacts)),
            "history": list(map(self.message_out, task.history)),
            "metadata": task.metadata,
        }

    def sent_out(self, value: Task | Message) -> Fields:
        """Returns the answer to a send."""
        if isinstance(value, Task):
            return {"task": self.task_out(value)}
        return {self.message: self.message_out(value)}

    def page_out(self, page: TaskPage) -> Fields:
        """Returns a page of tasks, without its size, which 0.3 does not have."""
        return {
            "tasks": list(map(self.task_out, page.tasks)),
            "next_page_token": page.next_token,
            "total_size": page.total,
        }

    # What happens

    def event_out(self, entry: Stamped, *, notes: bool) -> Event:
        """Writes one event."""
        return _EVENTS_OUT[type(entry.event)](self, entry, entry.event, notes)

    def _opened_out(self, entry: Stamped, event: ev.Opened, notes: bool) -> Event:
        return "task", {
            "id": entry.task_id,
            "context_id": entry.context_id,
            "status": self.status_out(_SUBMITTED, entry.at, None),
            "history": [self.message_out(event.message)],
            "metadata": event.metadata,
        }

    def _snapshot_out(self, entry: Stamped, event: ev.Snapshot, notes: bool) -> Event:
        return "task", self.task_out(event.task)

    def _state_out(self, entry: Stamped, event: ev.StateChanged, notes: bool) -> Event:
        return self._update_out(entry, event.state, event.message, event.metadata)

    def _asked_out(self, entry: Stamped, event: ev.Asked, notes: bool) -> Event:
        return self._update_out(entry, event.state, event.message, None)

    def _noted_out(self, entry: Stamped, event: ev.Noted, notes: bool) -> Event:
        # Execution is opaque: without the extension, a caller sees only the state (DESIGN §3).
        note = extensions.note_out(event) if notes else None
        return self._update_out(entry, event.state, None, note)

    def _update_out(
        self, entry: Stamped, state: State, message: Message | None, bag: Json
    ) -> Event:
        update = {
            "task_id": entry.task_id,
            "context_id": entry.context_id,
            "status": self.status_out(state, entry.at, message),
            "metadata": bag,
        }
        if self.final:
            update["final"] = state in ENDS_STREAM
        return "status_update", update

    def _chunk_out(self, entry: Stamped, event: ev.ArtifactChunk, notes: bool) -> Event:
        return "artifact_update", {
            "task_id": entry.task_id,
            "context_id": entry.context_id,
            "artifact": self.artifact_out(event.artifact),
            "append": event.append,
            "last_chunk": event.last,
            "metadata": event.metadata,
        }


_EVENTS_OUT: dict[type[ev.AnyEvent], Callable[..., Event]] = {
    ev.Opened: GrpcEncoder._opened_out,
    ev.Snapshot: GrpcEncoder._snapshot_out,
    ev.StateChanged: GrpcEncoder._state_out,
    ev.Asked: GrpcEncoder._asked_out,
    ev.Noted: GrpcEncoder._noted_out,
    ev.ArtifactChunk: GrpcEncoder._chunk_out,
}


def nothing_out(value: Json) -> Fields:
    """Returns an answer without content."""
    return {}
