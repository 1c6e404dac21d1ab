"""Load on several replicas: what `crash.load` does, and webhooks, and cancels that are checked
everywhere. An answer that was cut off is given again under the same idempotency key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from crash.client import Client, Refused, message, sending
from crash.load import FINAL, NOT_CANCELABLE, Load, Memory, Tale, counted

CANCELED = "TASK_STATE_CANCELED"


class ChaosMemory(Memory):
    """Also what was told of webhooks and cancels."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks: dict[str, str] = {}
        """The tasks of webhooks, by the ids of the webhooks."""
        self.canceled: dict[str, list[str]] = {}
        """What each replica said about a task after it was canceled at one of them."""


class ChaosLoad(Load):
    """Callers of all replicas, until so many tasks are acknowledged."""

    memory: ChaosMemory

    def __init__(
        self, clients: Sequence[Client], memory: ChaosMemory, seed: int, hook_url: str
    ) -> None:
        super().__init__(clients, memory, seed)
        self._hook_url = hook_url
        self._quick = [*self._quick, *[self._hooked] * 4]

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

    async def _cancel(self) -> None:
        task_id = await self._send("600 0.1", "count", wait=False)
        self.memory.cancels.add(task_id)
        await asyncio.sleep(self._dice.random())  # the pace of a caller
        try:
            self.memory.seen(await self._surely("CancelTask", {"id": task_id}))
        except Refused as exc:
            # An earlier try was cut off, but it was heard.
            if exc.code != NOT_CANCELABLE:
                raise
        told = self.memory.canceled[task_id] = []
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
