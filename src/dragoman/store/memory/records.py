"""A task in memory: live, or frozen to bytes in a struct that the garbage collector does not
follow."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.lifecycle import Fold, added_up
from dragoman.core.model import Task

from ..codec import pack, unpack_log, unpack_piece, unpack_task
from ..task_row import Row
from ..writes import Input, Record

Key = tuple[str, str, str, str]
"""Agent, tenant, principal, and the idempotency key that the caller chose."""


class LiveTask(Struct):
    """A task that is not finished. Most tasks never need more than the first three fields."""

    row: Row
    log: list[bytes]
    key: Key | None
    inputs: list[Input] | None = None
    records: dict[str, Record] | None = None
    fold: Fold | None = None
    folded: int = 0
    keys: list[Key] = []
    """The keys of later messages."""

    def task(self) -> Task:
        """Returns the task as it stands. Only the events since the last call are added up."""
        fold = self.fold
        if fold is None:
            fold = self.fold = Fold(self.row.task_id, self.row.context_id)
        for piece in self.log[self.folded :]:
            for entry in unpack_piece(piece):
                fold.add(entry)
        self.folded = len(self.log)
        return fold.task()


class FrozenTask(Struct, gc=False):
    """A finished task."""

    row: Row
    key: Key | None
    log: bytes
    """The encoded list of its pieces, or the only piece of a brief task."""
    task: bytes = b""
    """The task itself. It is empty for a brief task, which is what its log adds up to."""
    whole: bool = True
    """Whether it still has its log."""
    keys: tuple[Key, ...] = ()
    """The keys of later messages."""

    @property
    def pieces(self) -> list[bytes]:
        """The pieces of its log, if they are in memory."""
        if not self.log:
            return []
        return unpack_log(self.log) if self.task else [self.log]

    def thaw(self) -> Task:
        """Decodes the task."""
        return unpack_task(self.task) if self.task else added_up(unpack_piece(self.log))

    def drop_log(self) -> None:
        """Drops the log and keeps the task."""
        self.task = self.task or pack(self.thaw())
        self.log, self.whole = b"", False
