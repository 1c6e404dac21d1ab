"""The webhook queue: claims the due deliveries in the store and passes them to a transport.

Theory. The store determines the next delivery of each webhook and hides a claimed delivery for a
while, so nothing is lost when this process dies, and a webhook has at most one delivery in flight,
which keeps its order. A failed delivery waits for its next attempt, and later events of the same
webhook wait with it (except for the end of a task: `_overtake`). A host that keeps failing a
principal gets only occasional probes (`CircuitBreaker`); deliveries that are postponed for this
reason do not use up an attempt. Receivers that do not respond use up the places of their principal
at their host (`Bulkheads`), never all places, and never those of another principal.

A webhook that receives whole tasks gets the newest state once for all pending events, and a running
task is sent again only after a pause that grows with its size. Otherwise a task of n chunks would
be posted n times, each time larger.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, OrderedDict
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from dragoman import spans
from dragoman.core.errors import DragomanError, TaskNotFound
from dragoman.core.events import Opened, Stamped
from dragoman.core.lifecycle import FINAL, WAITING, added_up
from dragoman.core.log import Logger
from dragoman.core.model import Task
from dragoman.settings import Push
from dragoman.store.bulkheads import Bulkheads, Principal, host_of
from dragoman.store.interface import Delivery, Store

from .circuit_breaker import CircuitBreaker
from .task_ids import now_ms
from .webhook_transport import WebhookAnswer, WebhookTransport

log = Logger("webhooks")

POLL = 1.0
"""Seconds between two checks for due deliveries without a wake-up."""
HOLD = 5.0
"""The most seconds beyond the timeout for which a claimed delivery is hidden from others."""
JITTER = 0.2
LONGEST_ASKED = 3600.0
"""The longest `Retry-After` in seconds that is respected."""
GONE = 410
MOST_HOOKS = 10_000
"""The number of hooks whose pauses and early ends are remembered."""
RATE = 256 * 1024
"""Bytes per second for a webhook that receives a running task as a whole."""
PAUSE = 2.0
"""The longest pause in seconds between two such deliveries."""
OVERTAKES = 600.0
"""Seconds after which the end of a task overtakes an event that the receiver keeps refusing."""
AGED = 100
"""The number of deliveries at the front of the queue whose age is checked."""
OUTCOMES = ("delivered", "retried", "dead", "gone")
"""The outcomes of an attempt: delivered, to be retried, given up, or refused for good (410)."""


class WebhookFigures(Struct, frozen=True, kw_only=True):
    """Figures about the webhooks, for the metrics and the health check."""

    tries: Counter[str]
    """The number of attempts by outcome since this process started."""
    breakers: int
    """The number of hosts whose circuit breaker is open."""
    age: float
    """The age of the oldest undelivered event in seconds."""


class WebhookQueue:
    """Delivers events to the webhooks of an agent's tasks, several concurrently."""

    def __init__(
        self,
        agent: str,
        store: Store,
        sender: WebhookTransport,
        settings: Push,
        *,
        polls: bool = True,
    ) -> None:
        """If it does not poll by itself, somebody calls `wake` when a delivery is due, and the
        queue costs nothing until then."""
        self._polls = polls
        self._started = False
        self._agent = agent
        self.sender = sender
        self.settings = settings
        self._store = store
        self._breaker = CircuitBreaker(settings.failures, settings.probe, log)
        self._pauses: OrderedDict[tuple[str, str], float] = OrderedDict()
        """The loop times until which webhooks that receive whole tasks pause."""
        self._flights: dict[asyncio.Task[None], Delivery] = {}
        self._calls: set[tuple[int, int]] = set()
        """The deliveries and events whose requests are in flight. A flight may last longer: the
        next event is due as soon as the store has recorded the result of this one."""
        self._news = asyncio.Event()
        self._stopping = False
        self._loop: asyncio.Task[None] | None = None
        self._tries: Counter[str] = Counter()
        self._overtaken: OrderedDict[tuple[str, str], None] = OrderedDict()

    def wake(self) -> None:
        """Has the queue look for deliveries that are due."""
        self._news.set()
        if self._loop is None and self._started and not self._stopping:
            self._loop = asyncio.get_running_loop().create_task(self._run())

    def start(self) -> None:
        """Starts to deliver."""
        self._started = True
        if self._polls:
            self.wake()

    async def stop(self, grace: float) -> None:
        """Gives requests in flight `grace` seconds; other deliveries are due again for the next
        process."""
        if not self._started:
            return
        # Not canceled: a delivery that is being claimed at this moment would belong to nobody.
        self._stopping = True
        self.wake()
        if self._loop is not None:
            await asyncio.wait([self._loop])
        if self._flights:
            await asyncio.wait(self._flights, timeout=grace)
        cut_off = dict(self._flights)
        for flight in cut_off:
            flight.cancel()
        if cut_off:
            await asyncio.wait(cut_off)
        for delivery in cut_off.values():
            with suppress(DragomanError):
                await self._store.retry(delivery.id, 0, 0, "stopped", tried=False)
        await self.sender.close()

    async def _run(self) -> None:
        timeout = self.settings.timeout
        hold_ms = int((timeout + min(timeout, HOLD)) * 1000)
        while not self._stopping:
            self._news.clear()
            free = self.settings.parallel - len(self._flights)
            taken: list[Delivery] = []
            if free > 0:
                try:
                    taken = await self._store.claim_deliveries(
                        self._agent, free, hold_ms, self._bulkheads()
                    )
                except DragomanError as exc:
                    log.warning(
                        "Deliveries could not be read from the store", reason=exc.reason, why=exc
                    )
            for delivery in taken:
                if (delivery.id, delivery.seq) in self._calls:
                    await self._hold_on(delivery)
                    continue
                flight = asyncio.get_running_loop().create_task(self._fly(delivery))
                self._flights[flight] = delivery
                flight.add_done_callback(self._landed)
            if self._stopping:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self._news.wait()
            if not self._polls and not self._flights and not self._news.is_set():
                self._loop = None
                return

    async def _hold_on(self, delivery: Delivery) -> None:
        """Postpones a delivery whose request is still in flight (the clock was set, or the request
        takes too long), because a webhook has one request at a time. It costs no attempt."""
        said = (delivery.status, delivery.error)
        with suppress(DragomanError):
            await self._store.retry(delivery.id, int(POLL * 1000), *said, tried=False)

    def _bulkheads(self) -> Bulkheads:
        under_way = [(_owner(one), host_of(one.hook.url)) for one in self._flights.values()]
        return Bulkheads(self.settings.per_principal, self.settings.per_host, under_way)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        del self._flights[flight]
        # The next event of this webhook is due now.
        self._news.set()

    async def _fly(self, delivery: Delivery) -> None:
        try:
            await self._deliver(delivery)
        except DragomanError as exc:
            # The store fails, so the claimed delivery is due again when its claim expires.
            log.warning(
                "A delivery could not be recorded",
                delivery=delivery.id,
                reason=exc.reason,
                why=exc,
            )
        except Exception as exc:
            log.error("A delivery crashed", exc, delivery=delivery.id, task=delivery.hook.task_id)
            with suppress(DragomanError):
                await self._failed(delivery, WebhookAnswer(error=f"crashed: {type(exc).__name__}"))

    async def _deliver(self, delivery: Delivery) -> None:
        hook, now = delivery.hook, asyncio.get_running_loop().time
        host = self.sender.host(hook)
        whole = self.sender.wants_task(hook)
        try:
            pause = await self._pause(delivery, now()) if whole else 0.0
            wait = pause or _spread(self._breaker.wait(host, now(), _owner(delivery)))
            if wait > 0:
                last = WebhookAnswer(status=delivery.status, error=delivery.error)
                await self._later(delivery, wait, last, tried=False)
                return
            found = await (self._whole if whole else self._bare)(delivery)
        except TaskNotFound:
            await self._end(delivery)
            return
        if found is None:
            await self._store.mark_dead(delivery.id, 0, "the event is gone")
            self._tries["dead"] += 1
            return
        if spans.tracer is not None:
            await self._remember_trace(spans.tracer, delivery)
        call = delivery.id, delivery.seq
        self._calls.add(call)
        try:
            answer = await self.sender.deliver(hook, *found)
        finally:
            self._calls.discard(call)
        self._breaker.record(host, now(), failed=answer.blames_host, caller=_owner(delivery))
        through = found[0].seq
        if answer.arrived:
            if whole:
                self._paused(delivery, now() + min(answer.size / RATE, PAUSE))
            await self._store.mark_delivered(delivery.id, through)
            self._tries["delivered"] += 1
        elif answer.status == GONE:
            log.info(
                "A receiver answered 410, so its webhook was deleted",
                task=hook.task_id,
                hook=hook.hook_id,
            )
            await self._end(delivery)
            self._tries["gone"] += 1
        else:
            if not answer.blames_host and now_ms() - found[0].at >= OVERTAKES * 1000:
                # The claim is kept until the webhook is deleted, so that no other call starts.
                with suppress(TaskNotFound):
                    await self._overtake(delivery, through)
            await self._failed(delivery, answer, through)

    async def _pause(self, delivery: Delivery, now: float) -> float:
        """Returns the seconds until a webhook may receive a running task again; final states and
        questions are sent at once."""
        wait = self._pauses.get(_key(delivery), 0.0) - now
        if wait <= 0 or not delivery.last:
            return 0.0
        row = await self._store.row(delivery.scope, delivery.hook.task_id)
        return 0.0 if row.state in FINAL or row.state in WAITING else wait

    def _paused(self, delivery: Delivery, until: float) -> None:
        self._pauses[_key(delivery)] = until
        self._pauses.move_to_end(_key(delivery))
        if len(self._pauses) > MOST_HOOKS:
            self._pauses.popitem(last=False)

    async def _failed(self, delivery: Delivery, answer: WebhookAnswer, through: int = 0) -> None:
        hook, schedule = delivery.hook, self.settings.schedule
        said = (answer.status, answer.error)
        if delivery.attempt >= len(schedule):
            log.error(
                "A delivery was given up",
                task=hook.task_id,
                hook=hook.hook_id,
                seq=delivery.seq,
                status=answer.status,
                error=answer.error,
            )
            await self._store.mark_dead(delivery.id, *said, through)
            self._tries["dead"] += 1
            return
        asked = min(max(0.0, answer.retry_after or 0.0), LONGEST_ASKED)
        wait = max(_spread(schedule[delivery.attempt]), asked)
        await self._later(delivery, wait, answer, tried=True)
        self._tries["retried"] += 1

    async def _overtake(self, delivery: Delivery, through: int) -> None:
        """Sends the end of a task once before an event that the receiver keeps refusing, because
        one event that it cannot read must not hide the result for days. In its turn, the end is
        sent again with the same id."""
        hook, key = delivery.hook, _key(delivery)
        row, task = await self._store.load(delivery.scope, hook.task_id)
        if key in self._overtaken or not row.final or row.last_seq <= through:
            return
        last = replace(delivery, seq=row.last_seq)
        found = await self._bare(last)
        if found is None:
            return
        whole = task if self.sender.wants_task(hook) else None
        if (await self.sender.deliver(hook, found[0], whole)).arrived:
            self._overtaken[key] = None
            if len(self._overtaken) > MOST_HOOKS:
                self._overtaken.popitem(last=False)

    async def _later(
        self, delivery: Delivery, wait: float, said: WebhookAnswer, *, tried: bool
    ) -> None:
        wait_ms = int(wait * 1000) + 1
        await self._store.retry(delivery.id, wait_ms, said.status, said.error, tried=tried)
        if wait < POLL:
            asyncio.get_running_loop().call_later(wait_ms / 1000, self.wake)

    async def _end(self, delivery: Delivery) -> None:
        hook = delivery.hook
        await self._store.delete_hook(delivery.scope, hook.task_id, hook.hook_id)

    async def figures(self, now: int) -> WebhookFigures:
        """Returns figures for the metrics. `now` is the time of the log, in milliseconds."""
        waiting = await self._store.outbox(dead=False, limit=AGED, agent=self._agent)
        # Only the first delivery of a webhook is checked, because later ones are younger.
        heads = {_key(one): one for one in reversed(waiting)}
        found = [await self._happened(head) for head in heads.values()]
        age = max((now - at for at in found if at is not None), default=0)
        return WebhookFigures(
            tries=self._tries, breakers=self._breaker.open, age=max(age, 0) / 1000
        )

    async def _happened(self, delivery: Delivery) -> int | None:
        try:
            entry = await self._bare(delivery)
        except TaskNotFound:
            return None
        return entry[0].at if entry is not None else None

    # The event or the task to send.

    async def _bare(self, delivery: Delivery) -> tuple[Stamped, None] | None:
        task_id, seq = delivery.hook.task_id, delivery.seq
        page = await self._store.read(delivery.scope, task_id, seq - 1, 1)
        return (page.entries[0], None) if page.entries and page.entries[0].seq == seq else None

    async def _remember_trace(self, tracer: spans.Tracer, delivery: Delivery) -> None:
        """Has the tracer know the trace of a task that another process has run, or an earlier
        life of this one."""
        task_id = delivery.hook.task_id
        if tracer.recall(task_id):
            return
        page = await self._store.read(delivery.scope, task_id, 0, 1)
        first = page.entries[0].event if page.entries else None
        if isinstance(first, Opened) and first.trace:
            tracer.remember(task_id, first.trace)

    async def _whole(self, delivery: Delivery) -> tuple[Stamped, Task] | None:
        """Returns the current task with its newest event; for a dead letter, the task of that
        time."""
        task_id, seq = delivery.hook.task_id, delivery.seq
        if delivery.last:
            row, task = await self._store.load(delivery.scope, task_id)
            newest = await self._bare(replace(delivery, seq=row.last_seq))
            return (newest[0], task) if newest is not None else None
        page = await self._store.read(delivery.scope, task_id, 0, seq)
        if not page.entries or page.entries[-1].seq != seq:
            return None
        return page.entries[-1], added_up(page.entries)


def _key(delivery: Delivery) -> tuple[str, str]:
    return delivery.hook.task_id, delivery.hook.hook_id


def _owner(delivery: Delivery) -> Principal:
    return delivery.scope.tenant, delivery.scope.principal


def _spread(seconds: float) -> float:
    """Returns the pause with some jitter, so that not all retries come at the same time."""
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)
