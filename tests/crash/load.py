"""Load that remembers: every acknowledgement, every answer and every event it was told.

Nothing here judges the server, except for what is wrong on the spot (an acknowledged task that is
not found, an event out of place); `check.py` compares what is remembered with what was kept.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import msgspec

from crash.client import Client, Down, Event, Lost, Refused, message, sending, state_in
from waiting import before_again, pace, within

FINAL = frozenset(f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
WAITING = "TASK_STATE_INPUT_REQUIRED"

Kind = Callable[[], Coroutine[Any, Any, None]]

TASK_FINISHED, NOT_CANCELABLE, INTERNAL_ERROR = -32004, -32002, -32603


class Faults:
    """Broken promises, by kind, with a few examples of each."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, kind: str, what: object) -> None:
        self.kinds[kind] += 1
        some = self.examples.setdefault(kind, [])
        if len(some) < 3:
            some.append(str(what)[:600])

    def __len__(self) -> int:
        return self.kinds.total()

    def __str__(self) -> str:
        lines = [f"{kind}: {n}" for kind, n in self.kinds.items()]
        lines += [f"  {kind}: {one}" for kind, some in self.examples.items() for one in some]
        return "\n".join(lines) or "none"


class Tale:
    """A task as one reader heard it, over as many connections as it took."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.task_id = ""
        self.events: list[Event] = []
        self.resumes = 0
        self.servers: list[Client] = []
        """Where it was heard, one after the other."""
        self.state = ""
        self.done = False

    @property
    def last(self) -> int:
        return self.events[-1][0] if self.events else 0

    def hear(self, event: Event) -> None:
        if event[0] != self.last + 1:
            self.faults.add("stream out of place", f"{self.task_id} {self.last} -> {event[0]}")
        self.events.append(event)
        self.state = state_in(event[1]) or self.state


class Memory:
    """All that the server has told us."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.acked: dict[str, str] = {}
        """Task ids the server told us, and the kind of task."""
        self.ended: dict[str, Any] = {}
        """Tasks as they were told to us when they had ended: they must never change."""
        self.expected: dict[str, str] = {}
        """The result of a task, where the caller knows it; `*` stands for what a step gave."""
        self.steps: dict[str, int] = {}
        """How many steps a task must have recorded in the end."""
        self.answers: dict[str, str] = {}
        """Acknowledged answers: message id to task id."""
        self.cancels: set[str] = set()
        self.keys: dict[str, set[str]] = {}
        """Idempotency keys and the tasks they were answered with."""
        self.tales: list[Tale] = []
        self.reasons: frozenset[str] = frozenset()
        """Reasons with which a task may fail and be as honest as it can."""
        self.failed: Counter[str] = Counter()
        """Tasks that failed with one of them."""
        self.unanswered = 0
        """Requests that were cut off: nobody knows what became of them."""

    def ack(self, task: Any, kind: str) -> str:
        task_id: str = task["id"]
        self.acked[task_id] = kind
        self.seen(task)
        return task_id

    def seen(self, task: Any) -> None:
        if task["status"]["state"] in FINAL:
            before = self.ended.setdefault(task["id"], task)
            if before != task:
                self.faults.add("an ended task changed", f"{before} -> {task}")


