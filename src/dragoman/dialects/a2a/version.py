"""What a version of A2A provides. Framings (`rpc`, `rest`) take any of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Raw, Struct, field

from dragoman.core.card import Card
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped
from dragoman.core.model import Hook, Json, Message, Task
from dragoman.core.operations import AnyOperation, HookPage, Invoke, TaskPage

from .errors import MEANINGS, Spelling

Value = Task | Message | TaskPage | Card | Hook | HookPage | Json


class RpcMethod(Struct, frozen=True):
    """One method: how its params are read, what they ask, and how answer and asking are spelled.

    The converters of one method take each other's types; the table is what ties them together, so
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
    """Whether null, or nothing at all, is a good answer."""
    params: type[Struct] = Struct
    """What `decode` gives, for framings that have it in pieces."""
    headers_out: Callable[..., Mapping[str, str]] | None = None
    """What REST says of an answer in headers, where the body has no place for it,"""
    headers_in: Callable[..., Value] | None = None
    """and the answer with what was said there."""
    notes: Callable[..., Iterable[Mapping[str, Json]]] | None = None
    """What was decided in reading the params, for the log."""


def method(
    op: type[AnyOperation],
    params: type[Struct],
    question: tuple[Callable[..., AnyOperation], Callable[..., Struct]],
    answer: tuple[Callable[..., object], Callable[[Raw], Value]],
    *,
    stream: bool = False,
    null: bool = False,
) -> RpcMethod:
    """A method with its decoder built, once."""
    decode = msgspec.json.Decoder(params).decode
    return RpcMethod(decode, *question, *answer, op, stream, null, params)


# Methods of an agent's own (0.3 §3.5.5)

OWN = re.compile(r"[^\s/]+\.[^\s/]+/\S+").fullmatch
"""Whether a method's name has a namespace, such as `myorg.billing/refund`."""


def own_method(name: str) -> RpcMethod:
    """The method of that name: params and result are whatever its author makes of them."""
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
    """One version: its names, its methods, and how it spells what happens."""

    name: str
    """As the A2A-Version header says it."""
    dialect: str
    extensions_header: str
    methods: Mapping[str, RpcMethod]
    event_out: Callable[[Stamped | Message, bool], object]
    event_in: Callable[[Raw, int], tuple[Stamped | Message, bool]]
    spellings: Mapping[type[DragomanError], Spelling]
    details: Callable[[DragomanError], Json]
    """What an error object carries beside code and message."""
    refused: Mapping[str, type[DragomanError]] = {}
    """Methods it knows and we do not do."""
    meanings: Mapping[int, type[DragomanError]] = field(default_factory=lambda: MEANINGS)
    """What its codes say."""
    words: Mapping[type[DragomanError], str] = {}
    """Messages of errors, where readers insist on them."""
    refuses_in_stream: bool = False
    """Whether a refused streaming method of JSON-RPC is answered with a stream of one error."""

    def find_method(self, op: AnyOperation, *, stream: bool) -> tuple[str, RpcMethod] | None:
        """The method that asks this, if the version has one."""
        if isinstance(op, Invoke):
            return op.method, own_method(op.method)
        for name, found in self.methods.items():
            if type(op) is found.op and stream == found.stream:
                return name, found
        return None
