"""Load on several replicas: what `crash.load` does, and webhooks, and cancels that are checked
everywhere. An answer that was cut off is given again under the same idempotency key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from crash.check import Kept
from crash.client import Client, Lost, message, sending
from crash.load import FINAL, Load, Memory, Tale, counted
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Task
from dragoman.dialects.a2a.v1_0.convert import task_out
from waiting import before_again

CANCELED = "TASK_STATE_CANCELED"
READS = 2000
"""How many reads are remembered."""


class Read(NamedTuple):
    """A task as a replica told it."""

    task_id: str
    heard: int
    """The seq up to which a reader, perhaps elsewhere, had heard its events before we asked."""
    task: Any


class ChaosMemory(Memory):
    """Also what was told of webhooks and cancels."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks: dict[str, str] = {}
        """The tasks of webhooks, by the ids of the webhooks."""
        self.canceled: dict[str, list[str]] = {}
        """What the answer to a cancel said, and after it each replica."""
        self.reads: list[Read] = []


class ChaosLoad(Load):
    """Callers of all replicas, until so many tasks are acknowledged."""

    memory: ChaosMemory

    def __init__(
        self, clients: Sequence[Client], memory: ChaosMemory, seed: int, hook_url: str
    ) -> None:
        super().__init__(clients, memory, seed)
        self._hook_url = hook_url
        self._quick = [*self._quick, *[self._hooked] * 4]

    async def run(self, quick: int = 6, slower: float = 1.0) -> None:
        """Returns when all that was begun came to its end."""
        reading = asyncio.create_task(self._read_along())
        try:
            await super().run(quick, slower)
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _read_along(self) -> None:
        """Asks any replica for tasks whose streams are being heard."""
        while len(self.memory.reads) < READS:
            await before_again()
            live = [tale for tale in self.memory.tales[-50:] if tale.task_id and not tale.done]
            if live:
                tale = self._dice.choice(live)
                heard = tale.last
                with suppress(Lost):
                    task = await self.client.task(tale.task_id)
                    self.memory.reads.append(Read(tale.task_id, heard, task))

    async def _hooked(self) -> None:
        """A task whose events go to a webhook of its own."""
        name = uuid4().hex
        config = {"id": name, "url": f"{self._hook_url}/{name}", "token": name}
        params = sending(message("4 0.02", uuid4().hex, "count"), wait=False)
        params["configuration"]["taskPushNotificationConfig"] = config
        answer = await self._surely("SendMessage", params, idempotency_key=name)
        task_id = self.memory.ack(answer["task"], "hooked")
        self.memory.expected[task_id] = counted(4)
        self.memory.hooks[name] = task_id

    async def canceled(self, task_id: str, task: Any) -> None:
        """Asks all replicas for it."""
        told = self.memory.canceled[task_id] = [] if task is None else [task["status"]["state"]]
        for client in self.clients:
            task = await self._surely("GetTask", {"id": task_id}, client)
            told.append(task["status"]["state"])
            if task["status"]["state"] in FINAL:
                self.memory.seen(task)

    async def _answer(self, tale: Tale, word: str) -> bool:
        said = message(word, uuid4().hex, task_id=tale.task_id)
        params = sending(said, wait=self._dice.random() < 0.3)
        task = (await self._surely("SendMessage", params, idempotency_key=uuid4().hex))["task"]
        self.memory.answers[said["messageId"]] = tale.task_id
        self.memory.seen(task)
        return True


def check_reads(memory: ChaosMemory, kept: dict[str, Kept]) -> None:
    """What anyone has heard before is part of what any replica tells: none tells of the past."""
    for read in memory.reads:
        if read.task_id in kept and not _is_told(kept[read.task_id], read):
            memory.faults.add("a read of the past", f"{read.task_id} after {read.heard}")


def _is_told(one: Kept, read: Read) -> bool:
    fold = Fold(one.task_id, one.context_id)
    for entry in one.entries:
        fold.add(entry)
        if entry.seq >= read.heard and told_as(fold.task()) == read.task:
            return True
    return False


def told_as(task: Task) -> Any:
    """A task as JSON."""
    return msgspec.json.decode(msgspec.json.encode(task_out(task)))


def check_cancels(memory: ChaosMemory) -> None:
    """A canceled task is canceled wherever one asks."""
    for task_id, states in memory.canceled.items():
        if any(state != CANCELED for state in states):
            memory.faults.add("cancel is not true everywhere", f"{task_id} {states}")


def check_hooks(memory: ChaosMemory, stored: dict[str, list[Any]], lengths: dict[str, int]) -> None:
    """Every event has come to its webhook, none before those that precede it, and a repetition is
    the same call."""
    faults = memory.faults
    for name, task_id in memory.hooks.items():
        calls = stored.get(f"/hook/{name}", [])
        first: dict[int, Any] = {}
        for call in calls:
            known = first.setdefault(call.seq, call)
            if (known.id, known.body) != (call.id, call.body):
                faults.add("a repeated webhook differs", f"{task_id} {known.id} {call.id}")
        if list(first) != sorted(first):
            faults.add("a webhook was overtaken", f"{task_id} {[call.seq for call in calls]}")
        if task_id in lengths and sorted(first) != list(range(1, lengths[task_id] + 1)):
            faults.add("a webhook was lost", f"{task_id} {sorted(first)} of {lengths[task_id]}")
