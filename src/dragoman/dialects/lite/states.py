"""The seven states of A2A-Lite, and ours (dialects §1.4)."""

from __future__ import annotations

from dragoman.core.model import State

NAMES: dict[State, str] = {
    State.SUBMITTED: "accepted",
    State.WORKING: "working",
    State.INPUT_REQUIRED: "input-required",
    State.AUTH_REQUIRED: "input-required",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELED: "cancelled",
    State.REJECTED: "rejected",
    State.UNKNOWN: "working",
}
"""The names of our states. A task that waits for credentials says so in words."""
STATES: dict[str, State] = {
    **{name: state for state, name in reversed(NAMES.items())},
    "canceled": State.CANCELED,
    "submitted": State.SUBMITTED,
}
"""The meanings of the names, and of those that agents of A2A use."""


def state_in(name: str) -> State:
    """Returns the state with this name. States of later versions are unknown."""
    return STATES.get(name.lower(), State.UNKNOWN)
