"""Medians, ratios and goals, as Markdown for people and JSON for everything else."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from . import queues, scaling, start
from .goal import Goal, Results
from .measure import QUIET
from .peers import BARE, GATEWAY, LINKS, OURS, REGISTRY, SUBJECTS
from .sample import Sample
from .scenarios import CHUNKS, SCENARIOS, Scenario

SDK, JS = "a2a-sdk", "a2a-js"
# Above this share of its core, the load may be what limits the rate.
BUSY_LOAD = 0.9


def _times_less(scenario: str, bound: float, text: str, *, ours_in: str | None = None) -> Goal:
    """Ours in one scenario against a2a-sdk's in the same, or in its in-memory twin."""
    ours = (ours_in or scenario, OURS)
    return Goal(text, bound, lambda results: results.ratio((scenario, SDK), ours))


def _relayed_send(results: Results) -> float | None:
    """What the gateway spends on a send, against a send to us and a call of our client."""
    relayed = results.median("relay-send", GATEWAY)
    direct, call = results.median("relay-send", OURS), results.median("client-send", OURS)
    if relayed is None or direct is None or call is None:
        return None
    return relayed / (direct + call)


GOALS = (
    _times_less("send", 15, "send in memory: a2a-sdk / ours"),
    Goal(
        "send in memory: @a2a-js/sdk / ours", 2.5, lambda r: r.ratio(("send", JS), ("send", OURS))
    ),
    _times_less("send", 10, "send: a2a-sdk in memory / ours on SQLite", ours_in="send-sqlite"),
    _times_less("get", 3, "get: a2a-sdk / ours"),
    _times_less("send-grpc", 4, "send over gRPC: a2a-sdk / ours"),
    *(
        Goal(
            f"{name} of ours: over REST / over JSON-RPC",
            1.15,
            lambda r, name=name: r.ratio((f"{name}-rest", OURS), (name, OURS)),
            at_least=False,
        )
        for name in ("send", "get")
    ),
    *(
        Goal(
            f"ours: IAT execute over {over} / JSON-RPC send",
            1.5,
            lambda r, name=name: r.ratio((name, OURS), ("send", OURS)),
            at_least=False,
        )
        for name, over in (("execute-h2", "HTTP/2"), ("execute-ws", "WebSocket"))
    ),
    _times_less("stream-ready", 25, "20 chunks ready together: a2a-sdk / ours"),
    _times_less("stream-spaced", 8, "20 chunks 5 ms apart: a2a-sdk / ours"),
    _times_less(
        "stream-spaced",
        5,
        "20 chunks 5 ms apart: a2a-sdk in memory / ours on SQLite",
        ours_in="stream-spaced-sqlite",
    ),
    Goal(
        "memory of an idle stream: ours / a2a-sdk",
        0.6,
        lambda r: r.ratio(("idle-stream", OURS, "kib"), ("idle-stream", SDK, "kib")),
        at_least=False,
    ),
    Goal(
        "CPU per chunk of ours: streams of 5,000 / streams of 500",
        1.3,
        lambda r: r.ratio(("chunks-5000", OURS), ("chunks-500", OURS)),
        at_least=False,
    ),
    Goal(
        "send in memory: ours / bare handler",
        2.2,
        lambda r: r.ratio(("send", OURS), ("send", BARE)),
        at_least=False,
    ),
    Goal(
        "send in memory, ours: p99 / p50",
        5,
        lambda r: r.ratio(("send", OURS, "p99_ms"), ("send", OURS, "p50_ms")),
        at_least=False,
    ),
    _times_less("send-one", 6, "one connection, send in memory: a2a-sdk / ours"),
    _times_less(
        "send-one",
        4,
        "one connection, send: a2a-sdk in memory / ours on SQLite",
        ours_in="send-one-sqlite",
    ),
    _times_less("client-send", 4, "client CPU of a send to our server: a2a-sdk / ours"),
    _times_less("client-stream", 3, "client CPU of 20 chunks from our server: a2a-sdk / ours"),
    Goal(
        "client CPU of a send to our server, in us",
        400,
        lambda r: r.median("client-send", OURS),
        at_least=False,
    ),
    Goal(
        "gateway CPU of a relayed send / (direct send + call of our client)",
        1.3,
        _relayed_send,
        at_least=False,
    ),
    Goal(
        f"gateway CPU of a relayed stream of {CHUNKS} chunks / direct stream",
        2.5,
        lambda r: r.ratio(("relay-stream", GATEWAY), ("relay-stream", OURS)),
        at_least=False,
    ),
    Goal(
        "CPU of GET /agents?skill=: 1,000 registered agents / 10",
        5,
        lambda r: r.ratio(("agents-1000", REGISTRY), ("agents-10", REGISTRY)),
        at_least=False,
    ),
    Goal(
        "heartbeats missed, with 500 agents linked and a task every second on each",
        0,
        lambda r: r.median("links-500", LINKS, "missed"),
        at_least=False,
    ),
    *scaling.GOALS,
    *queues.GOALS,
    *start.GOALS,
)


