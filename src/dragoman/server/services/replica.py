"""Reports this process to the others on the same store, and answers `/dragoman/replicas`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from dragoman import __version__
from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.core.model import Json
from dragoman.engine import Engine
from dragoman.net.http.asgi import Handler, Receive, Scope, Send, answer
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Service
from dragoman.security.route_policy import Policy, policy
from dragoman.store import Store
from dragoman.store.clock import wall_clock
from dragoman.store.replicas import ReplicaReport, listed

from ..workers import current_worker
from .factories import ServiceContext

log = Logger("replicas")

PATH = "/dragoman/replicas"
RENEWED = 5.0
"""The seconds between two reports."""


class ReplicaService(Service):
    """Reports what this process does, if its store is one that processes share."""

    name = "replica"

    def __init__(
        self,
        agents: Callable[[], Mapping[str, ServiceContext]],
        server: ServerContext,
        url: Callable[[], str],
    ) -> None:
        """`agents` returns the current agents, and `url` the address of the server, if it is
        known."""
        self._agents, self._server, self._url = agents, server, url
        worker = current_worker()
        self._first = ReplicaReport(
            id=os.urandom(8).hex(),
            host=socket.gethostname(),
            pid=os.getpid(),
            number=worker.number if worker is not None else 0,
            version=__version__,
            started_at=wall_clock(),
        )
        self._totals = (0, 0, 0)
        self._since = 0.0
        self._reporting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts to report."""
        self._since = asyncio.get_running_loop().time()
        store = self._store()
        if store is not None and store.shared:
            self._reporting = asyncio.get_running_loop().create_task(self._report(store))

    async def drain(self) -> None:
        """Says that this process stops."""
        if self._reporting is None:
            return
        self._reporting.cancel()
        await asyncio.wait([self._reporting])
        self._reporting = None
        store = self._store()
        if store is not None:
            await _put(store, replace(self._current(), stopping=True))

    async def _report(self, store: Store) -> None:
        while True:
            await _put(store, self._current())
            await asyncio.sleep(RENEWED)

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """The address of the list of replicas."""
        return {PATH: {"GET": self.page, "HEAD": self.page}}

    @policy(Policy.METRICS)
    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with all replicas of the store, and with what waits in its queues."""
        store = self._store()
        if store is None:
            found = [self._current()]
            queues: dict[str, int] = {}
        else:
            known = await store.replicas.all() if store.shared else []
            others = [each for each in known if each.id != self._first.id]
            found = listed([*others, self._current()])
            queues = await queues_of(store, found)
        body = msgspec.json.encode(replicas_out(found, queues))
        headers = ((b"cache-control", b"no-store"),)
        await answer(send, 200, body, extra=headers, head=scope["method"] == "HEAD")

    def _engines(self) -> Iterator[Engine]:
        found = (context.engine for context in self._agents().values())
        return (engine for engine in found if isinstance(engine, Engine))

    def _store(self) -> Store | None:
        return next((engine.store for engine in self._engines()), None)

    def _current(self) -> ReplicaReport:
        runners = [engine.runner for engine in self._engines()]
        waiting = sum(len(runner.parked) for runner in runners)
        opened = self._server.opened
        totals = self._count()
        now = asyncio.get_running_loop().time()
        seconds = max(now - self._since, 0.001)
        rates = [
            round((after - before) / seconds, 1)
            for after, before in zip(totals, self._totals, strict=True)
        ]
        # A question between two reports must not shorten the time over which the next one counts.
        if seconds >= RENEWED / 2:
            self._totals, self._since = totals, now
        return replace(
            self._first,
            url=self._url(),
            agents=tuple(sorted(engine.name for engine in self._engines())),
            running=sum(len(runner.runs) for runner in runners) - waiting,
            waiting=waiting,
            streams=len(opened.streams),
            links=len(opened.sockets),
            requests=totals[0],
            request_rate=rates[0],
            event_rate=rates[1],
            error_rate=rates[2],
        )

    def _count(self) -> tuple[int, int, int]:
        """Returns the requests, events and errors since the start."""
        metrics = [context.server.metrics for context in self._agents().values()]
        requests = sum(sum(each.buckets) for one in metrics for each in one.latency.values())
        errors = sum(sum(one.errors.values()) for one in metrics)
        return requests, sum(one.events for one in metrics), errors


async def _put(store: Store, report: ReplicaReport) -> None:
    try:
        await store.replicas.put(report)
    except DragomanError as exc:  # it is lost until the next report
        log.warning("This replica could not be reported", reason=exc.reason, why=exc)


async def queues_of(store: Store, found: list[ReplicaReport]) -> dict[str, int]:
    """Returns how many tasks wait for a worker, for each agent of these replicas."""
    names = sorted({name for each in found for name in each.agents})
    return {name: (await store.count_by_state(name)).get("runnable", 0) for name in names}


def replicas_out(found: list[ReplicaReport], queues: Mapping[str, int]) -> dict[str, Json]:
    """Returns replicas and queues as they are shown to programs."""
    shown = [{**msgspec.to_builtins(each), "state": each.state.value} for each in found]
    return {"replicas": shown, "queues": dict(queues)}
