"""`python -m bench.capacity`: how many cores and bytes so many tasks a day need, and what is too
small first.

The costs are those that the bench has measured (`bench/results/latest.json` and `finished.json`).
What a task is like and how large one database may be are assumptions; they stand below, and each
can be given on the command line.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

RESULTS = Path(__file__).resolve().parent / "results"
DAY = 86_400
TASKS_A_DAY = (10**6, 10**8, 10**9)
NEEDED = {
    "send-postgres": "a send",
    "stream-spaced-postgres": "a stream",
    "webhook-postgres": "a delivery",
    "get-workers-postgres": "a get",
}


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is not measured."""

    peak: float = 3.0  # the rate of the busiest minute, over that of the day
    gets: float = 2.0  # for each task
    streamed: float = 0.2  # the share of tasks that are streamed, 20 chunks each
    told: float = 0.1  # the share of tasks with a webhook
    deliveries: float = 3.0  # for each of those
    keep_days: float = 30.0  # limits.keep_tasks
    busy: float = 0.6  # the share of a core that may be busy
    database_cores: float = 32.0  # of one large database server
    database_tb: float = 8.0
    wal_mb: float = 200.0  # a second, to its disk and its standby
    wal_bytes: float = 1_400.0  # of a task; measured in docs/adr/0028
    deletion_us: float = 42.0  # to delete a task and to vacuum after it; measured there too


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of CPU at the server and at the database."""

    server: float
    database: float


@dataclass(frozen=True, slots=True)
class Need:
    """What so many tasks a day need."""

    tasks: int
    rate: float
    server_cores: float
    database_cores: float
    terabytes: float
    wal_mb: float
    deleting: float

    def shares(self, assumed: Assumed) -> dict[str, float]:
        """How much of one large database each of them takes."""
        return {
            "the CPU of the database": self.database_cores / assumed.database_cores,
            "its disk": self.terabytes / assumed.database_tb,
            "its write-ahead log": self.wal_mb / assumed.wal_mb,
            # One process vacuums a table, whatever the number of cores.
            "deleting old tasks": self.deleting,
        }


def costs(samples: dict[str, Any], scenario: str) -> Costs:
    """The medians of a scenario."""
    taken = samples[scenario]["dragoman"]
    found = [
        statistics.median(sample.get(field) or 0.0 for sample in taken)
        for field in ("cpu_us", "database_us")
    ]
    return Costs(*found)


def need(tasks: int, samples: dict[str, Any], bytes_per_task: float, assumed: Assumed) -> Need:
    """Adds up what a task costs, and multiplies."""
    send, stream, delivery, get = (costs(samples, name) for name in NEEDED)
    shares = (
        (send, 1 - assumed.streamed),
        (stream, assumed.streamed),
        (delivery, assumed.told * assumed.deliveries),
        (get, assumed.gets),
    )
    rate = tasks / DAY * assumed.peak
    per_core = 1e6 * assumed.busy
    return Need(
        tasks=tasks,
        rate=rate,
        server_cores=rate * sum(each.server * share for each, share in shares) / per_core,
        database_cores=rate * sum(each.database * share for each, share in shares) / per_core,
        terabytes=tasks * assumed.keep_days * bytes_per_task / 1e12,
        wal_mb=rate * assumed.wal_bytes / 1e6,
        deleting=tasks / DAY * assumed.deletion_us / 1e6,
    )


def lines(
    samples: dict[str, Any], bytes_per_task: float, assumed: Assumed, tasks: tuple[int, ...]
) -> Iterator[str]:
    """The table, and what is too small first."""
    yield "| | " + " | ".join(f"server CPU, {what}" for what in NEEDED.values()) + " |"
    yield "|---|" + "---:|" * len(NEEDED)
    each = [costs(samples, name) for name in NEEDED]
    yield "| measured | " + " | ".join(f"{one.server:,.0f} us" for one in each) + " |"
    yield "| and at the database | " + " | ".join(f"{one.database:,.0f} us" for one in each) + " |"
    yield ""
    yield (
        "| tasks a day | at the peak | cores of servers | cores of the database | "
        "disk | write-ahead log | deleting | first too small |"
    )
    yield "|---:|---:|---:|---:|---:|---:|---:|---|"
    for number in tasks:
        found = need(number, samples, bytes_per_task, assumed)
        first, share = max(found.shares(assumed).items(), key=lambda one: one[1])
        where = f"{share:.1%}" if share < 0.1 else f"{share:.0%}" if share < 2 else f"{share:.1f}x"
        yield (
            f"| {number:,} | {found.rate:,.0f}/s | {_cores(found.server_cores)} | "
            f"{_cores(found.database_cores)} | {found.terabytes:,.2f} TB | "
            f"{found.wal_mb:,.1f} MB/s | {found.deleting:.1%} of a core | {first}: {where} |"
        )


def _cores(value: float) -> str:
    return f"{value:,.1f}" if value >= 1 else f"{value:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.capacity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tasks", type=int, nargs="*", default=TASKS_A_DAY, help="tasks a day")
    parser.add_argument("--results", type=Path, default=RESULTS / "latest.json")
    for field in fields(Assumed):
        flag = f"--{field.name.replace('_', '-')}"
        parser.add_argument(flag, type=float, default=field.default, help=f"{field.default:g}")
    options = vars(parser.parse_args())
    path, tasks = options.pop("results"), tuple(options.pop("tasks"))
    samples = msgspec.json.decode(path.read_bytes())["samples"]
    if missing := [name for name in NEEDED if name not in samples]:
        print(f"{path} has no {', '.join(missing)}: run `make bench` first.", file=sys.stderr)
        return 1
    finished = msgspec.json.decode((RESULTS / "finished.json").read_bytes())
    size = finished["bytes_per_task"]["postgres"]
    print("\n".join(lines(samples, size, Assumed(**options), tasks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
