"""One address of an agent elsewhere: what it has to do, and how its last calls ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from time import time
from typing import Any

from dragoman.agent.answers import Failed
from dragoman.client.addresses import label_of
from dragoman.core.errors import (
    CardUntrusted,
    DragomanError,
    Forbidden,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    TaskNotFound,
    Unauthenticated,
)
from dragoman.core.log import Logger

log = Logger("gateway")
LONGEST_ERROR = 300
"""The characters of an error that are kept."""
RETRY_AFTER = 2
"""The seconds after which a refused call may be repeated."""
WEIGHT = 0.2
"""The weight of the latest answer in the average latency."""


class UpstreamAddress:
    """An address and its figures."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """`options` are those of `connect`."""
        self.url = url
        self.options = dict(options or {})
        self.label = label_of(url)
        """Names the address in the journal, in metrics and for operators, without secrets."""
        self.in_flight = 0
        self.turn = 0
        """Grows with each call, so that addresses with equally much to do take turns."""
        self.failures: Counter[str] = Counter()
        """The failures by their reasons."""
        self.last_reason = ""
        """The reason of the last failure; empty after a success."""
        self.last_error = ""
        self.failed_at = 0.0
        self.seen_at = 0.0
        """Wall-clock times of the last failure and the last answer."""
        self.latency = 0.0
        """The average time to the first answer."""
        self.answered_at = 0.0
        """The monotonic time of the last answer."""
        self.checked_at = 0.0
        """The monotonic time of the last health check."""
        self.checks_failed = 0
        """Health checks in a row that failed."""
        self.alive = False
        """Whether a health check succeeded after the last failure."""

    def answered(self, seconds: float, now: float) -> None:
        """Notes an answer, after so many seconds, at this monotonic time."""
        self.seen_at, self.answered_at = time(), now
        self.last_reason = ""
        average = self.latency
        self.latency = average + (seconds - average) * WEIGHT if average else seconds

    def failed(self, reason: str, exc: DragomanError) -> None:
        """Notes a failure."""
        self.failures[reason] += 1
        self.last_reason, self.last_error = reason, exc.message[:LONGEST_ERROR]
        self.failed_at = time()
        self.alive = False


def failure_reason(exc: DragomanError, *, heard: bool) -> str:
    """Returns in one word how a call failed; empty if the error is an answer of the agent. `heard`
    says whether the agent had begun to answer."""
    match exc:
        case PeerUnreachable():
            return "broken" if heard else "no_answer" if exc.sent else "unreachable"
        case PeerMisbehaved():
            return "misbehaved"
        case PeerRefused() if exc.code >= 500:
            return "refused"
    return ""


def told(name: str, exc: DragomanError) -> DragomanError:
    """Returns what our caller is told of an error of the agent: nothing of our addresses, and
    nothing of what is between the agent and us."""
    log.info("A call failed", agent=name, why=exc)
    if isinstance(exc, PeerUnreachable):
        return PeerUnreachable(
            f"{name} cannot be reached; try again later",
            sent=exc.sent,
            retry_after=exc.public.get("retry_after", str(RETRY_AFTER)),
        )
    if type(exc) in (Unauthenticated, Forbidden):
        # These were our credentials, and not those of our caller.
        return PeerRefused(f"{name} refused the credentials of the gateway")
    if isinstance(exc, CardUntrusted):
        return CardUntrusted(f"The card of {name} is not trusted")
    if isinstance(exc, TaskNotFound):
        return Failed(f"{name} does not know the task any more", reason="task_lost")
    return exc
