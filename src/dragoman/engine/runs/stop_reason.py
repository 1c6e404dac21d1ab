"""The reasons to stop a run."""

from __future__ import annotations

from enum import Enum


class StopReason(Enum):
    """The reason why the coroutine of a run was canceled."""

    CANCELED = "canceled"
    TIMED_OUT = "timed out"
    GIVEN_BACK = "given back"
    LOST = "lost"
