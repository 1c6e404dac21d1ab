"""What a version of A2A provides. Framings (`rpc`, later REST and gRPC) take any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct

from dragoman.card import Card
from dragoman.errors import DragomanError
from dragoman.events import Stamped
from dragoman.model import Json, Message, Task
from dragoman.ops import AnyOperation, TaskPage

from .errors import Spelling

Value = Task | Message | TaskPage | Card


class Method(Struct, frozen=True, gc=False):
    """One method: how its params are read, what they ask, and how answer and asking are spelled.

    The converters of one method take each other's types; the table is what ties them together, so
    their parameters are not spelled out here.
    """

    decode: Callable[[Raw], Struct]
    op_in: Callable[..., AnyOperation]
    op_out: Callable[..., Struct]
    result_out: Callable[..., object]
    result_in: Callable[[Raw], Value]
    op: type[AnyOperation]
    stream: bool = False


def method(
    op: type[AnyOperation],
    params: type[Struct],
    asked: tuple[Callable[..., AnyOperation], Callable[..., Struct]],
    answered: tuple[Callable[..., object], Callable[[Raw], Value]],
    *,
    stream: bool = False,
) -> Method:
    """A method with its decoder built, once."""
    decode = msgspec.json.Decoder(params).decode
    return Method(decode, *asked, *answered, op, stream)


class Version(Struct, frozen=True, gc=False, kw_only=True):
    """One version: its names, its methods, and how it spells what happens."""

    name: str
    """As the A2A-Version header says it."""
    dialect: str
    extensions_header: str
    methods: Mapping[str, Method]
    refused: Mapping[str, type[DragomanError]]
    """Methods it knows and we do not do."""
    event_out: Callable[[Stamped | Message, bool], object]
    event_in: Callable[[Raw, int], tuple[Stamped | Message, bool]]
    spellings: Mapping[type[DragomanError], Spelling]
    details: Callable[[DragomanError], Json]
    """What an error object carries beside code and message."""

    def asking(self, op: AnyOperation, *, stream: bool) -> tuple[str, Method] | None:
        """The method that asks this, if the version has one."""
        for name, found in self.methods.items():
            if type(op) is found.op and stream == found.stream:
                return name, found
        return None