def markdown(results: Results, facts: dict[str, Any]) -> str:
    """The whole report."""
    return "\n".join(_lines(results, facts)) + "\n"


def _lines(results: Results, facts: dict[str, Any]) -> Iterator[str]:
    yield "# Bench"
    yield ""
    yield (
        f"{facts['taken']}, commit {facts['commit']}, Python {facts['python']}, "
        f"{facts['cores']} cores ({facts['processor']}), {facts['system']}. "
        f"One server process pinned to one core, load on "
        f"{'another' if facts['cores_apart'] else 'THE SAME: rates mean little'}; "
        f"medians of {facts['repetitions']} interleaved repetitions. CPU is utime+stime of all the "
        "server's processes. Ratios compare CPU, or what the column shows, with ours."
    )
    if facts["partial"]:
        yield ""
        yield "**A partial or quick run: good for a look, not for a claim.**"
    if results.failures:
        yield ""
        yield "**Failed:**"
        yield ""
        yield from (f"- {failure}" for failure in results.failures)
    yield ""
    yield from _summary(results)
    yield from _goals(results)
    for scenario in SCENARIOS.values():
        if scenario.name in results.samples:
            yield from _section(results, scenario)
    yield from _notes(results, facts["repetitions"])


def _summary(results: Results) -> Iterator[str]:
    measured = [
        scenario
        for scenario in SCENARIOS.values()
        if any(results.median(scenario.name, name) for name in SUBJECTS)
    ]
    if not measured:
        return
    yield "## Server CPU in microseconds, with the ratio to ours"
    yield ""
    shown = [name for name in SUBJECTS if any(results.median(s.name, name) for s in measured)]
    yield from _table(
        ["", *(SUBJECTS[name].title for name in shown)],
        [
            [f"{s.title}, per {s.unit}", *(_with_ratio(results, s.name, name) for name in shown)]
            for s in measured
        ],
    )


def _with_ratio(results: Results, scenario: str, subject: str) -> str:
    value = results.median(scenario, subject)
    if value is None:
        return ""
    if subject == OURS:
        return f"**{_number(value)}**"
    ratio = results.ratio((scenario, subject), (scenario, OURS))
    return _number(value) if ratio is None else f"{_number(value)} ({_times(ratio)})"


def _goals(results: Results) -> Iterator[str]:
    yield "## Goals"
    yield ""
    rows = []
    for goal in GOALS:
        value = goal.measure(results)
        bound = f"{'at least' if goal.at_least else 'at most'} {goal.bound:g}"
        verdict = "not measured" if value is None else "met" if goal.met(value) else "**not met**"
        rows.append([goal.text, bound, "" if value is None else f"{value:.2f}", verdict])
    yield from _table(["ratio, or the figure itself", "goal", "measured", ""], rows)


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a scenario's table."""

    title: str
    field: str


