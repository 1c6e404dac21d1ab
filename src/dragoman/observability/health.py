"""The endpoints `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol, runtime_checkable

from dragoman.core.outage import Outage
from dragoman.engine.webhook_queue import WebhookFigures
from dragoman.net.http.asgi import TEXT, Handler, Receive, Scope, Send, answer
from dragoman.net.server_context import ServerContext
from dragoman.net.service import OtherWorkers
from dragoman.security.route_policy import Policy, policy

from .log import Log
from .metrics import AgentFigures, Family, added_up, exposition

KIND = "metrics"
"""The kind of our figures, for the other processes of a server."""


class TaskCounts(Protocol):
    """A peer that can say how many tasks it holds in which state."""

    def counts(self) -> Awaitable[Mapping[str, int]]:
        """Returns the number of tasks by state, and the length of the queue."""


@runtime_checkable
class OutboxCounts(Protocol):
    """A peer that delivers webhooks."""

    def mail(self) -> Awaitable[WebhookFigures | None]:
        """Returns the figures of the deliveries."""


@runtime_checkable
class Keeping(Protocol):
    """A peer that keeps tasks in a store."""

    @property
    def outage(self) -> Outage:
        """Whether the store does not work now."""

    def probe(self) -> Awaitable[None]:
        """Writes to the store, and raises the error that prevents it."""


KEPT = 3.0
"""The seconds for which the result of one look at the store is reused."""
PATIENCE = 4.0
"""The seconds that the store may take."""


class HealthEndpoints:
    """Answers the health checks of a supervisor and the scrapes of Prometheus."""

    def __init__(
        self,
        log: Log,
        agents: Callable[[], Iterable[tuple[str, ServerContext, TaskCounts]]],
        why_not_ready: Callable[[], str],
        blocked: Callable[[], int],
        streams: Collection[object],
        more: Callable[[], Iterable[Family]] = tuple,
    ) -> None:
        """`agents` tells those that the server has now, each with its label in the metrics, which
        the only one does not have. `why_not_ready` returns nothing if the server is ready.
        `streams` are those that are open, and `more` the figures of services."""
        self._log, self._agents, self._blocked = log, agents, blocked
        self._why_not_ready = why_not_ready
        self._streams, self._more = streams, more
        self.others: Callable[[], Awaitable[Iterable[bytes]]] | None = None
        """Returns the figures of the other processes of the server."""
        self._looking = asyncio.Lock()
        self._look_at = 0.0
        self._problem = ""

    def join(self, others: OtherWorkers) -> None:
        """Shares the figures with the other processes of the server."""
        others.own[KIND] = self.own_figures
        self.others = partial(others.figures, KIND)

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Returns the routes of the three endpoints."""
        return {
            "/healthz": {"GET": self.health, "HEAD": self.health},
            "/readyz": {"GET": self.readiness, "HEAD": self.readiness},
            "/metrics": {"GET": self.metrics},
        }

    @policy(Policy.OPEN)
    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers 200 as long as the process can answer at all."""
        await answer(send, 200, b"ok\n", TEXT, head=scope["method"] == "HEAD")

    @policy(Policy.OPEN)
    async def readiness(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers 200 between start and stop, while the store takes what is written to it, and
        otherwise says what is wrong."""
        problem = self._why_not_ready() or await self._problem_of_store()
        body = f"{problem}.\n".encode() if problem else b"ready\n"
        status = 503 if problem else 200
        await answer(send, status, body, TEXT, head=scope["method"] == "HEAD")

    async def _problem_of_store(self) -> str:
        """Returns why the store does not take what is written to it, or nothing. Requests that come
        together share one look."""
        loop = asyncio.get_running_loop()
        async with self._looking:
            if loop.time() >= self._look_at:
                self._problem = await self._look()
                self._look_at = loop.time() + KEPT
            return self._problem

    async def _look(self) -> str:
        # Peers that share a store need one look at it.
        peers = {id(getattr(each, "store", each)): each for _, _, each in self._agents()}
        counted: TaskCounts | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                for counted in peers.values():
                    if isinstance(counted, Keeping):
                        await counted.probe()
                        counted.outage.end()
                    else:
                        await counted.counts()
        except Exception as exc:  # whatever the store's trouble is, we are not ready
            if not isinstance(counted, Keeping):
                self._log.warning("An agent cannot count its tasks", exception=type(exc).__name__)
                return "An agent cannot count its tasks"
            outage = counted.outage
            late = isinstance(exc, TimeoutError)
            outage.begin("does not answer" if late else "cannot be written", type(exc).__name__)
            return str(outage)
        return ""

    @policy(Policy.METRICS)
    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with all counters, those of the other processes of the server included."""
        text = await self.own_figures()
        if self.others is not None:
            text = added_up(text, await self.others())
        await answer(send, 200, text, (b"content-type", b"text/plain; version=0.0.4"))

    async def own_figures(self) -> bytes:
        """Returns the counters of this process."""
        figures = [
            await self._figures(label, server, counted)
            for label, server, counted in tuple(self._agents())
        ]
        return exposition(
            figures, streams=len(self._streams), blocked=self._blocked(), more=self._more()
        )

    async def _figures(
        self, label: str, server: ServerContext, counted: TaskCounts
    ) -> AgentFigures:
        counts: Mapping[str, int] = {}
        mail: WebhookFigures | None = None
        try:
            counts = await counted.counts()
            if isinstance(counted, OutboxCounts):
                mail = await counted.mail()
        except Exception as exc:  # the rest is worth having without them
            self._log.warning(
                "The tasks of an agent cannot be counted", exception=type(exc).__name__
            )
        return AgentFigures(label, server.metrics, counts, mail)
