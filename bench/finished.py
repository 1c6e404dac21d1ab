"""`python -m bench.finished`: what calls cost on a store with a million finished tasks.

A store with a thousand and one with a million finished tasks take turns, on SQLite and on
PostgreSQL, and the fastest of many calls counts: what else runs on the machine only makes calls
slower. `tests/store/test_finished_tasks.py` counts the steps of the same calls in small stores.
"""

import argparse
import asyncio
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import msgspec
import uvloop

from dragoman.store import Store, open_store

from . import peers, stores
from .load import Connection, connections, drive
from .measure import choose_cores
from .peers import OURS, PEERS, SUBJECTS
from .sample import CONNECTIONS, SETTLE
from .stores import StorePlace
from .wire import A2A_1_0, Requests, WrongAnswer

# `stores` has put the folder of the tests on the path.
from store.finished_tasks import AGENT, calls, fill, task_id_of  # isort: skip

FEW, MANY = 1_000, 1_000_000
MOST = 1.5
"""How many times as much a call may cost with many tasks."""
ROUNDS = 4
SECONDS = 0.4
"""How long a call is repeated in a round."""
SWEPT = 300
RESULTS = Path(__file__).resolve().parent / "results"


class Row(msgspec.Struct):
    """A call, and its cost with few and with many tasks."""

    store: str
    call: str
    unit: str
    few: float
    many: float

    @property
    def ratio(self) -> float:
        return self.many / self.few


class Filled(msgspec.Struct):
    """A store with so many finished tasks, and the bytes that one of them takes."""

    place: StorePlace
    count: int
    until: int
    bytes_per_task: float = 0.0


async def _fastest(call: Callable[[], Awaitable[object]], seconds: float) -> float:
    await call()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        await call()
        best = min(best, time.perf_counter() - began)
    return best


