"""A task in memory: as it goes on, or frozen to bytes in a struct the garbage collector does not
follow."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.lifecycle import Fold, added_up
from dragoman.core.model import Task

from ..codec import pack, unpack_log, unpack_piece, unpack_task
from ..task_row import Row
from ..writes import Input, Record

Key = tuple[str, str, str, str]
"""Agent, tenant, principal, and the idempotency key the caller chose."""


class LiveTask(Struct):
    """A task that is not finished. Most never need more than the first three fields."""

    row: Row
    log: list[bytes]
    key: Key | None
    inputs: list[Input] | None = None
    records: dict[str, Record] | None = None
    fold: Fold | None = None
    folded: int = 0
    keys: list[Key] = []
    """Of what was said to it later."""

    def task(self) -> Task:
        """The task as it stands; only what came since the last look is added up."""
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
    """Its pieces; of a brief task the only one."""
    task: bytes = b""
    """A brief one is what its log adds up to."""
    whole: bool = True
    """Until its log is dropped."""
    keys: tuple[Key, ...] = ()
    """Of what was said to it after it was opened."""

    @property
    def pieces(self) -> list[bytes]:
        """Its log, if that is still here."""
        if not self.log:
            return []
        return unpack_log(self.log) if self.task else [self.log]

    def thaw(self) -> Task:
        """The task itself."""
        return unpack_task(self.task) if self.task else added_up(unpack_piece(self.log))

    def drop_log(self) -> None:
        """Keeps only what the task came to."""
        self.task = self.task or pack(self.thaw())
        self.log, self.whole = b"", False
