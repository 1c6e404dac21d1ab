"""The addresses of one agent elsewhere: whoever relays a task asks here for a peer.

Theory. A new task goes to the address with the least to do that can be reached, or to that of its
conversation; it waits if all places are taken. What belongs to a task that exists goes to the
address of that task and waits for no place, since the agent works on it anyway. An address that
keeps failing is left alone by its circuit breaker. Whatever fails before a message was sent moves
on to the next address.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from math import ceil
from time import monotonic
from typing import Any, Protocol

from dragoman.client.connection_cache import ConnectionCache, Entered
from dragoman.client.limits import ClientLimits
from dragoman.core.errors import (
    CallError,
    CardUntrusted,
    DragomanError,
    Forbidden,
    PeerError,
    PeerRefused,
    PeerUnreachable,
    TooMany,
    Unauthenticated,
)
from dragoman.core.log import Logger
from dragoman.core.operations import GetTask
from dragoman.core.peer import ANYONE
from dragoman.engine.circuit_breaker import BreakerState, CircuitBreaker
from dragoman.observability.metrics import Histogram
from dragoman.settings import UpstreamLimits

from .answer_timeout import AnswerTimeout
from .fair_queue import FairQueue
from .token_exchange import ActingFor
from .upstream_address import RETRY_AFTER, UpstreamAddress, failure_reason
from .upstream_connections import ConnectedAgent, UpstreamConnections
from .upstream_peer import UpstreamPeer

log = Logger("gateway")
MOST_CONTEXTS = 10_000
"""The conversations whose address is remembered."""
ANSWER = 30.0
"""The seconds for an answer that does not wait for a task, such as a card."""
CHECK = 10.0
"""The seconds that a health check may take."""


class Closing(Protocol):
    """Something with connections of its own, such as the source of our credentials."""

    async def close(self) -> None: ...


class UpstreamPool:
    """The way to an agent at one address or several."""

    def __init__(
        self,
        name: str,
        addresses: Mapping[str, Mapping[str, Any]],
        limits: UpstreamLimits | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        fresh: float = 300.0,
        closing: Iterable[Closing] = (),
        connections: UpstreamConnections | None = None,
        signed_for: str = "",
        caller_name: Callable[[], str] | None = None,
    ) -> None:
        """`addresses` have the options of `connect` for each. `fresh` are the seconds after which
        the card is read again by the next call, if nothing has done it before. `closing` is closed
        with the pool. `connections` are those to agents that came to us; None: the addresses are
        called. `signed_for` tells operators for whom messages are signed, if one is refused.
        `caller_name` returns our name for an agent to which callers introduce themselves."""
        self.name = name
        self.limits = limits or UpstreamLimits()
        times = ClientLimits(
            connect=self.limits.connect_timeout,
            answer=min(ANSWER, self.limits.answer_timeout),
            wait=self.limits.timeout,
            idle=self.limits.idle_timeout,
            patience=0.0,  # a relay waits for an agent that is away
            attempts=1,
            retries=2,
        )
        self.addresses = tuple(
            UpstreamAddress(url, {"limits": times, **options}) for url, options in addresses.items()
        )
        self._only = self.addresses[0] if len(self.addresses) == 1 else None
        self.sticky = self._only is None and self.limits.sticky == "context"
        """Whether a conversation stays at one of several addresses."""
        self._by_label = {each.label: each for each in self.addresses}
        self._closing = tuple(closing)
        self._signed_for = signed_for
        self._cache: UpstreamConnections = connections or ConnectionCache(
            environ=environ, fresh=fresh, name=caller_name
        )
        self.answer_timeout = AnswerTimeout(self.limits.answer_timeout)
        self._breaker = CircuitBreaker(self.limits.failures, self.limits.probe, log)
        self._queue: FairQueue[UpstreamAddress] = FairQueue(
            self.limits.queue, self.limits.queue_timeout, self._give_back, self._busy
        )
        self._contexts: OrderedDict[str, str] = OrderedDict()
        """The addresses of conversations, if they stay at one."""
        self._turns = 0
        self.latency = Histogram()
        self.refused = 0
        """Calls that were refused because the queue was full."""

    @property
    def url(self) -> str:
        """The first address."""
        return self.addresses[0].label

    @property
    def queued(self) -> int:
        """The number of calls that wait for a place."""
        return self._queue.count

    def state(self, address: UpstreamAddress) -> BreakerState:
        """Returns the state of the circuit breaker of an address."""
        return self._breaker.state(address.label, monotonic())

    # Calls.

    def peer(
        self,
        *,
        at: str = "",
        context_id: str = "",
        principal: str = "",
        avoid: Collection[str] = (),
        urgent: bool = False,
        acting: ActingFor | None = None,
    ) -> AbstractAsyncContextManager[UpstreamPeer]:
        """Returns the agent, for the duration of the block.

        `at` is the label of an address: that of a task, or of a message that may have arrived
        there. Without it a place for a new task is waited for, at an address whose label is not in
        `avoid`. A call that is `urgent` is made although the address keeps failing. `acting` is
        the caller for whom the agent is called; None: ourselves.

        Raises `PeerUnreachable` if nothing was sent because no address can be reached, and
        `TooMany` if too many calls wait."""
        return Entered(self._entered(at, context_id, principal, avoid, acting, urgent=urgent))

    def ready_peer(self, context_id: str, acting: ActingFor | None) -> UpstreamPeer | None:
        """Returns the agent for a new task, if it is connected, has a place and did not fail, and
        nobody waits for a place; otherwise None, and `peer` does what has to be waited for. It is
        its own context, which has to be entered at once."""
        if self._queue.count or self._breaker.failing:
            return None
        address = self._only
        if address is None:
            address = self._take((), context_id if self.sticky else "", None)
            if address is None:
                return None
        elif address.in_flight < self.limits.concurrency:
            address.in_flight += 1
        else:
            return None
        connection = self._cache.held(address.url, address.options)
        if connection is None:
            address.in_flight -= 1
            return None
        return UpstreamPeer(self, address, connection, acting).use(connection.use())

    async def _entered(
        self,
        at: str,
        context_id: str,
        principal: str,
        avoid: Collection[str],
        acting: ActingFor | None,
        *,
        urgent: bool,
    ) -> tuple[UpstreamPeer, Callable[[], Awaitable[object]]]:
        passed, why = set(avoid), None
        while True:
            address = (
                self._pinned(at, urgent=urgent)
                if at
                else await self._placed(passed, context_id, principal, why)
            )
            way = self._cache.reach(address.url, address.options)
            peer = UpstreamPeer(self, address, way, acting)
            try:
                return peer.use(await way.__aenter__()), peer.leave
            except BaseException as exc:
                if isinstance(exc, PeerError):
                    reason = failure_reason(exc, heard=False) or exc.reason
                    if isinstance(exc, CardUntrusted):  # it is there, and says more than a breaker
                        address.failed(reason, exc)
                    else:
                        self.failed(address, reason, exc)
                    peer.decided = True
                peer.release()
                if isinstance(exc, PeerUnreachable):
                    exc.sent = False  # only our question for the card was sent
                if at or not isinstance(exc, PeerError):
                    raise
                passed.add(address.label)
                why = why or exc

    async def find(self, task_id: str, *, besides: str, acting: ActingFor | None = None) -> str:
        """Returns the label of another address that has this task, because the addresses share a
        store; empty if there is none."""
        for each in self.addresses:
            if each.label == besides or self.state(each) is not BreakerState.CLOSED:
                continue
            with suppress(CallError, PeerError):
                async with self.peer(at=each.label, acting=acting) as peer:
                    await peer.call(GetTask(task_id=task_id), ANYONE)
                    return each.label
        return ""

    def _pinned(self, label: str, *, urgent: bool) -> UpstreamAddress:
        """Takes an address by its label. If it has been configured away, the agent has moved."""
        now = monotonic()
        address = self._by_label.get(label) or min(
            self.addresses, key=lambda each: self._breaker.seconds_left(each.label, now)
        )
        if self._breaker.wait(address.label, now) and not urgent:
            raise self._unreachable(now)
        address.in_flight += 1
        return address

    async def _placed(
        self, avoid: Collection[str], context_id: str, principal: str, why: DragomanError | None
    ) -> UpstreamAddress:
        """Waits for a place at any address."""
        context = context_id if self.sticky else ""
        return await self._queue.enter(
            principal,
            lambda: self._take(avoid, context, why),
            choosy=bool(avoid or context),
        )

    def _take(
        self, avoid: Collection[str], context: str, why: DragomanError | None
    ) -> UpstreamAddress | None:
        """Takes a place; None if there is none at the moment."""
        now, breaker = monotonic(), self._breaker
        usable = [
            each
            for each in self.addresses
            if each.label not in avoid and not breaker.seconds_left(each.label, now)
        ]
        if not usable:
            raise why or self._unreachable(now)
        if context:
            usable = [self._address_of(context, usable)]
        free = [each for each in usable if each.in_flight < self.limits.concurrency]
        if not free:
            return None
        found = free[0]
        if len(free) > 1:
            found = min(
                free, key=lambda each: (self._is_doubtful(each, now), each.in_flight, each.turn)
            )
        breaker.wait(found.label, now)  # this call may be the probe
        found.in_flight += 1
        self._turns += 1
        found.turn = self._turns
        return found

    def _is_doubtful(self, address: UpstreamAddress, now: float) -> bool:
        """Whether an address is called only if there is no other: it kept failing, and no health
        check has found it alive since."""
        closed = self._breaker.state(address.label, now) is BreakerState.CLOSED
        return not closed and self.limits.health > 0 and not address.alive

    def _address_of(self, context: str, usable: list[UpstreamAddress]) -> UpstreamAddress:
        """Returns the address of a conversation. A new one gets that which every process would
        choose, so that it stays there after a restart as well."""
        known = self._contexts.get(context)
        found = next((each for each in usable if each.label == known), None)
        if found is None:
            found = max(
                usable,
                key=lambda each: hashlib.sha256(f"{context}\0{each.label}".encode()).digest(),
            )
        self._contexts[context] = found.label
        self._contexts.move_to_end(context)
        if len(self._contexts) > MOST_CONTEXTS:
            self._contexts.popitem(last=False)
        return found

    def _unreachable(self, now: float) -> PeerUnreachable:
        seconds = min(self._breaker.seconds_left(each.label, now) for each in self.addresses)
        return PeerUnreachable(
            f"{self.name} cannot be reached; try again later",
            retry_after=str(max(1, ceil(seconds))),
        )

    def _busy(self) -> TooMany:
        self.refused += 1
        return TooMany(
            f"{self.name} has too much to do; try again later", retry_after=str(RETRY_AFTER)
        )

    # What comes of them.

    def answered(self, address: UpstreamAddress, began: float) -> None:
        """Notes the answer to a call that began at this monotonic time."""
        now = monotonic()
        seconds = now - began
        if self._breaker.failing:
            self._breaker.record(address.label, now, failed=False)
        address.answered(seconds, now)
        self.latency.add(seconds)
        if self._queue.count:
            self._queue.serve()

    def failed(self, address: UpstreamAddress, reason: str, exc: DragomanError) -> None:
        """Notes that a call failed."""
        address.failed(reason, exc)
        self._breaker.record(address.label, monotonic(), failed=True)
        if self._queue.count:
            self._queue.serve()

    def undecided(self, address: UpstreamAddress) -> None:
        """Notes that a call ended without an outcome, so that the next one may be the probe."""
        if self._breaker.state(address.label, monotonic()) is BreakerState.HALF_OPEN:
            self._breaker.probe_now(address.label, monotonic())

    def left(self, address: UpstreamAddress) -> None:
        """Gives the place of a call to the next one."""
        address.in_flight -= 1
        if self._queue.count:
            self._queue.serve()

    def _give_back(self, address: UpstreamAddress) -> None:
        """Takes back a place whose call has gone away before it began."""
        self.undecided(address)
        self.left(address)

    # Health checks.

    async def check(self, address: UpstreamAddress) -> ConnectedAgent | None:
        """Asks an address for a sign of life, and returns the agent there with its card as it is
        now; None if it does not answer."""
        address.checked_at = began = monotonic()
        try:
            async with asyncio.timeout(min(CHECK, self.limits.answer_timeout)):
                agent = await self._looked_at(address)
        except (DragomanError, OSError, TimeoutError) as exc:
            error = exc if isinstance(exc, DragomanError) else PeerUnreachable(str(exc) or "silent")
            refused = isinstance(error, Unauthenticated | Forbidden | CardUntrusted)
            if refused and self._signed_for and not isinstance(error, CardUntrusted):
                error = PeerRefused(f"{error.message} ({self._signed_for})")
            address.checks_failed += 1
            tell = log.warning if address.checks_failed == 1 else log.debug
            tell("An agent cannot be reached", agent=self.name, at=address.label, why=error)
            if refused:  # it is there: a call tells its caller more than a circuit breaker
                address.failed("health", error)
            else:
                self.failed(address, "health", error)
            return None
        address.checks_failed = 0
        address.alive = True
        if not address.last_reason or address.last_reason in ("health", "unreachable"):
            self.answered(address, began)
        else:
            # It answers this question; whether it does its work again only a call can tell.
            self._breaker.probe_now(address.label, monotonic())
            self._queue.serve()
        return agent

    async def _looked_at(self, address: UpstreamAddress) -> ConnectedAgent:
        async with self._cache.reach(address.url, address.options) as agent:
            if not await agent.changed():
                return agent
        async with self._cache.reach(address.url, address.options, renew=True) as agent:
            return agent

    async def close(self) -> None:
        """Ends all connections."""
        await self._cache.close()
        for each in self._closing:
            await each.close()
