"""What it costs to have several processes: two workers on one port, two servers on one database."""

import asyncio
import re
import shutil
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec

from .goal import Goal, Results
from .load import HOST, Connection, connections, drive
from .measure import wait_until_quiet
from .peers import OURS, WORKERS, Server, beside
from .sample import CONNECTIONS, SETTLE, Pace, Sample, sample_of, timed
from .scenario import Scenario
from .stores import database_cpu_seconds
from .wire import (
    ECHO_TEXT,
    RestRequests,
    WrongAnswer,
    check_canceled,
    check_task_got,
    enveloped,
    read_event,
    task_sent,
    text_of,
)

EVENTS = 60
CANCELS = 15
TOLD = 400
"""Tasks with a webhook."""
WAIT_FOR_QUIET = 15.0
"""Seconds that a measurement of latencies waits for other programs to be done."""
SDK = "a2a-sdk"


async def gets_with_wrk(server: Server, pace: Pace) -> Sample:
    """Reads of a finished task over REST, by wrk if there is one, which costs little CPU itself."""
    requests, words = RestRequests(server.port), server.subject.words
    async with connections(server.port, 1) as (connection,):
        body = await connection.start(requests.send(0, ECHO_TEXT))
    task_id = task_sent(enveloped(body), words, early=False)

    async def exchange(connection: Connection, number: int) -> None:
        check_task_got(enveloped(await connection.start(requests.get(task_id))), words)

    program = shutil.which("wrk")
    if program is None:
        return await timed(server, pace, CONNECTIONS * server.subject.processes, exchange)
    async with connections(server.port, 1) as (connection,):
        await exchange(connection, 0)
    url = f"http://{HOST}:{server.port}/tasks/{task_id}"
    wrk = partial(_wrk, program, url, CONNECTIONS * server.subject.processes)
    await wrk(server.subject.warm_up * pace.warm_up_share)
    cpu, database = server.cpu_seconds(), database_cpu_seconds(server.place)
    count, rate = await wrk(pace.seconds)
    await asyncio.sleep(SETTLE)
    cpu = server.cpu_seconds() - cpu
    if database is not None:
        database = ((database_cpu_seconds(server.place) or 0.0) - database) / count * 1e6
    return Sample(cpu_us=cpu / count * 1e6, per_second=rate, requests=count, database_us=database)