class Load:
    """Callers that keep asking until `enough` is set, then finish what they began."""

    def __init__(self, clients: Sequence[Client], memory: Memory, seed: int) -> None:
        self.memory = memory
        self.enough = asyncio.Event()
        self.clients = clients
        self._dice = random.Random(seed)
        self._quick: list[Kind] = [*[self._echo] * 5, *[self._fire] * 4, *[self._short_stream] * 3]
        self._long: list[Kind] = [
            *[self._long_stream] * 3,
            *[self._steps] * 3,
            *[self._ask] * 4,
            *[self._mixed] * 2,
            *[self._talk] * 3,
            *[self._once] * 3,
            *[self._cancel] * 2,
        ]

    @property
    def client(self) -> Client:
        return self._dice.choice(self.clients)

    async def run(self, quick: int = 6, slower: float = 1.0) -> None:
        """Returns when all that was begun came to its end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(quick):
                group.create_task(self._again_and_again())
            # Long things overlap as they please: after some kills most of them wait their turn.
            places = asyncio.Semaphore(100)
            first = list(dict.fromkeys(self._long))  # each kind, however short the run is
            self._dice.shuffle(first)
            while not self.enough.is_set():
                await places.acquire()
                kind = first.pop() if first else self._dice.choice(self._long)
                long = group.create_task(self._one(kind))
                long.add_done_callback(lambda _: places.release())
                await pace(slower * self._dice.uniform(0.05, 0.2))

    async def _again_and_again(self) -> None:
        while not self.enough.is_set():
            await self._one(self._dice.choice(self._quick))
            await pace(self._dice.uniform(0.01, 0.08))

    async def _one(self, kind: Kind) -> None:
        try:
            await kind()
            return
        except Down:
            pass
        except Lost:
            self.memory.unanswered += 1
            return
        except Refused as exc:
            if not self.is_honest(exc):
                self.memory.faults.add("refused", f"{kind.__name__}: {exc}")
        await before_again()

    def is_honest(self, exc: Refused) -> bool:
        """Whether a refusal is as good as an answer."""
        return False

    # Short things. Whether they were begun at all is open when they are cut off.

    async def _send(self, text: str, skill: str, *, wait: bool, **headers: str) -> str:
        said = message(text, uuid4().hex, skill)
        params = sending(said, wait=wait)
        answer = await self.client.call("SendMessage", params, **headers)
        return self.memory.ack(answer["task"], skill)

    async def _echo(self) -> None:
        text = uuid4().hex
        task_id = await self._send(text, "echo", wait=True)
        self.memory.expected[task_id] = text.upper()
        if task_id not in self.memory.ended:
            self.memory.faults.add("a blocking send came back too early", task_id)

    async def _fire(self) -> None:
        """Begun and left alone."""
        if self._dice.random() < 0.5:
            task_id = await self._send("12 0.02", "count", wait=False)
            self.memory.expected[task_id] = counted(12)
        else:
            task_id = await self._send("3 0.05", "steps", wait=False)
            self.memory.steps[task_id] = 3

    async def _once(self) -> None:
        """The same send again and again until it is answered, and once more: still one task."""
        key, text = uuid4().hex, uuid4().hex
        said = sending(message(text, uuid4().hex, "echo"))
        for _ in range(2):
            task = (await self._surely("SendMessage", said, idempotency_key=key))["task"]
            task_id = self.memory.ack(task, "once")
            self.memory.keys.setdefault(key, set()).add(task_id)
            self.memory.expected[task_id] = text.upper()
            await pace(self._dice.random())

    async def _cancel(self) -> None:
        task_id = await self._send("600 0.1", "count", wait=False)
        self.memory.cancels.add(task_id)
        await pace(self._dice.random())
        try:
            task = await self._surely("CancelTask", {"id": task_id})
            self.memory.seen(task)
        except Refused as exc:
            # An earlier try was cut off, but it was heard.
            if exc.code != NOT_CANCELABLE:
                raise
            task = None
        await self.canceled(task_id, task)

    async def canceled(self, task_id: str, task: Any) -> None:
        """Called with a task that was canceled, and what the answer said of it, if one came."""

    async def _surely(
        self, method: str, params: Any, client: Client | None = None, **headers: str
    ) -> Any:
        while True:
            try:
                return await (client or self.client).call(method, params, **headers)
            except Lost:
                pass
            except Refused as exc:
                if exc.code != INTERNAL_ERROR or not self.is_honest(exc):
                    raise
            await before_again()

    # Long things, followed to their end over any number of crashes.

    async def _short_stream(self) -> None:
        tale = await self._told("8 0.01", "count")
        self.memory.expected[tale.task_id] = counted(8)
        await self._follow(tale)

    async def _long_stream(self) -> None:
        tale = await self._told("80 0.03", "count")
        self.memory.expected[tale.task_id] = counted(80)
        await self._follow(tale)

    async def _steps(self) -> None:
        tale = await self._told("6 0.1", "steps")
        self.memory.steps[tale.task_id] = 6
        await self._follow(tale)

    async def _ask(self) -> None:
        tale = await self._told("go", "ask")
        words = [uuid4().hex[:8], uuid4().hex[:8], "yes"]
        if self._dice.random() < 0.3:
            words = words[: self._dice.choice((0, 1))]  # the caller never comes back
        if await self._converse(tale, words) and len(words) == 3:
            self.memory.expected[tale.task_id] = f"{words[0]} {words[1]} True"

    async def _mixed(self) -> None:
        tale = await self._told("go", "mixed")
        self.memory.steps[tale.task_id] = 2
        await self._converse(tale, [uuid4().hex[:8]])

    async def _talk(self) -> None:
        tale = await self._told("go", "talk")
        self.memory.steps[tale.task_id] = 2
        words = [uuid4().hex[:8], uuid4().hex[:8]]
        if await self._converse(tale, words):
            self.memory.expected[tale.task_id] = f"a {words[0]} b * c * d {words[1]}"

    async def _told(self, text: str, skill: str) -> Tale:
        """Begins a task by a stream; gives its tale as soon as its first event is there."""
        tale = Tale(self.memory.faults)
        said = sending(message(text, uuid4().hex, skill))
        client = self.client
        tale.servers.append(client)
        try:
            async with aclosing(client.stream("SendStreamingMessage", said)) as events:
                async for event in events:
                    tale.hear(event)
                    if not tale.task_id:
                        tale.task_id = task_id_in(event)
                        self.memory.acked[tale.task_id] = skill
                        self.memory.tales.append(tale)
        except Lost:
            if not tale.task_id:
                raise
            tale.resumes += 1
        return tale

    async def _follow(self, tale: Tale) -> None:
        """Hears the rest, until the task ends or asks."""
        while tale.state not in FINAL and tale.state != WAITING:
            await self._resume(tale)
        tale.done = True

    async def _resume(self, tale: Tale) -> None:
        params, cursor = {"id": tale.task_id}, str(tale.last)
        client = self.client
        tale.servers.append(client)
        stream = client.stream("SubscribeToTask", params, last_event_id=cursor)
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    tale.hear(event)
        except Lost:
            tale.resumes += 1
            await before_again()

    async def _converse(self, tale: Tale, words: list[str]) -> bool:
        """Answers every question; tells whether each word was surely given once."""
        certain = True
        for word in words:
            await self._follow(tale)
            if tale.state in FINAL:
                break
            await pace(self._dice.random() * 0.3)
            certain &= await self._answer(tale, word)
            tale.state, tale.done = "", False
        await self._follow(tale)
        return certain

    async def _answer(self, tale: Tale, word: str) -> bool:
        certain = True
        while True:
            said = message(word, uuid4().hex, task_id=tale.task_id)
            params = sending(said, wait=self._dice.random() < 0.3)
            try:
                task = (await self.client.call("SendMessage", params))["task"]
            except Lost:
                certain = False
                if await self._arrived(tale.task_id, said["messageId"]):
                    return certain
            except Refused as exc:
                if certain or exc.code != TASK_FINISHED:
                    raise
                return certain  # an earlier try was cut off, but it was heard
            else:
                self.memory.answers[said["messageId"]] = tale.task_id
                self.memory.seen(task)
                return certain

    async def _arrived(self, task_id: str, message_id: str) -> bool:
        """Whether an answer that was cut off was heard. Time passes until one can tell."""

        async def heard() -> bool:
            task = await self._surely("GetTask", {"id": task_id})
            return any(said["messageId"] == message_id for said in task.get("history", ()))

        return bool(await within(4.0, heard, 0.1))


async def nearly_done(client: Client, memory: Memory, seconds: float) -> None:
    """A task that its server will want to end the moment it wakes up, perhaps even before it
    looks at its lease. The other one has done it all over by then."""
    said = message(f"1 {seconds}", uuid4().hex, "count")
    task = (await client.call("SendMessage", sending(said, wait=False)))["task"]
    memory.expected[memory.ack(task, "count")] = counted(1)


def counted(number: int) -> str:
    """The result of `count`."""
    return "".join(f"{n} " for n in range(number))


def task_id_in(event: Event) -> str:
    """The id of a task that was just opened."""
    return str(msgspec.json.decode(event[1])["result"]["task"]["id"])
