"""Replicas on one PostgreSQL and one NATS while everything fails: nothing that was told is ever
taken back."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from chaos.cluster import FAKETIME, AnyReplica, Cluster, cluster
from chaos.load import ChaosLoad, ChaosMemory, check_cancels, check_hooks, check_reads
from chaos.storm import Storm
from chaos.writers import read_writers
from counts import FULL
from crash.check import Counts, check_kept, check_told, count, settled, summary
from crash.client import Outage, OutageClient
from crash.postgres_check import read_postgres, unsettled_hooks, unsettled_postgres
from webhooks.receiver import Moody, Receiver

SEED = int(os.environ.get("CRASH_SEED", "17"))
REPLICAS = 3 if FULL else 2
TASKS = int(os.environ.get("CHAOS_TASKS", "10000" if FULL else "60"))
FAULTS = {"kill": 30, "pause": 20, "crash": 5, "bell": 5}
"""What fails while 10,000 tasks are acknowledged."""
QUICK, PACE = (24, 0.5) if FULL else (6, 1.0)
"""How many callers begin short tasks all the time, and how slowly long ones are begun."""
LIMIT = 1500.0
"""Seconds that the faults may take. An idle machine needs less than half of that."""
SETTLE = 240.0 if FULL else 120.0


async def under_chaos(
    everything: Cluster, memory: ChaosMemory, outage: Outage, faults: Counter[str], tasks: int
) -> tuple[Storm, Moody]:
    """Load and faults, then everything comes to rest by itself."""
    moody = Moody(SEED)
    url = everything.database.url
    async with Receiver(moody) as receiver:
        clients = everything.clients(lambda where: OutageClient(where, outage))
        load = ChaosLoad(clients, memory, SEED, receiver.url)
        # A refusal is as good as no answer, until everything has come to rest again: the database
        # is away, or has so much to do that a caller has to wait for too long.
        outage.begin()
        loading = asyncio.create_task(load.run(QUICK, PACE))
        storm = Storm(everything, memory, SEED, faults)
        raging = asyncio.create_task(asyncio.wait_for(storm.rage(tasks), LIMIT))
        try:
            done, _ = await asyncio.wait([loading, raging], return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
            load.enough.set()
            await settled(loading, lambda: unsettled_postgres(url) + unsettled_hooks(url), SETTLE)
        finally:
            for one in (loading, raging):
                one.cancel()
            await asyncio.wait([loading, raging])
    return storm, moody


async def verdict(everything: Cluster, memory: ChaosMemory, moody: Moody) -> tuple[Counts, int]:
    """Over HTTP at all replicas, then from what lies in the database."""
    url = everything.database.url
    clients = everything.clients()
    compared = await check_told(memory, read_postgres(url), AnyReplica(clients), 60)
    for replica in everything.replicas:
        code, _ = await replica.server.stop()
        assert code == 0, replica.server.logged()
    kept = read_postgres(url)
    check_kept(memory, kept, everything.ledger, alone=False)
    check_cancels(memory)
    check_reads(memory, kept)
    lengths = {task_id: one.last_seq for task_id, one in kept.items()}
    check_hooks(memory, moody.stored, lengths)
    appends, stray = await read_writers(url)
    for one in stray:
        memory.faults.add("event of a fenced writer", one)
    kills = sum(replica.server.lives - 1 for replica in everything.replicas)
    return count(memory, kept, everything.ledger, kills, compared), appends


@pytest.mark.slow
@pytest.mark.parametrize("bell", ["nats", "off"] if FULL else ["nats"])
async def test_replicas_keep_every_promise_while_everything_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bell: str
) -> None:
    """Without a bell the same happens on a smaller scale."""
    tasks = TASKS if bell == "nats" else TASKS // 20
    faults = Counter({kind: max(1, round(n * tasks / 10_000)) for kind, n in FAULTS.items()})
    memory, outage = ChaosMemory(), Outage()
    began = time.monotonic()
    async with cluster(tmp_path, REPLICAS, bell=bell == "nats") as everything:
        storm, moody = await under_chaos(everything, memory, outage, faults, tasks)
        counts, appends = await verdict(everything, memory, moody)
        fenced, log = everything.fenced(), everything.logged()
    moved = sum(1 for tale in memory.tales if len(set(tale.servers)) > 1)
    with capsys.disabled():
        done = " ".join(f"{kind}={n}" for kind, n in sorted(storm.done.items()))
        clocks = "clocks differ by 60 s" if FAKETIME is not None else "one clock"
        print(
            f"\n  chaos, {REPLICAS} replicas, bell {bell}, {clocks}, seed {SEED}: {done}"
            f" fenced={fenced} appends={appends} moved-streams={moved}"
            f" webhooks={len(memory.hooks)} webhook-calls={moody.calls}"
            f" reads={len(memory.reads)} canceled-everywhere={len(memory.canceled)}"
            f" refused={outage.refusals}"
            f" seconds={time.monotonic() - began:.0f}\n  {summary(counts, memory)}"
        )
    assert not memory.faults, f"{memory.faults}\n{log}"
    assert counts.acked >= tasks
    assert {kind: storm.done[kind] for kind in faults} == faults
    assert appends > tasks
    assert moved >= 1
    assert memory.hooks
    assert memory.canceled
    assert counts.reruns >= 1
    assert fenced >= (1 if FULL else 0)
