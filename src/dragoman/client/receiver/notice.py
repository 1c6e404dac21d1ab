"""What a webhook was told."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.events import Asked, Snapshot, Stamped, StateChanged
from dragoman.core.model import Message, State, Task


class Notice(Struct, frozen=True, kw_only=True):
    """One call that proved where it comes from."""

    entry: Stamped | Message
    """What happened. Senders of 0.3 and before tell the whole task: that is a `Snapshot`."""
    id: str = ""
    """The name of the delivery, the same in every attempt; empty if the sender gives none."""
    signed: bool = False
    """Whether the body is proved too, or only that the caller knows the token."""

    @property
    def task_id(self) -> str:
        """The task it is about; empty for a message without one."""
        return self.entry.task_id

    @property
    def task(self) -> Task | None:
        """The whole task, if that is what was told."""
        event = self.entry.event if isinstance(self.entry, Stamped) else None
        return event.task if isinstance(event, Snapshot) else None

    @property
    def state(self) -> State | None:
        """The task's new state, if this tells one."""
        event = self.entry.event if isinstance(self.entry, Stamped) else None
        if isinstance(event, Snapshot):
            return event.task.state
        return event.state if isinstance(event, StateChanged | Asked) else None
