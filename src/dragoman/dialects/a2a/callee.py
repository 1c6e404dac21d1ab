"""What the sessions of every framing have in common on the side that is asked."""

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
    """One exchange, on the side that is asked."""

    # One of these is made per request: what is not touched costs nothing.
    _headers = NOTHING
    _version: Version

    @property
    def dialect(self) -> str:
        """Which dialect the caller speaks, as far as it is known."""
        return self._version.dialect

    @property
    def extensions_header(self) -> str:
        """The header in which this version names the extensions that are active."""
        return self._version.extensions_header

    @cached_property
    def extensions(self) -> tuple[str, ...]:
        """The extensions the caller activated."""
        return extensions.extensions_in(self._headers)

    @cached_property
    def _notes(self) -> bool:
        return WORK in self.extensions

    def send(self, signal: Signal) -> Iterable[Frame]:
        """One frame, but none for `End`: the closing of the stream says it."""
        # Not isinstance: where it is false, it costs a Struct's metaclass a search.
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
