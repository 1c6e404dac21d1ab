"""Reads answers from the signals of a caller session."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.core.errors import PeerMisbehaved
from dragoman.core.session import (
    CallerSession,
    Fault,
    Frame,
    Introduction,
    Result,
    Session,
    Signal,
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
