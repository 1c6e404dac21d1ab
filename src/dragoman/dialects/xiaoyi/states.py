"""The seven states of the XiaoYi link, and ours (dialects §3.5)."""

from __future__ import annotations

from dragoman.core.model import State

NAMES: dict[State, str] = {
    State.SUBMITTED: "submitted",
    State.WORKING: "working",
    State.INPUT_REQUIRED: "input-required",
    State.AUTH_REQUIRED: "input-required",
    State.COMPLETED: "completed",
    State.CANCELED: "canceled",
    State.FAILED: "failed",
    State.REJECTED: "failed",
    State.UNKNOWN: "unknown",
}
"""The names of our states. A rejected task has failed, with the reason as its message."""

STATES: dict[str, State] = {
    **{name: state for state, name in reversed(NAMES.items())},
    "cancelled": State.CANCELED,
}
"""The meanings of the names. All others are unknown."""

CLEARED = "cleared"
"""The state in the answer to `clearContext`; the others are `failed` and `unknown`."""


def state_in(name: str | None) -> State:
    """Returns the state with this name."""
    return STATES.get(name or "", State.UNKNOWN)
