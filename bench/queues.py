"""What it costs to claim tasks from a short and from a long queue."""

import statistics
import time
from collections.abc import Awaitable, Callable

from dragoman.store import open_store

from .goal import Goal, Results
from .peers import OURS, Server
from .sample import Pace, Sample
from .scenario import Scenario

SHORT, LONG = 1_000, 100_000
CLAIMED = 10_000
"""The tasks that are claimed from the head of a long queue."""
BATCH = 64
WORKER = "bench"
LEASE = 3_600_000


def claims(length: int) -> Callable[[Server, Pace], Awaitable[Sample]]:
    """Returns what measures claims from a queue of this length. The server has nothing to do with
    the agent whose tasks are queued: it is measured what a store costs the process that claims."""

    async def run(server: Server, pace: Pace) -> Sample:
        from store.long_queue import AGENT, fill

        url = server.place.url
        store = open_store(url)
        await store.open()
        try:
            await store.enlist(WORKER, LEASE)
            await fill(url, length, int(time.time() * 1000) - length)
            most = min(length, int(CLAIMED * max(pace.chunk_share, SHORT / CLAIMED)))
            times: list[float] = []
            for _ in range(3):  # the first ones prepare their statements
                await store.claim(WORKER, AGENT, BATCH)
            most -= 3 * BATCH
            claimed, cpu, began = 0, time.process_time(), time.perf_counter()
            while claimed < most:
                since = time.perf_counter()
                claimed += len(await store.claim(WORKER, AGENT, BATCH))
                times.append(time.perf_counter() - since)
            cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
        finally:
            await store.close()
        return Sample(
            cpu_us=cpu / claimed * 1e6,
            per_second=claimed / seconds,
            p50_ms=statistics.median(times) * 1e3,
            requests=claimed,
        )

    return run


SCENARIOS = tuple(
    Scenario(
        f"queue-{store}-{length}",
        f"Claims of {BATCH} tasks from a queue of {length:,} on {title}",
        claims(length),
        (OURS,),
        store=store,
        unit="task",
    )
    for store, title in (("sqlite", "SQLite"), ("postgres", "PostgreSQL"))
    for length in (SHORT, LONG)
)


def _grows(results: Results, store: str, figure: str) -> float | None:
    long, short = (f"queue-{store}-{length}" for length in (LONG, SHORT))
    return results.ratio((long, OURS, figure), (short, OURS, figure))


GOALS = tuple(
    Goal(
        f"{what} of a claim on {title}: {LONG:,} queued tasks / {SHORT:,}",
        1.5,
        lambda r, store=store, figure=figure: _grows(r, store, figure),
        at_least=False,
    )
    for store, title, what, figure in (
        ("sqlite", "SQLite", "CPU", "cpu_us"),
        ("postgres", "PostgreSQL", "CPU", "cpu_us"),
        # The work of the database itself shows in the time only.
        ("postgres", "PostgreSQL", "time", "p50_ms"),
    )
)
