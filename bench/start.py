"""How long a server takes from its start to the first answered send, and its memory by then."""

import time

from .goal import Goal
from .load import connections
from .peers import OURS, Server
from .sample import Pace, Sample
from .scenario import Scenario
from .wire import ECHO_TEXT, task_sent

SDK = "a2a-sdk"


async def first_send(server: Server, pace: Pace) -> Sample:
    """From the start of the process until it has answered a send."""
    subject = server.subject
    async with connections(server.port, 1) as (connection,):
        body = await connection.start(server.requests.send(1, ECHO_TEXT))
    taken = time.perf_counter() - server.began
    task_sent(body, subject.words, early=subject.answers_early)
    return Sample(
        start_seconds=taken,
        start_cpu_seconds=server.cpu_seconds(),
        kib=float(server.rss_kib()),
    )


SCENARIOS = (
    Scenario(
        "cold-start",
        "Start, until the first send is answered",
        first_send,
        (OURS, SDK, "fasta2a", "a2a-js"),
    ),
    Scenario(
        "cold-start-sqlite",
        "Start on a new SQLite file, until the first send is answered",
        first_send,
        (OURS, SDK),
        store="sqlite",
    ),
)
GOALS = (
    *(
        Goal(
            f"seconds from the start of `serve` {where} to its first answer",
            0.35,
            lambda r, row=row: r.median(row, OURS, "start_seconds"),
            at_least=False,
        )
        for row, where in (("cold-start", "in memory"), ("cold-start-sqlite", "on SQLite"))
    ),
    Goal(
        "MiB of `serve` in memory at its first answer",
        45,
        lambda r: kib / 1024 if (kib := r.median("cold-start", OURS, "kib")) else None,
        at_least=False,
    ),
)
