"""The callee's side of an exchange, as far as it is the same in all bindings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property

from dragoman.core.extensions import WORK
from dragoman.core.session import Fault, Frame, Result, Session, Signal, Update

from . import extensions
from .version import Version

NOTHING: Mapping[str, str] = {}


class A2ACallee(Session):
    """The callee's side of one exchange."""

    # One object is created per request, so fields that are not used must cost nothing.
    _headers = NOTHING
    _version: Version

    @property
    def dialect(self) -> str:
        """The dialect that the caller speaks, as far as it is known."""
        return self._version.dialect

    @property
    def extensions_header(self) -> str:
        """The header in which this version names the extensions that are active."""
        return self._version.extensions_header

    @cached_property
    def extensions(self) -> tuple[str, ...]:
        """The extensions that the caller activated."""
        return extensions.extensions_in(self._headers)

    @cached_property
    def _notes(self) -> bool:
        return WORK in self.extensions

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns one frame, or none for `End`, which is expressed by closing the stream."""
        # `type` is compared, because an `isinstance` that fails costs a search in the metaclass of
        # a Struct.
        if type(signal) is Update:
            return (self._update(signal),)
        if type(signal) is Result:
            return (self._answer(signal),)
        if type(signal) is Fault:
            return (self._failure(signal),)
        return ()

    @abstractmethod
    def _update(self, update: Update) -> Frame: ...

    @abstractmethod
    def _answer(self, answer: Result) -> Frame: ...

    @abstractmethod
    def _failure(self, fault: Fault) -> Frame: ...
