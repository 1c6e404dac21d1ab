"""Whole tasks and whole collections, in a form that every store can export and import.

Theory. Two stores hold the same if their tasks have the same *versions*. The version of a task is
made of what changes whenever the task changes, so two stores are compared without reading their
logs: whatever has the same version is there already. A copy that was interrupted, and one whose
source goes on changing, are therefore continued in the same way: what differs is copied again.

A claim is never exported. At the copy, a task that a worker holds is one that waits for a worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.lifecycle import added_up
from dragoman.core.model import Message, Role

from ..codec import BRIEF, pack, unpack_input, unpack_piece
from ..link_keys import LinkKey, LinkKeyStore
from ..link_status import LinkStatus, LinkStatusStore
from ..outbox import HookCursor
from ..registry import RegistryEntry, RegistryStore
from ..sessions import SessionStore, TokenSession, UsedKey
from ..task_row import Idempotency, Row
from ..writes import Input, Record


class StoredTask(Struct, frozen=True, kw_only=True):
    """A task with everything that belongs to it."""

    row: Row
    """Its row, without a claim."""
    pieces: tuple[bytes, ...] = ()
    """Its log. Each piece holds the events of one write."""
    task: bytes = b""
    """The finished task, unless it is brief: then it is what its log adds up to."""
    dropped: bool = False
    """Whether its log was dropped, and with it the inputs and the records."""
    keys: tuple[Idempotency, ...] = ()
    """The idempotency keys of the message that opened it and of later ones."""
    inputs: tuple[bytes, ...] = ()
    """The messages to the existing task, in order."""
    records: tuple[Record, ...] = ()
    hooks: tuple[HookCursor, ...] = ()
    """Its webhooks, oldest first, none of them being called."""

    @property
    def frozen(self) -> bytes:
        """The finished task, also if it is brief."""
        if self.task or not self.row.final:
            return self.task
        return pack(added_up(unpack_piece(self.pieces[0])))

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        parts = (*self.pieces, *self.inputs, *(record.value for record in self.records))
        return len(self.task) + sum(map(len, parts))

    def count(self) -> dict[str, int]:
        """Returns what it adds to the counts of a store."""
        found = (
            1,
            0 if self.dropped else self.row.last_seq,
            len(self.pieces),
            len(self.inputs),
            len(self.records),
            len(self.keys),
            len(self.hooks),
            sum(len(cursor.letters) for cursor in self.hooks),
        )
        return dict(zip(COUNTED, found, strict=True))

    def split_keys(self) -> tuple[Idempotency | None, list[Idempotency]]:
        """Returns the key of the message that opened the task, and those of later messages of which
        only the key was kept."""
        said = {each.key for each in map(unpack_input, self.inputs)}
        rest = [key for key in self.keys if key not in said]
        return (rest[0] if rest else None), rest[1:]


class TaskVersion(NamedTuple):
    """A task and what tells whether it has changed."""

    task_id: str
    version: tuple[object, ...]


class Collections(Struct, frozen=True, kw_only=True):
    """Everything in a store that is not a task."""

    sessions: Sequence[TokenSession] = ()
    """By revision, including those that were revoked."""
    used_keys: Sequence[UsedKey] = ()
    agents: Sequence[RegistryEntry] = ()
    """By revision, including those that were removed."""
    link_keys: Sequence[LinkKey] = ()
    link_status: Sequence[LinkStatus] = ()

    def count(self) -> dict[str, int]:
        """Returns how many there are of each kind."""
        return {
            "sessions": len(self.sessions),
            "used signatures": len(self.used_keys),
            "agents": len(self.agents),
            "link keys": len(self.link_keys),
            "link reports": len(self.link_status),
        }


class CopyMark(Struct, frozen=True, kw_only=True):
    """Says that a store is a copy. Times are milliseconds since the epoch."""

    source: str
    """Where it was copied from, without secrets."""
    begun_at: int
    finished_at: int = 0
    """When the copy was complete; 0: a part is still missing."""


class TransferStore(Protocol):
    """The part of a store that exports and imports everything it holds."""

    async def versions(self, after: str, limit: int) -> list[TaskVersion]:
        """Returns the versions of tasks, by id, of those whose ids come after this one."""

    async def export_tasks(self, task_ids: list[str]) -> list[StoredTask]:
        """Returns these tasks, each from one snapshot. Those that do not exist are left out."""

    async def import_tasks(self, tasks: list[StoredTask]) -> None:
        """Stores tasks as they are, in place of those with the same ids, each of them whole or not
        at all."""

    async def export_collections(self) -> Collections:
        """Returns everything that is not a task."""

    async def import_collections(self, found: Collections) -> None:
        """Stores these as they are, in place of all that there are."""

    async def count(self) -> dict[str, int]:
        """Returns how many rows of tasks and of what belongs to them there are, by their kind. The
        names are those of `COUNTED`."""

    async def read_mark(self) -> CopyMark | None:
        """Returns the mark of a copy, or None if this store is no copy."""

    async def write_mark(self, mark: CopyMark) -> None:
        """Marks the store as a copy."""


COUNTED = (
    "tasks",
    "events",
    "log writes",
    "messages",
    "recorded calls",
    "idempotency keys",
    "webhooks",
    "failed deliveries",
)
"""The names of what is counted for tasks. Messages and recorded calls are kept as long as the log
of their task, and are counted as long."""

VERSIONED = (
    "last_seq",
    "state",
    "status_at",
    "epoch",
    "attempt",
    "inputs",
    "heard",
    "question",
    "expires_at",
)
"""The columns that are a part of a version as they are."""


def hooks_version(hooks: Iterable[HookCursor]) -> bytes:
    """Returns a digest of webhooks, as a part of the version of their task."""
    return hashlib.sha256(pack([exported_hook(each) for each in hooks])).digest()


def exported_hook(cursor: HookCursor) -> HookCursor:
    """Returns a webhook whose delivery nobody has taken."""
    return replace(cursor, taken=0)


def stored_task(
    row: Row,
    *,
    pieces: Sequence[bytes],
    task: bytes,
    dropped: bool,
    keys: Iterable[Idempotency],
    inputs: Iterable[bytes],
    records: Iterable[Record],
    hooks: Iterable[HookCursor],
) -> StoredTask:
    """Returns a task in the form that is the same whichever store it comes from."""
    # A brief task is stored as its log alone (ADR 0012).
    brief = len(pieces) == 1 and row.last_seq <= BRIEF
    return StoredTask(
        row=row,
        pieces=tuple(pieces),
        task=b"" if brief else task,
        dropped=dropped,
        keys=tuple(keys),
        inputs=() if dropped else tuple(inputs),
        records=() if dropped else tuple(records),
        hooks=tuple(exported_hook(each) for each in hooks),
    )


def bare_input(key: Idempotency) -> Input:
    """Returns a message of which only the key is known."""
    return Input(message=Message(message_id="", role=Role.USER, parts=()), key=key)


class HasCollections(Protocol):
    """A store, as far as what is not a task is concerned."""

    sessions: SessionStore
    registry: RegistryStore
    link_keys: LinkKeyStore
    link_status: LinkStatusStore


async def collections_of(store: HasCollections, used_keys: Sequence[UsedKey]) -> Collections:
    """Returns everything in a store that is not a task."""
    return Collections(
        sessions=await store.sessions.news(0),
        used_keys=used_keys,
        agents=await store.registry.news(0),
        link_keys=await store.link_keys.all(),
        link_status=await store.link_status.all(),
    )
