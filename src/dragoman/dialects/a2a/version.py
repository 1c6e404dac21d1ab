"""The parts of a version of A2A. The bindings (`jsonrpc`, `rest`) accept any version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct, field

from dragoman.core.card import Card
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped
from dragoman.core.model import Hook, Json, Message, Task
from dragoman.core.operations import AnyOperation, HookPage, Invoke, TaskPage
from dragoman.core.session import Frame, Id

from .errors import MEANINGS, Spelling

Value = Task | Message | TaskPage | Card | Hook | HookPage | Json


class RpcMethod(Struct, frozen=True):
    """One method: how its params are read, the operation that they mean, and the spelling of
    requests and answers.

    The converters of one method accept each other's types. Only the table ties them together, so
    their parameters are not spelled out here.
    """

    decode: Callable[[Raw | bytes], Struct]
    op_in: Callable[..., AnyOperation]
    op_out: Callable[..., Struct]
    result_out: Callable[..., object]
    result_in: Callable[[Raw], Value]
    op: type[AnyOperation]
    stream: bool = False
    null: bool = False
    """Whether null, or nothing at all, is a valid answer."""
    params: type[Struct] = Struct
    """The type that `decode` returns, for bindings that have the params in pieces."""
    headers_out: Callable[..., Mapping[str, str]] | None = None
    """Returns the REST headers of an answer, for values that have no place in the body."""
    headers_in: Callable[..., Value] | None = None
    """Returns the answer with the values from its REST headers."""
    notes: Callable[..., Iterable[Mapping[str, Json]]] | None = None
    """Returns how the params were interpreted, for the log."""


def method(
    op: type[AnyOperation],
    params: type[Struct],
    question: tuple[Callable[..., AnyOperation], Callable[..., Struct]],
    answer: tuple[Callable[..., object], Callable[[Raw], Value]],
    *,
    stream: bool = False,
    null: bool = False,
) -> RpcMethod:
    """Returns a method, with its decoder built once."""
    decode = msgspec.json.Decoder(params).decode
    return RpcMethod(decode, *question, *answer, op, stream, null, params)


# Methods of an agent's own (0.3 §3.5.5)

OWN = re.compile(r"[^\s/]+\.[^\s/]+/\S+").fullmatch
"""Returns whether the name of a method has a namespace, such as `myorg.billing/refund`."""


def own_method(name: str) -> RpcMethod:
    """Returns the method of that name, whose author defines its params and its result."""
    return RpcMethod(
        _read_anything,
        lambda params: Invoke(method=name, params=params),
        lambda op: op.params if op.params is not None else {},
        lambda value, op: value,
        _read_anything,
        Invoke,
        null=True,
    )


_read_anything = msgspec.json.Decoder().decode


class Version(Struct, frozen=True, kw_only=True):
    """One version: its name, its methods, and its spelling of events."""

    name: str
    """The name in the A2A-Version header."""
    dialect: str
    extensions_header: str
    methods: Mapping[str, RpcMethod]
    event_out: Callable[[Stamped | Message, bool], object]
    event_in: Callable[[Raw, int], tuple[Stamped | Message, bool]]
    spellings: Mapping[type[DragomanError], Spelling]
    events_in: (
        Callable[[Sequence[Frame], Id], tuple[list[Stamped | Message], bool] | None] | None
    ) = None
    """Reads events of JSON-RPC that answer one call in one pass, and returns whether none can
    follow; None if this version, or one of these events, takes two."""
    details: Callable[[DragomanError], Json]
    """Returns the data of an error object, beside code and message."""
    refused: Mapping[str, type[DragomanError]] = {}
    """The methods of the version that we do not support."""
    meanings: Mapping[int, type[DragomanError]] = field(default_factory=lambda: MEANINGS)
    """The errors by code."""
    words: Mapping[type[DragomanError], str] = {}
    """The messages of errors that readers look for."""
    refuses_in_stream: bool = False
    """Whether a refused streaming method of JSON-RPC is answered with a stream of one error."""

    def find_method(self, op: AnyOperation, *, stream: bool) -> tuple[str, RpcMethod] | None:
        """Returns the method of an operation, if the version has one."""
        kind = type(op)
        if type(op) is Invoke:
            return op.method, own_method(op.method)
        for name, found in self.methods.items():
            if kind is found.op and stream == found.stream:
                return name, found
        return None