def _columns(scenario: Scenario, subjects: dict[str, list[Sample]]) -> list[Column]:
    columns = [
        Column(f"CPU us per {scenario.unit}", "cpu_us"),
        Column(f"{scenario.unit}s/s", "per_second"),
        Column("database CPU us", "database_us"),
        Column("p50 ms", "p50_ms"),
        Column("p99 ms", "p99_ms"),
        Column("CPU s", "start_cpu_seconds"),
        Column("wall s", "start_seconds"),
        Column("KiB", "kib"),
        Column("missed", "missed"),
        Column("cancel p50 ms", "cancel_ms"),
    ]
    taken = [sample for samples in subjects.values() for sample in samples]
    return [c for c in columns if any(getattr(s, c.field) is not None for s in taken)]


def _section(results: Results, scenario: Scenario) -> Iterator[str]:
    subjects = results.samples[scenario.name]
    columns = _columns(scenario, subjects)
    leading = columns[0].field
    rows = []
    for name in SUBJECTS:
        if name in subjects:
            ratio = results.ratio((scenario.name, name, leading), (scenario.name, OURS, leading))
            figures = [_number(results.median(scenario.name, name, c.field)) for c in columns]
            rows.append([SUBJECTS[name].title, *figures, _times(ratio)])
    yield f"## {scenario.title}"
    yield ""
    yield from _table(["", *(column.title for column in columns), "to ours"], rows)


def _notes(results: Results, repetitions: int) -> Iterator[str]:
    yield "## Notes"
    yield ""
    yield "- fasta2a answers a send before its agent has run; its CPU includes that run."
    yield "- Every answer is decoded and checked; every chunk is its own event on the wire."
    yield "- Client CPU is of the client's process; both send to the same server, which is ours."
    yield "- On SQLite and PostgreSQL every answer follows its commit, on both sides."
    yield "- CPU on PostgreSQL is the server's, without that of the database, on the load's core."
    yield "- Workers, and the one process beside them, share both cores with the load; each process"
    yield "  has the same number of connections, because what is ready together costs less."
    yield "- CPU of a proxy is its own; that of the agent behind it, which is ours, is not in it."
    yield from (f"- {note}." for note in results.notes)
    if loud := [
        scenario
        for scenario, subjects in results.samples.items()
        if any((each.busy_before or 0) >= QUIET for taken in subjects.values() for each in taken)
    ]:
        yield f"- The machine was not quiet, so these times are too long: {', '.join(loud)}."
    cells = [
        (f"{scenario} on {subject}", taken, results.median(scenario, subject, "load_share") or 0)
        for scenario, subjects in results.samples.items()
        for subject, taken in subjects.items()
    ]
    if fewer := [f"{name} ({len(taken)})" for name, taken, _ in cells if len(taken) < repetitions]:
        yield f"- Measured fewer times than the rest: {', '.join(fewer)}."
    if busy := [name for name, _, load_share in cells if load_share > BUSY_LOAD]:
        yield f"- The load's own core was nearly full, so the rate is a floor: {', '.join(busy)}."


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1f}x" if ratio < 100 else f"{ratio:.0f}x"


def write(results: Results, facts: dict[str, Any], folder: Path, name: str) -> Path:
    """Write both files; the Markdown's path is returned."""
    folder.mkdir(exist_ok=True)
    goals = [
        {"goal": goal.text, "bound": goal.bound, "at_least": goal.at_least, "measured": value}
        | ({} if value is None else {"met": goal.met(value)})
        for goal in GOALS
        for value in [goal.measure(results)]
    ]
    everything = {
        "facts": facts,
        "goals": goals,
        "failures": results.failures,
        "samples": results.samples,
    }
    text = msgspec.json.format(msgspec.json.encode(everything), indent=1)
    (folder / f"{name}.json").write_bytes(text + b"\n")
    path = folder / f"{name}.md"
    path.write_text(markdown(results, facts))
    return path
