"""One measurement: how long it takes, and what comes of it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from .load import Burst, Connection, Exchange, connections, drive
from .peers import Server
from .stores import database_cpu_seconds

CONNECTIONS = 32
# Long enough for work that a server left for after its answers to be done and counted.
SETTLE = 0.05


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measurement. A scenario fills in what it measures."""

    cpu_us: float | None = None
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    # How busy the load's own core was; near 1, the rate is the load's and not the server's.
    load_share: float | None = None
    requests: int | None = None
    kib: float | None = None
    start_seconds: float | None = None
    start_cpu_seconds: float | None = None
    # Heartbeats that nobody answered, and links that were lost.
    missed: int | None = None
    # The median of the time from a cancel at one server until its answer, of a task at another.
    cancel_ms: float | None = None
    # CPU of the database, which is not in that of the server.
    database_us: float | None = None
    # How busy the machine was just before, where that decides.
    busy_before: float | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How long and how much: the full run, or a quick look."""

    seconds: float
    warm_up_share: float
    idle_streams: int
    chunk_share: float


FULL = Pace(seconds=1.6, warm_up_share=1.0, idle_streams=500, chunk_share=1.0)
QUICK = Pace(seconds=0.4, warm_up_share=0.5, idle_streams=100, chunk_share=0.1)


async def timed(
    server: Server,
    pace: Pace,
    count: int,
    exchange: Exchange,
    *,
    before_reading: Callable[[Connection], Awaitable[None]] | None = None,
) -> Sample:
    """Warm the server up, load it for a while, and share its CPU among what it answered."""
    numbers = itertools.count(1)
    warm_up = server.subject.warm_up * pace.warm_up_share
    async with connections(server.port, count) as opened:
        # One alone first: servers make their tables and the like on the first request.
        await exchange(opened[0], 0)
        await drive(opened, exchange, numbers=numbers, seconds=warm_up)
        cpu, database = server.cpu_seconds(), database_cpu_seconds(server.place)
        burst = await drive(opened, exchange, numbers=numbers, seconds=pace.seconds)
        if before_reading is not None:
            await before_reading(opened[0])
        await asyncio.sleep(SETTLE)
        cpu = server.cpu_seconds() - cpu
    sample = sample_of(burst, cpu, units=burst.count)
    if database is not None:
        database = (database_cpu_seconds(server.place) or 0.0) - database
        return msgspec.structs.replace(sample, database_us=database / burst.count * 1e6)
    return sample


def sample_of(burst: Burst, cpu_seconds: float, *, units: int) -> Sample:
    return Sample(
        cpu_us=cpu_seconds / units * 1e6,
        per_second=units / burst.seconds,
        p50_ms=burst.percentile(0.50) * 1e3,
        p99_ms=burst.percentile(0.99) * 1e3,
        load_share=burst.load_cpu_seconds / burst.seconds,
        requests=burst.count,
    )