async def _wrk(program: str, url: str, connections: int, seconds: float) -> tuple[int, float]:
    """The number of answers, and their rate. wrk counts in whole seconds."""
    process = await asyncio.create_subprocess_exec(
        *(program, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"),
        *("-H", "A2A-Version: 1.0", url),
        stdout=asyncio.subprocess.PIPE,
    )
    said = (await process.communicate())[0].decode()
    count = re.search(r"(\d+) requests in", said)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    if count is None or rate is None or "Non-2xx" in said or "Socket errors" in said:
        raise WrongAnswer(said)
    return int(count[1]), float(rate[1])


async def webhooks(server: Server, pace: Pace) -> Sample:
    """Echoes, each with a webhook of its own. The CPU is that of a delivery: what such a send costs
    beyond a plain one, for each request that the receiver got."""
    received, wanted = 0, -1
    all_received = asyncio.Event()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = re.search(rb"content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                received += 1
                if received == wanted:
                    all_received.set()
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    requests, words = server.requests, server.subject.words
    receiver = await asyncio.start_server(receive, HOST, 0)
    url = f"http://{HOST}:{receiver.sockets[0].getsockname()[1]}/"

    async def plain(connection: Connection, number: int) -> None:
        body = await connection.start(requests.send(number, ECHO_TEXT))
        task_sent(body, words, early=False)

    async def told(connection: Connection, number: int) -> None:
        body = await connection.start(requests.send(number, ECHO_TEXT, webhook=url))
        task_sent(body, words, early=False)

    without = await timed(server, pace, CONNECTIONS, plain)
    async with connections(server.port, 1) as (connection,):
        await told(connection, 0)
        await asyncio.sleep(2.0)  # long enough for all deliveries of one task
    count = int(TOLD * pace.warm_up_share)
    wanted, received = received * count, 0
    async with connections(server.port, 4) as opened:
        cpu, database = server.cpu_seconds(), database_cpu_seconds(server.place)
        began = time.monotonic()
        burst = await drive(opened, told, numbers=iter(range(count)))
        await asyncio.wait_for(all_received.wait(), 60)
        seconds = time.monotonic() - began
        cpu = server.cpu_seconds() - cpu - count * (without.cpu_us or 0.0) / 1e6
        database = (database_cpu_seconds(server.place) or 0.0) - (database or 0.0)
        database -= count * (without.database_us or 0.0) / 1e6
    receiver.close()
    sample = sample_of(burst, cpu, units=received)
    return msgspec.structs.replace(
        sample,
        database_us=database / received * 1e6,
        requests=received,
        per_second=received / seconds,
    )


async def replicas(server: Server, pace: Pace) -> Sample:
    """How long an event is on its way to a reader at another server on the same database, and how
    long a cancel at that server takes."""
    share = pace.warm_up_share
    with beside(server) as other:
        async with connections(server.port, 1) as one, connections(other.port, 2) as (two, three):
            await _event_delays(server, one[0], two, 5)  # the first ones load and prepare much
            await _cancel_times(server, one[0], three, 2)
            busy = await asyncio.to_thread(wait_until_quiet, WAIT_FOR_QUIET * share)
            delays = await _event_delays(server, one[0], two, int(EVENTS * share))
            cancels = await _cancel_times(server, one[0], three, int(CANCELS * share))
    delays.sort()
    return Sample(
        p50_ms=statistics.median(delays) * 1e3,
        p99_ms=delays[int(len(delays) * 0.99)] * 1e3,
        cancel_ms=statistics.median(cancels) * 1e3,
        busy_before=busy,
        requests=len(delays),
    )


@asynccontextmanager
async def _running(server: Server, connection: Connection, text: str) -> AsyncIterator[str]:
    """A task whose stream is read at its own server; its id, as soon as it is known. In the end the
    stream is read to its end."""
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_event(event: bytes) -> None:
        task = read_event(event).task
        if task is not None and not begun.done():
            begun.set_result(task.id)

    ended = connection.start(server.requests.stream(0, text), on_event)
    await asyncio.wait([begun, ended], return_when=asyncio.FIRST_COMPLETED)
    yield begun.result()
    await ended


async def _event_delays(
    server: Server, here: Connection, there: Connection, count: int
) -> list[float]:
    """From the moment at which the skill has a chunk until a reader at the other server has it."""
    delays: list[float] = []
    async with _running(server, here, f"stamped {count}") as task_id:
        since = time.monotonic()

        def on_event(event: bytes) -> None:
            now, update = time.monotonic(), read_event(event).artifact_update
            text = text_of(update.artifact) if update is not None else ""
            # What was there before the reader came was not on its way to the reader.
            delays.extend(now - float(each) for each in text.split() if float(each) > since)

        request = server.requests.about("SubscribeToTask", 1, task_id, stream=True)
        await there.start(request, on_event)
    # The reader marks the task as watched with its first look; the next chunk is told to it.
    return delays[2:]


async def _cancel_times(
    server: Server, here: Connection, there: Connection, count: int
) -> list[float]:
    times: list[float] = []
    for number in range(count):
        async with _running(server, here, "hang") as task_id:
            began = time.monotonic()
            check_canceled(await there.start(server.requests.about("CancelTask", number, task_id)))
            times.append(time.monotonic() - began)
    return times


SCENARIOS = (
    Scenario(
        "webhook-postgres",
        "Delivery to a webhook, on PostgreSQL",
        webhooks,
        (OURS,),
        store="postgres",
        unit="delivery",
        rounds=2,
    ),
    *(
        Scenario(
            f"replicas-{bell}",
            f"Between two servers on one PostgreSQL, told by {title}: an event, a cancel",
            replicas,
            (OURS,),
            store=store,
            unit="event",
            rounds=3,
        )
        for bell, title, store in (
            ("postgres", "PostgreSQL", "postgres"),
            ("nats", "NATS", "postgres-nats"),
        )
    ),
)


def _workers(results: Results, name: str) -> float | None:
    return results.ratio((name, WORKERS), (name, OURS))


GOALS = (
    Goal(
        "send on PostgreSQL: a2a-sdk / ours",
        20,
        lambda r: r.ratio(("send-postgres", SDK), ("send-postgres", OURS)),
    ),
    Goal(
        "send on PostgreSQL, sends a second: ours / a2a-sdk",
        15,
        lambda r: r.ratio(
            ("send-postgres", OURS, "per_second"), ("send-postgres", SDK, "per_second")
        ),
    ),
    *(
        Goal(
            f"{what} at another server, told by {title}: ms, median",
            bound,
            lambda r, bell=bell, field=field: r.median(f"replicas-{bell}", OURS, field),
            at_least=False,
        )
        for bell, title in (("postgres", "PostgreSQL"), ("nats", "NATS"))
        for what, field, bound in (("an event", "p50_ms", 10), ("a cancel", "cancel_ms", 50))
    ),
    *(
        Goal(
            f"CPU of a {what} on {title}: 2 workers / one process",
            1.15,
            lambda r, name=f"{what}-workers-{store}": _workers(r, name),
            at_least=False,
        )
        for store, title in (("postgres", "PostgreSQL"), ("sqlite", "SQLite"))
        for what in ("send", "get")
    ),
)
