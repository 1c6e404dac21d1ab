"""Counters in the text format of Prometheus. They are our own because an increment must be
cheap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from dragoman.engine.webhook_queue import OUTCOMES, WebhookFigures

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the latency buckets, in seconds."""
QUEUE = "runnable"
"""The key of the queue's length among the peer's counts by state."""


_OF_THE_STORE = frozenset(f"dragoman_{name}" for name in ("tasks", "queue", "webhook_age_seconds"))
"""The figures that every process on a store reads from it. They are the same at each of them, and
must not be added up."""
_STATES = frozenset(("dragoman_upstream_breaker",))
"""The figures that are states: that of the process counts that has the worst."""
_NOT_ADDED = " Of the whole store, so take the maximum over replicas, and not the sum."


class Histogram:
    """A histogram of latencies."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Counts an answer that took so many seconds."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


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
        histogram.add(seconds)

    def failed(self, reason: str, dialect: str) -> None:
        """Counts a fault that went out."""
        key = (reason, dialect)
        self.errors[key] = self.errors.get(key, 0) + 1


class Family(NamedTuple):
    """The figures of one name."""

    name: str
    kind: str
    help: str
    lines: Iterable[str]
    """Each begins with what follows the name: the labels, or a suffix of a histogram."""


class AgentFigures(Struct, frozen=True):
    """The figures of one agent."""

    agent: str
    """The value of its label; empty: it is the only one, and has none."""
    metrics: Metrics
    counts: Mapping[str, int]
    """What its peer says of its tasks."""
    mail: WebhookFigures | None
    """What its peer says of its webhooks."""

    def labels(self, said: str = "") -> str:
        """These labels and its own, in braces."""
        own = f'agent="{self.agent}"' if self.agent else ""
        both = ",".join(filter(None, (own, said)))
        return f"{{{both}}}" if both else ""


def exposition(
    agents: Sequence[AgentFigures], *, streams: int, blocked: int, more: Iterable[Family] = ()
) -> bytes:
    """Returns all figures of a server in the format of Prometheus; `more` are those of its
    services."""
    out: list[str] = []

    def family(name: str, kind: str, help_text: str, lines: Iterable[str]) -> None:
        more = _NOT_ADDED if f"dragoman_{name}" in _OF_THE_STORE else ""
        out.append(f"# HELP dragoman_{name} {help_text}{more}")
        out.append(f"# TYPE dragoman_{name} {kind}")
        out.extend(f"dragoman_{name}{line}" for line in lines)

    latency = [
        (each, f'method="{method}",dialect="{dialect}"', histogram)
        for each in agents
        for (method, dialect), histogram in sorted(each.metrics.latency.items())
    ]
    family(
        "requests_total",
        "counter",
        "Exchanges answered.",
        (f"{each.labels(said)} {sum(found.buckets)}" for each, said, found in latency),
    )
    family(
        "errors_total",
        "counter",
        "Faults sent, by reason.",
        (
            each.labels(f'reason="{reason}",dialect="{dialect}"') + f" {count}"
            for each in agents
            for (reason, dialect), count in sorted(each.metrics.errors.items())
        ),
    )
    family(
        "request_seconds",
        "histogram",
        "Time to the answer or the first event.",
        (
            line
            for each, said, found in latency
            for line in histogram_lines(each.labels(said)[1:-1], found)
        ),
    )
    family(
        "tasks",
        "gauge",
        "Tasks by state.",
        (
            each.labels(f'state="{name}"') + f" {n}"
            for each in agents
            for name, n in each.counts.items()
            if name != QUEUE
        ),
    )
    family(
        "webhooks_total",
        "counter",
        "Tries to call a webhook, by outcome.",
        (
            each.labels(f'outcome="{name}"') + f" {each.mail.tries[name] if each.mail else 0}"
            for each in agents
            for name in OUTCOMES
        ),
    )
    for name, kind, help_text, figure in _FIGURES:
        lines = (f"{each.labels()} {figure(each)}" for each in agents)
        family(name, kind, help_text, lines)
    family("streams", "gauge", "Streams open now.", (f" {streams}",))
    family("loop_blocked_total", "counter", "Times code blocked the event loop.", (f" {blocked}",))
    for each in merged(more):
        family(*each)
    return ("\n".join(out) + "\n").encode()


_FIGURES: tuple[tuple[str, str, str, Callable[[AgentFigures], float]], ...] = (
    (
        "webhook_breakers_open",
        "gauge",
        "Hosts left alone.",
        lambda each: each.mail.breakers if each.mail else 0,
    ),
    (
        "webhook_age_seconds",
        "gauge",
        "Age of the oldest.",
        lambda each: each.mail.age if each.mail else 0,
    ),
    ("queue", "gauge", "Tasks that wait for a worker.", lambda each: each.counts.get(QUEUE, 0)),
    (
        "streams_opened_total",
        "counter",
        "Streams opened.",
        lambda each: each.metrics.streams_opened,
    ),
    (
        "streams_stalled_total",
        "counter",
        "Streams nobody read.",
        lambda each: each.metrics.streams_stalled,
    ),
    ("events_sent_total", "counter", "Events sent in streams.", lambda each: each.metrics.events),
)


def merged(families: Iterable[Family]) -> Iterator[Family]:
    """Yields each name once, with the lines of all families of this name."""
    found: dict[str, Family] = {}
    for each in families:
        # The lines are read now: they may be those of a loop that goes on.
        before = found.setdefault(each.name, each._replace(lines=()))
        found[each.name] = before._replace(lines=[*before.lines, *each.lines])
    yield from found.values()


def added_up(own: bytes, others: Iterable[bytes]) -> bytes:
    """Returns the figures of all processes of a server, from those of each of them."""
    lines: dict[str, float | None] = {}
    """The names with their labels, and the comments, in the order in which they first appear."""
    for number, each in enumerate((own, *others)):
        for line in each.decode().splitlines():
            name, _, value = line.rpartition(" ")
            if line.startswith("#"):
                lines.setdefault(line, None)
            elif (bare := name.partition("{")[0]) in _STATES:
                lines[name] = max(lines.get(name) or 0.0, float(value))
            elif number == 0 or bare not in _OF_THE_STORE:
                lines[name] = (lines.get(name) or 0.0) + float(value)
    return _in_order(lines)


def _in_order(lines: Mapping[str, float | None]) -> bytes:
    """Returns the lines, those of each family below its comments: a process may have labels that
    the first one does not have."""
    families: dict[str, list[str]] = {}
    for line, value in lines.items():
        if value is None:
            families.setdefault(line.split(" ")[2], []).append(line)
            continue
        bare = line.partition("{")[0]
        family = next(
            name
            for end in ("", "_bucket", "_sum", "_count")
            if (name := bare.removesuffix(end) if end else bare) in families
        )
        families[family].append(f"{line} {value:g}" if value % 1 else f"{line} {int(value)}")
    return ("\n".join(line for each in families.values() for line in each) + "\n").encode()


def quoted(text: str) -> str:
    """Returns a text as the value of a label, without its quotation marks."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def histogram_lines(labels: str, histogram: Histogram) -> Iterator[str]:
    """Yields the lines of a histogram with these labels."""
    running = 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), histogram.buckets, strict=True):
        running += count
        yield f'_bucket{{{labels},le="{bound}"}} {running}'
    yield f"_sum{{{labels}}} {histogram.total:.6f}"
    yield f"_count{{{labels}}} {running}"
