"""What is measured: each scenario puts one kind of load on one fresh server."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from . import queues, scaling, start
from .grpc_load import GrpcChannel, channels
from .iat_load import Http2, WebSocket, line
from .link_load import links
from .load import Connection, Exchange, connections, drive
from .peers import BARE, BARE_POLICY, GATEWAY, LINKS, NGINX, OURS, REGISTRY, WORKERS, Server
from .registry_load import searches
from .sample import CONNECTIONS, SETTLE, Pace, Sample, sample_of, timed
from .scenario import Scenario
from .wire import (
    ECHO_TEXT,
    RestRequests,
    StreamCheck,
    WrongAnswer,
    check_task_got,
    enveloped,
    task_sent,
)

CHUNKS = 20
CELL_TIMEOUT = 120.0
TASKS_TO_GET = 64


async def measured(server: Server, scenario: Scenario, pace: Pace, subject: str) -> Sample:
    """Run the scenario once, within bounds."""
    async with asyncio.timeout(CELL_TIMEOUT):
        if scenario.clients:
            from .callers import calls  # it needs what is defined here

            return await calls(server, pace, subject, scenario.clients)
        return await scenario.run(server, pace)


def sends(count: int) -> Callable[[Server, Pace], Awaitable[Sample]]:
    """Echoes, one after the other on each connection; so many connections for each process."""

    async def run(server: Server, pace: Pace) -> Sample:
        requests, words = server.requests, server.subject.words
        early = server.subject.answers_early
        recent: dict[Connection, str] = {}

        async def exchange(connection: Connection, number: int) -> None:
            body = await connection.start(requests.send(number, ECHO_TEXT))
            recent[connection] = task_sent(body, words, early=early)

        async def all_done(connection: Connection) -> None:
            for task_id in recent.values() if early else ():
                await _wait_completed(server, connection, task_id)

        each = count * server.subject.processes
        return await timed(server, pace, each, exchange, before_reading=all_done)

    return run


async def gets(server: Server, pace: Pace) -> Sample:
    """Reads of finished tasks."""
    requests, words = server.requests, server.subject.words
    tasks: list[str] = []
    async with connections(server.port, 1) as (connection,):
        for number in range(TASKS_TO_GET):
            body = await connection.start(requests.send(number, ECHO_TEXT))
            tasks.append(task_sent(body, words, early=server.subject.answers_early))
            await _wait_completed(server, connection, tasks[-1])

    async def exchange(connection: Connection, number: int) -> None:
        body = await connection.start(requests.get(number, tasks[number % len(tasks)]))
        check_task_got(body, words)

    return await timed(server, pace, CONNECTIONS, exchange)


async def rest_sends(server: Server, pace: Pace) -> Sample:
    """Echoes over REST, to compare with those over JSON-RPC."""
    requests, words = RestRequests(server.port), server.subject.words

    async def exchange(connection: Connection, number: int) -> None:
        body = await connection.start(requests.send(number, ECHO_TEXT))
        task_sent(enveloped(body), words, early=False)

    return await timed(server, pace, CONNECTIONS, exchange)


async def grpc_sends(server: Server, pace: Pace) -> Sample:
    """Echoes over gRPC, each connection its own channel."""
    numbers = itertools.count(1)
    warm_up = server.subject.warm_up * pace.warm_up_share
    async with channels(server.grpc_port, CONNECTIONS) as opened:
        await opened[0].send(0, ECHO_TEXT)
        await drive(opened, GrpcChannel.echo, numbers=numbers, seconds=warm_up)
        cpu = server.cpu_seconds()
        burst = await drive(opened, GrpcChannel.echo, numbers=numbers, seconds=pace.seconds)
        await asyncio.sleep(SETTLE)
        cpu = server.cpu_seconds() - cpu
    return sample_of(burst, cpu, units=burst.count)


def iat_executes(
    kind: type[Http2] | type[WebSocket], exchange: Callable[[Any, int], Awaitable[None]]
) -> Callable[[Server, Pace], Awaitable[Sample]]:
    """Echoes over IAT: one connection, as many calls at once as the others have connections."""

    async def run(server: Server, pace: Pace) -> Sample:
        numbers = itertools.count(1)
        warm_up = server.subject.warm_up * pace.warm_up_share
        async with line(kind, server.port) as opened:
            calls = [opened] * CONNECTIONS
            await drive(calls, exchange, numbers=numbers, seconds=warm_up)
            cpu = server.cpu_seconds()
            burst = await drive(calls, exchange, numbers=numbers, seconds=pace.seconds)
            await asyncio.sleep(SETTLE)
            cpu = server.cpu_seconds() - cpu
        return sample_of(burst, cpu, units=burst.count)

    return run


async def rest_gets(server: Server, pace: Pace) -> Sample:
    """Reads of finished tasks over REST."""
    requests, words = RestRequests(server.port), server.subject.words
    async with connections(server.port, 1) as (connection,):
        bodies = [
            await connection.start(requests.send(number, ECHO_TEXT))
            for number in range(TASKS_TO_GET)
        ]
    tasks = [task_sent(enveloped(body), words, early=False) for body in bodies]

    async def exchange(connection: Connection, number: int) -> None:
        body = await connection.start(requests.get(tasks[number % len(tasks)]))
        check_task_got(enveloped(body), words)

    return await timed(server, pace, CONNECTIONS, exchange)


def streams(command: str) -> Callable[[Server, Pace], Awaitable[Sample]]:
    """Streams of a few chunks, each read to its end."""

    async def run(server: Server, pace: Pace) -> Sample:
        return await timed(server, pace, CONNECTIONS, _streaming(server, command, CHUNKS))

    return run


def chunks(length: int) -> Callable[[Server, Pace], Awaitable[Sample]]:
    """The cost of a chunk in streams of this length, the same number of chunks for any length."""

    async def run(server: Server, pace: Pace) -> Sample:
        count = max(1, int(server.subject.chunk_total * pace.chunk_share) // length)
        exchange = _streaming(server, "chunks", length)
        warm = _streaming(server, "chunks", CHUNKS)
        async with connections(server.port, min(CONNECTIONS, count)) as opened:
            await drive(opened, warm, numbers=itertools.count(), seconds=server.subject.warm_up)
            cpu = server.cpu_seconds()
            burst = await drive(opened, exchange, numbers=iter(range(count)))
            await asyncio.sleep(SETTLE)
            cpu = server.cpu_seconds() - cpu
        return sample_of(burst, cpu, units=count * length)

    return run


async def idle_streams(server: Server, pace: Pace) -> Sample:
    """Memory of streams that stay open with nothing to say, each on its own connection."""
    requests, words = server.requests, server.subject.words
    count = pace.idle_streams

    async def begin(connection: Connection, number: int) -> None:
        begun = asyncio.get_running_loop().create_future()
        check = StreamCheck(words)

        def on_event(event: bytes) -> None:
            check.read(event)
            if check.chunks and not begun.done():
                begun.set_result(None)

        ended = connection.start(requests.stream(number, "hang"), on_event)
        await asyncio.wait([begun, ended], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
            raise WrongAnswer("a stream that was to stay open ended")

    async with connections(server.port, CONNECTIONS) as opened:
        # What a server loads and allocates once must not count as the streams' memory; but not
        # much more than that, or the streams hide in what the warming up has left free.
        warm = _streaming(server, "chunks", CHUNKS)
        await drive(opened, warm, numbers=iter(range(2 * CONNECTIONS)))
        await asyncio.sleep(SETTLE)
        before = server.rss_kib()
        async with connections(server.port, count) as idle:
            for number, connection in enumerate(idle):
                await begin(connection, number)
            await asyncio.sleep(0.5)
            return Sample(kib=(server.rss_kib() - before) / count, requests=count)


def _streaming(server: Server, command: str, length: int) -> Exchange:
    requests, words = server.requests, server.subject.words
    text = f"{command} {length}"

    async def exchange(connection: Connection, number: int) -> None:
        check = StreamCheck(words)
        await connection.start(requests.stream(number, text), check.read)
        check.finish(length)

    return exchange


async def _wait_completed(server: Server, connection: Connection, task_id: str) -> None:
    """Wait for a task whose send was answered before its work was done."""
    requests, words = server.requests, server.subject.words
    for attempt in itertools.count():
        body = await connection.start(requests.get(attempt, task_id))
        try:
            return check_task_got(body, words)
        except WrongAnswer:
            if not server.subject.answers_early or attempt == 100:
                raise
            await asyncio.sleep(0.01)


A2A_SERVERS = (OURS, "a2a-sdk", "fasta2a", "a2a-js")
DURABLE = (OURS, "a2a-sdk")
RELAYS = (OURS, GATEWAY, NGINX)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("send", "Send, in memory", sends(CONNECTIONS), (*A2A_SERVERS, BARE, BARE_POLICY)),
        Scenario("send-sqlite", "Send, on SQLite", sends(CONNECTIONS), DURABLE, store="sqlite"),
        Scenario(
            "send-postgres", "Send, on PostgreSQL", sends(CONNECTIONS), DURABLE, store="postgres"
        ),
        Scenario("get", "Get of a finished task", gets, A2A_SERVERS),
        Scenario("send-rest", "Send over REST, in memory", rest_sends, (OURS,)),
        Scenario("send-grpc", "Send over gRPC, in memory", grpc_sends, DURABLE, grpc=True),
        *(
            Scenario(
                name, f"IAT execute, {title}", iat_executes(kind, exchange), (OURS,), unit="call"
            )
            for name, title, kind, exchange in (
                ("execute-h2", "one HTTP/2 connection", Http2, Http2.execute),
                ("execute-ws", "one WebSocket", WebSocket, WebSocket.execute),
                ("follow-ws", "one WebSocket, every step told", WebSocket, WebSocket.follow),
            )
        ),
        Scenario("get-rest", "Get of a finished task over REST", rest_gets, (OURS,)),
        Scenario(
            "stream-ready",
            f"Stream of {CHUNKS} chunks, ready together",
            streams("chunks"),
            A2A_SERVERS,
            unit="stream",
        ),
        Scenario(
            "stream-spaced",
            f"Stream of {CHUNKS} chunks, 5 ms apart",
            streams("spaced"),
            A2A_SERVERS,
            unit="stream",
        ),
        *(
            Scenario(
                f"stream-spaced-{store}",
                f"Stream of {CHUNKS} chunks, 5 ms apart, on {title}",
                streams("spaced"),
                (OURS,),
                store=store,
                unit="stream",
            )
            for store, title in (("sqlite", "SQLite"), ("postgres", "PostgreSQL"))
        ),
        Scenario("chunks-500", "Chunk in streams of 500", chunks(500), A2A_SERVERS, unit="chunk"),
        Scenario(
            "chunks-5000", "Chunk in streams of 5,000", chunks(5000), A2A_SERVERS, unit="chunk"
        ),
        Scenario(
            "send-one",
            "Send, in memory, one connection",
            sends(1),
            (*A2A_SERVERS, BARE, BARE_POLICY),
        ),
        Scenario("send-one-sqlite", "Send, on SQLite, one connection", sends(1), DURABLE, "sqlite"),
        Scenario(
            "send-one-postgres",
            "Send, on PostgreSQL, one connection",
            sends(1),
            (OURS,),
            "postgres",
        ),
        Scenario(
            "client-send",
            f"Client CPU of a send to our server, {CONNECTIONS} at once",
            sends(CONNECTIONS),
            DURABLE,
            unit="call",
            clients="send",
        ),
        Scenario(
            "client-stream",
            f"Client CPU of a stream of {CHUNKS} chunks from our server, {CONNECTIONS} at once",
            streams("chunks"),
            DURABLE,
            unit="stream",
            clients="stream",
        ),
        *(
            Scenario(
                f"relay-{unit if unit == 'stream' else 'send'}",
                f"{title} through a proxy: its CPU, beside ours directly",
                run,
                RELAYS,
                unit=unit,
            )
            for unit, title, run in (
                ("request", "Send", sends(CONNECTIONS)),
                ("stream", f"Stream of {CHUNKS} chunks", streams("chunks")),
            )
        ),
        *(
            Scenario(
                f"agents-{count}",
                f"GET /agents?skill=, {count:,} agents registered, and the memory of each",
                searches(count),
                (REGISTRY,),
            )
            for count in (10, 1000)
        ),
        Scenario(
            "links-500",
            "Task every second on each of 500 XiaoYi links, on SQLite, and the memory of a link",
            links(500),
            (LINKS,),
            store="sqlite",
            unit="task",
        ),
        *(
            Scenario(
                f"{name}-workers-{store}",
                f"{title}, on {'SQLite' if store == 'sqlite' else 'PostgreSQL'}, "
                f"{CONNECTIONS} connections for each process",
                run,
                (OURS, WORKERS),
                store=store,
                spread=True,
                rounds=3,
            )
            for store in ("sqlite", "postgres")
            for name, title, run in (
                ("send", "Send", sends(CONNECTIONS)),
                ("get", "Get of a finished task", scaling.gets_with_wrk),
            )
        ),
        *scaling.SCENARIOS,
        *queues.SCENARIOS,
        Scenario("idle-stream", "Memory of an idle stream", idle_streams, A2A_SERVERS),
        *start.SCENARIOS,
    )
}
