"""The event that a webhook delivered."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.events import Asked, Snapshot, Stamped, StateChanged
from dragoman.core.model import Message, State, Task


class Notice(Struct, frozen=True, kw_only=True):
    """An event from a verified sender."""

    entry: Stamped | Message
    """The event. Senders of 0.3 and before send the whole task, which is a `Snapshot`."""
    id: str = ""
    """The id of the delivery, the same in every attempt; empty if the sender gives none."""
    signed: bool = False
    """Whether the body was signed, or the sender only knew the token."""

    @property
    def task_id(self) -> str:
        """Returns the id of the task, or an empty text for a message without one."""
        return self.entry.task_id

    @property
    def task(self) -> Task | None:
        """Returns the whole task, if the sender sent it."""
        event = self.entry.event if isinstance(self.entry, Stamped) else None
        return event.task if isinstance(event, Snapshot) else None

    @property
    def state(self) -> State | None:
        """Returns the new state of the task, if the event has one."""
        event = self.entry.event if isinstance(self.entry, Stamped) else None
        if isinstance(event, Snapshot):
            return event.task.state
        return event.state if isinstance(event, StateChanged | Asked) else None
