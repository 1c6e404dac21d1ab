"""Base structs for the objects that A2A 1.0, 0.3 and 0.3 over REST have in common.

They are generic in their parts, because each version has parts of its own. A version adds its own
members. 1.0 and 0.3 over REST are ProtoJSON, which is read under two names; the `Proto*` structs
add the twins.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from .members import Bag, Flag, Name, NoTwins, Word, Words, json_name

P = TypeVar("P")
M = TypeVar("M")
A = TypeVar("A")
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")
C = TypeVar("C")


class Object(NoTwins, Struct, frozen=True, gc=False, omit_defaults=True, rename=json_name):
    """The base of all objects."""


class File(Object, frozen=True, gc=False):
    """A file of 0.3 and 0.1; 1.0 has none."""

    name: Word = ""
    mime_type: Word = ""
    bytes: str | None = None
    uri: str | None = None


class SharedMessage(Object, Generic[P], frozen=True, gc=False):
    message_id: Word = ""
    role: Name = None
    parts: tuple[P, ...] | None = None
    context_id: Word = ""
    task_id: Word = ""
    metadata: Bag = None
    extensions: Words = ()
    reference_task_ids: Words = ()


class SharedArtifact(Object, Generic[P], frozen=True, gc=False):
    artifact_id: Word = ""
    parts: tuple[P, ...] | None = None
    name: Word = ""
    description: Word = ""
    metadata: Bag = None
    extensions: Words = ()


class SharedStatus(Object, Generic[M], frozen=True, gc=False):
    state: Name = None
    timestamp: Word = ""
    message: M | None = None


class SharedTask(Object, Generic[S, A, M], frozen=True, gc=False):
    id: str
    context_id: Word = ""
    status: S = None  # type: ignore[assignment]  # each version has an empty one of its own
    artifacts: tuple[A, ...] | None = None
    history: tuple[M, ...] | None = None
    metadata: Bag = None


class SharedArtifactUpdate(Object, Generic[A], frozen=True, gc=False):
    artifact: A
    task_id: Word = ""
    context_id: Word = ""
    append: Flag = False
    last_chunk: Flag = False
    metadata: Bag = None


class SharedStatusUpdate(Object, Generic[S], frozen=True, gc=False):
    """The first members of a status update: 0.3 has `final` before the metadata, and 1.0 does not
    have it."""

    task_id: Word = ""
    context_id: Word = ""
    status: S = None  # type: ignore[assignment]  # as above


class ProtoMessage(SharedMessage[P], Generic[P], frozen=True, gc=False):
    message_id_: str = ""
    context_id_: str = ""
    task_id_: str = ""
    reference_task_ids_: Words = ()


class ProtoArtifact(SharedArtifact[P], Generic[P], frozen=True, gc=False):
    artifact_id_: str = ""


class ProtoTask(SharedTask[S, A, M], Generic[S, A, M], frozen=True, gc=False):
    context_id_: str = ""


class ProtoArtifactUpdate(SharedArtifactUpdate[A], Generic[A], frozen=True, gc=False):
    task_id_: str = ""
    context_id_: str = ""
    last_chunk_: Flag = False


class ProtoStep(Object, Generic[T, M, U, C], frozen=True, gc=False):
    """A StreamResponse, which is the wrapper of an event; SendMessageResponse is the same without
    updates. 0.3 over JSON-RPC has no wrapper."""

    task: T | None = None
    message: M | None = None
    status_update: U | None = None
    artifact_update: C | None = None
    status_update_: U | None = None
    artifact_update_: C | None = None
