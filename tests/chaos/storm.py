"""The faults: replicas are killed and paused, the database crashes, NATS is gone, and the lines
between them are cut, held, delayed and split."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from chaos.cluster import LEASE, Cluster, Replica
from client.cutter import Cutter
from crash.client import Client, Lost, Refused
from crash.load import Memory, nearly_done
from waiting import until, within

ASLEEP = LEASE + 2
"""Seconds for which a replica is paused."""
NEARLY = 6
"""Tasks that a replica will want to end when it wakes up."""
HANDS = 2
"""How many faults may be under way at a time, besides those of the lines."""


class Storm:
    """Faults in a random order, spread over a load."""

    def __init__(self, cluster: Cluster, memory: Memory, seed: int, faults: Counter[str]) -> None:
        """`faults` says how many of each kind there are: `kill`, `pause`, `crash` and `bell`."""
        self.cluster, self.memory = cluster, memory
        self.done: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._planned = list(faults.elements())
        self._dice.shuffle(self._planned)
        self._busy = {replica: asyncio.Lock() for replica in cluster.replicas}
        self._crashing, self._ringing = asyncio.Lock(), asyncio.Lock()

    async def rage(self, tasks: int) -> None:
        """All faults, each when its share of the tasks is acknowledged; returns when the last one
        is over and there are as many tasks."""
        lines = asyncio.create_task(self._harm_lines())
        places = asyncio.Semaphore(HANDS)
        total = len(self._planned)
        try:
            async with asyncio.TaskGroup() as group:
                for n, kind in enumerate(self._planned):
                    await until(self._acked(tasks * (n + 1) // (total + 1)), 900)
                    await places.acquire()
                    fault = group.create_task(self._fault(kind))
                    fault.add_done_callback(lambda _: places.release())
            await until(self._acked(tasks), 900)
        finally:
            lines.cancel()
            await asyncio.wait([lines])
            self._calm()

    def _acked(self, number: int) -> Callable[[], bool]:
        return lambda: len(self.memory.acked) >= number

    async def _fault(self, kind: str) -> None:
        match kind:
            case "kill":
                await self._kill(self._any())
            case "pause":
                await self._pause(self._any())
            case "crash":
                await self._crash()
            case "bell":
                await self._silence()
        self.done[kind] += 1

    async def _lasts(self, least: float, most: float) -> None:
        await asyncio.sleep(self._dice.uniform(least, most))  # how long a fault lasts

    def _any(self) -> Replica:
        """One with which nothing is going on, if there is one."""
        calm = [one for one, lock in self._busy.items() if not lock.locked()]
        return self._dice.choice(calm or list(self.cluster.replicas))

    async def _kill(self, replica: Replica) -> None:
        async with self._busy[replica]:
            replica.server.kill()
            await self._lasts(0, 1)
            await revive(replica)

    async def _pause(self, replica: Replica) -> None:
        async with self._busy[replica]:
            direct = Client(replica.server.url)
            for late in range(NEARLY):
                with suppress(Lost, Refused):
                    await nearly_done(direct, self.memory, 0.1 + 0.05 * late)
            replica.pause()
            await self._lasts(ASLEEP, ASLEEP)
            replica.go_on()

    async def _crash(self) -> None:
        async with self._crashing:
            await asyncio.to_thread(self.cluster.database.stop)
            await self._lasts(0, 1)
            await asyncio.to_thread(self.cluster.database.start)

    async def _silence(self) -> None:
        async with self._ringing:
            self.cluster.nats.kill()
            await self._lasts(0.5, 3)
            self.cluster.nats.start()

    # The lines.

    async def _harm_lines(self) -> None:
        while True:
            line = self._dice.choice(self._dice.choice(self.cluster.replicas).lines)
            kind = self._dice.choice(("cut", "cut", "hold", "delay", "split"))
            self.done[kind] += 1
            self._harm(line, kind)
            await self._lasts(0.2, 1.2)
            line.flows.set()
            line.delay, line.split = 0.0, False

    def _harm(self, line: Cutter, kind: str) -> None:
        match kind:
            case "cut":
                line.cut_all()
            case "hold":
                line.flows.clear()
            case "delay":
                line.delay = 0.1
            case "split":
                line.split = True

    def _calm(self) -> None:
        for replica in self.cluster.replicas:
            for line in replica.lines:
                line.flows.set()
                line.delay, line.split = 0.0, False


async def revive(replica: Replica) -> None:
    """Starts a replica as a supervisor does: again, if it ends because its database is away."""
    server = replica.server

    async def ready() -> bool:
        if server.process.poll() is not None:
            server.start()
        try:
            await server.ready(1.0)
        except AssertionError:
            return False
        return True

    assert await within(120, ready, 0.2), server.logged()
