"""Counters in the text format of Prometheus. They are our own because an increment must be
cheap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from dragoman.engine.webhook_queue import OUTCOMES, WebhookFigures

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the latency buckets, in seconds."""
QUEUE = "runnable"
"""The key of the queue's length among the peer's counts by state."""


class Histogram:
    """A histogram of latencies."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total = 0.0


class Metrics:
    """The counters of the HTTP side. Their keys are (method, dialect), which both come from fixed
    lists."""

    def __init__(self) -> None:
        self.latency: dict[tuple[str, str], Histogram] = {}
        self.errors: dict[tuple[str, str], int] = {}
        self.events = 0
        self.streams_opened = 0
        self.streams_stalled = 0

    def answered(self, method: str, dialect: str, seconds: float) -> None:
        """Counts an exchange that is over, or a stream whose first event is out."""
        key = (method, dialect)
        histogram = self.latency.get(key)
        if histogram is None:
            histogram = self.latency[key] = Histogram()
        histogram.buckets[bisect_left(BOUNDS, seconds)] += 1
        histogram.total += seconds

    def failed(self, reason: str, dialect: str) -> None:
        """Counts a fault that went out."""
        key = (reason, dialect)
        self.errors[key] = self.errors.get(key, 0) + 1

    def text(
        self,
        *,
        streams: int,
        blocked: int,
        counts: Mapping[str, int],
        mail: WebhookFigures | None = None,
    ) -> bytes:
        """All of it, as Prometheus reads it. `counts` is what the peer says of its tasks, `mail`
        what of its webhooks."""
        out: list[str] = []

        def family(name: str, kind: str, help_text: str, lines: Iterable[str]) -> None:
            out.append(f"# HELP dragoman_{name} {help_text}")
            out.append(f"# TYPE dragoman_{name} {kind}")
            out.extend(f"dragoman_{name}{line}" for line in lines)

        latency = {
            f'method="{method}",dialect="{dialect}"': histogram
            for (method, dialect), histogram in sorted(self.latency.items())
        }
        family(
            "requests_total",
            "counter",
            "Exchanges answered.",
            (f"{{{labels}}} {sum(each.buckets)}" for labels, each in latency.items()),
        )
        family(
            "errors_total",
            "counter",
            "Faults sent, by reason.",
            (
                f'{{reason="{reason}",dialect="{dialect}"}} {count}'
                for (reason, dialect), count in sorted(self.errors.items())
            ),
        )
        family(
            "request_seconds",
            "histogram",
            "Time to the answer or the first event.",
            (line for labels, each in latency.items() for line in _histogram(labels, each)),
        )
        family(
            "tasks",
            "gauge",
            "Tasks by state.",
            (f'{{state="{name}"}} {n}' for name, n in counts.items() if name != QUEUE),
        )
        family(
            "webhooks_total",
            "counter",
            "Tries to call a webhook, by outcome.",
            (f'{{outcome="{each}"}} {mail.tries[each] if mail else 0}' for each in OUTCOMES),
        )
        for name, kind, help_text, value in (
            ("webhook_breakers_open", "gauge", "Hosts left alone.", mail.breakers if mail else 0),
            ("webhook_age_seconds", "gauge", "Age of the oldest.", mail.age if mail else 0),
            ("queue", "gauge", "Tasks that wait for a worker.", counts.get(QUEUE, 0)),
            ("streams", "gauge", "Streams open now.", streams),
            ("streams_opened_total", "counter", "Streams opened.", self.streams_opened),
            ("streams_stalled_total", "counter", "Streams nobody read.", self.streams_stalled),
            ("events_sent_total", "counter", "Events sent in streams.", self.events),
            ("loop_blocked_total", "counter", "Times code blocked the event loop.", blocked),
        ):
            family(name, kind, help_text, (f" {value}",))
        return ("\n".join(out) + "\n").encode()


def _histogram(labels: str, histogram: Histogram) -> Iterator[str]:
    running = 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), histogram.buckets, strict=True):
        running += count
        yield f'_bucket{{{labels},le="{bound}"}} {running}'
    yield f"_sum{{{labels}}} {histogram.total:.6f}"
    yield f"_count{{{labels}}} {running}"
