"""Errors in A2A-Lite: `[A2A:status task=t-1 state=rejected reason=too-many]`, and why in words.

The source document has no errors. A refused request is a task that was rejected, or that failed;
`reason` names one of our errors, which others ignore.
"""

from __future__ import annotations

from dragoman.core.errors import CallError, DragomanError, errors_in
from dragoman.core.model import State

from .telling import Telling
from .wire import STATUS, LiteMessage

REASONS = {cls: cls().reason.replace("_", "-") for cls in errors_in()}
_MEANINGS = {reason: cls for cls, reason in REASONS.items()}


def refusal_of(error: DragomanError) -> Telling:
    """Returns how an error that concerns a task is told."""
    state = State.REJECTED if isinstance(error, CallError) else State.FAILED
    reason = next(REASONS[cls] for cls in type(error).__mro__ if cls in REASONS)
    return Telling(state=state, text=error.message, params={"reason": reason}, refusal=True)


def error_in(message: LiteMessage) -> DragomanError | None:
    """Reads an error of ours, or returns None for any other message."""
    found = _MEANINGS.get(message.params.get("reason", ""))
    return found(message.body) if found is not None and message.type == STATUS else None