async def _store_calls(kind: str, pair: list[Filled]) -> list[Row]:
    opened: list[Store] = []
    for each in pair:
        store = open_store(each.place.url)
        await store.open()
        opened.append(store)
    asked = [calls(store, each.count, each.until) for store, each in zip(opened, pair, strict=True)]
    rows = []
    for name in asked[0]:
        best = [float("inf")] * 2
        for number in range(2 * ROUNDS):
            if number >= ROUNDS and best[1] <= MOST * best[0]:
                break  # only what looks slow is measured again, which may have been bad luck
            for which in (0, 1):
                best[which] = min(best[which], await _fastest(asked[which][name], SECONDS))
        rows.append(_row(kind, name, "us", *(each * 1e6 for each in best)))
    swept = [float("inf")] * 2
    for _ in range(FEW // SWEPT):
        for which, store in enumerate(opened):
            began = time.perf_counter()
            count = await store.sweep(AGENT, 0, 0, SWEPT)
            swept[which] = min(swept[which], (time.perf_counter() - began) / count)
    rows.append(_row(kind, "sweep, per old task", "us", *(each * 1e6 for each in swept)))
    for store in opened:
        await store.close()
    return rows


def _row(kind: str, name: str, unit: str, few: float, many: float) -> Row:
    row = Row(kind, name, unit, few, many)
    print(f"{kind}, {name}: {few:,.1f} and {many:,.1f} {unit}", file=sys.stderr, flush=True)
    return row


def _server_calls(kind: str, pair: list[Filled]) -> Iterator[Row]:
    """The start of a server until it answers, and the CPU of a get of any of the tasks."""
    core = choose_cores().server
    starts, gets = ([float("inf")] * 2 for _ in range(2))
    for _ in range(ROUNDS):
        for which, each in enumerate(pair):
            with peers.running(SUBJECTS[OURS], each.place, core=core) as server:
                starts[which] = min(starts[which], server.start_cpu_seconds * 1e3)
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    gets[which] = min(gets[which], runner.run(_gets(server, each)))
    yield _row(kind, "start of a server", "ms of CPU", *starts)
    yield _row(kind, "get over HTTP", "us of CPU", *gets)


async def _gets(server: peers.Server, filled: Filled) -> float:
    requests = Requests(A2A_1_0, server.port, stream_skill=None)
    numbers = random.Random(2)

    async def exchange(connection: Connection, number: int) -> None:
        name = task_id_of(numbers.randrange(filled.count), filled.count, filled.until)
        body = await connection.start(requests.get(number, name))
        if name.encode() not in body or b'"result"' not in body:
            raise WrongAnswer(f"not the task: {body!r}")

    counted = itertools.count(1)
    async with connections(server.port, CONNECTIONS) as opened:
        await drive(opened, exchange, numbers=counted, seconds=0.5)
        cpu = server.cpu_seconds()
        burst = await drive(opened, exchange, numbers=counted, seconds=1.5)
        await asyncio.sleep(SETTLE)
        return (server.cpu_seconds() - cpu) / burst.count * 1e6


def _fill(kind: str, count: int, folder: Path, stack: ExitStack) -> Filled:
    scratch = folder / str(count)
    scratch.mkdir(parents=True)
    place = stores.new_store(kind, str(scratch), stack)
    until = time.time_ns() // 1_000_000
    began = time.perf_counter()
    asyncio.run(fill(place.url, count, until))
    if kind == "sqlite":
        size = Path(place.url.removeprefix("sqlite:///")).stat().st_size
    else:
        size = asyncio.run(_size(place.url))
    spent = time.perf_counter() - began
    print(f"{kind}: {count:,} tasks, {size:,} bytes, {spent:.0f} s", file=sys.stderr, flush=True)
    return Filled(place, count, until, size / count)


async def _size(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
    finally:
        await connection.close()


def _lines(rows: list[Row], filled: dict[str, list[Filled]]) -> Iterator[str]:
    few, many = next(iter(filled.values()))
    yield "# A store with many finished tasks"
    yield ""
    yield (
        f"{few.count:,} and {many.count:,} finished tasks of one caller; the fastest of many calls "
        f"on each, in turns. At most {MOST} times as much is the goal."
    )
    yield ""
    yield f"| | {few.count:,} tasks | {many.count:,} tasks | ratio | |"
    yield "|---|---:|---:|---:|---|"
    for row in rows:
        verdict = "met" if row.ratio <= MOST else "**not met**"
        figures = f"{row.few:,.0f} {row.unit} | {row.many:,.0f} {row.unit} | {row.ratio:.2f}"
        yield f"| {row.store}: {row.call} | {figures} | {verdict} |"
    yield ""
    for kind, (_, large) in filled.items():
        yield f"- {kind}: {large.bytes_per_task:,.0f} bytes per task, indexes and log included."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.finished", description=__doc__)
    parser.add_argument("--tasks", type=int, default=MANY, help="the tasks of the large stores")
    parser.add_argument("--stores", default="sqlite,postgres", help="which, with commas")
    options = parser.parse_args()
    PEERS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="finished-", dir=PEERS))
    rows: list[Row] = []
    filled: dict[str, list[Filled]] = {}
    try:
        with ExitStack() as stack:
            for kind in options.stores.split(","):
                pair = [_fill(kind, n, folder / kind, stack) for n in (FEW, options.tasks)]
                filled[kind] = pair
                rows += _server_calls(kind, pair)
                rows += asyncio.run(_store_calls(kind, pair))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = "\n".join(_lines(rows, filled)) + "\n"
    print(text)
    if options.tasks >= MANY and len(filled) == 2:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "finished.md").write_text(text)
        sizes = {kind: pair[1].bytes_per_task for kind, pair in filled.items()}
        everything = {"rows": rows, "bytes_per_task": sizes, "tasks": options.tasks}
        found = msgspec.json.format(msgspec.json.encode(everything), indent=1)
        (RESULTS / "finished.json").write_bytes(found + b"\n")
    return 1 if any(row.ratio > MOST for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
