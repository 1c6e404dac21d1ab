"""What a gRPC service is to us: a table of its rpcs, each with how it is read and answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from dragoman.core.model import Json
from dragoman.core.operations import Operation

from ..proto import Fields, Proto, reader, writer
from .encode import GrpcEncoder


class Rpc(Struct, frozen=True, gc=False):
    """One rpc. The converters of one take each other's types; the table ties them together."""

    read: Callable[[bytes], Proto]
    op_in: Callable[[Proto], Operation[Any]]
    write: Callable[[Fields], bytes]
    answer_out: Callable[[Any], Fields]
    stream: bool = False
    notes: Callable[[Proto], Iterable[Mapping[str, Json]]] | None = None
    """What was decided in reading the request, for the log."""


def rpc(
    request: str,
    op_in: Callable[[Proto], Operation[Any]],
    response: str,
    answer_out: Callable[[Any], Fields],
    *,
    stream: bool = False,
) -> Rpc:
    """An rpc between these two messages. A stream's steps are written by its service."""
    return Rpc(reader(request), op_in, writer(response), answer_out, stream)


class Service(Struct, frozen=True, gc=False, kw_only=True):
    """One service: its rpcs, and how it spells what happens."""

    name: str
    dialect: str
    version: str
    """As the a2a-version metadata says it."""
    rpcs: Mapping[str, Rpc]
    step: Callable[[Fields], bytes]
    """Writes one message of a stream."""
    words: GrpcEncoder
    """How it spells what happens."""
