"""Reads answers and events from the signals of a caller session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman.core.errors import DragomanError, PeerMisbehaved
from dragoman.core.session import (
    CallerSession,
    End,
    Fault,
    Frame,
    Introduction,
    Result,
    Session,
    Signal,
    Update,
)


def first_answer(signals: Iterable[Signal]) -> Signal:
    """Returns the answer among these signals, or raises its error."""
    for signal in signals:
        if isinstance(signal, Fault):
            raise signal.error
        if isinstance(signal, Result | Introduction):
            return signal
    raise PeerMisbehaved("The answer says nothing")


def repeated(session: Session) -> list[Frame]:
    """Returns the request to repeat in another form, if the session asks for that."""
    return list(session.repeated()) if isinstance(session, CallerSession) else []


def steps(signals: Iterable[Signal]) -> tuple[list[Any], bool, DragomanError | None]:
    """Returns the events of these signals, whether the stream ended with them, and the error that
    follows them."""
    entries: list[Any] = []
    for signal in signals:
        # `type` is compared, because an `isinstance` that fails costs a search in the metaclass of
        # a Struct.
        if type(signal) is Update:
            entries.append(signal.entry)
        elif type(signal) is Fault:
            return entries, False, signal.error
        elif type(signal) is End:
            return entries, True, None
    return entries, False, None
