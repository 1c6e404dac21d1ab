"""The figures of links: for operators in the store, and for `/metrics`.

They are written when the state of a link changes, and renewed from time to time, so that a process
that was killed is known by its silence. Messages change nothing that is written.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Literal

from msgspec.structs import replace

from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.observability.metrics import Family, quoted
from dragoman.store.clock import wall_clock
from dragoman.store.interface import Store
from dragoman.store.link_status import LinkState, LinkStatus

log = Logger("xiaoyi")

RENEWED = 30.0
"""The seconds after which a status is written again although nothing has changed."""
TOGETHER = 1.0
"""The seconds in which changes are collected for one write."""
RESOLUTION = 0.001
"""The seconds that the clock of an event loop tells apart."""
LONGEST_ERROR = 300
"""The characters of an error that are kept."""


class LinkFigures:
    """The figures of the links between one agent and one server."""

    def __init__(
        self,
        side: Literal["agent", "server"],
        agent_id: str,
        server: str,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        self._clock = clock
        self._status = LinkStatus(
            side=side,
            agent_id=agent_id,
            server=server,
            host=socket.gethostname(),
            state=LinkState.DOWN,
            since=clock(),
        )
        self._latency = 0.0
        self.written = False
        """Whether the store has the current state."""
        self.on_change: Callable[[], None] = lambda: None

    @property
    def status(self) -> LinkStatus:
        """The figures as they are now."""
        return replace(self._status, latency=round(self._latency, 6))

    @property
    def latency(self) -> float:
        """The seconds of the last round trip; 0: it is not known yet."""
        return self._latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        first = not self._latency
        self._latency = max(seconds, RESOLUTION)
        if first:  # a later one is written when the status is renewed
            self._change(self._status.state)

    @property
    def last_error(self) -> str:
        """The reason of the last failure."""
        return self._status.last_error

    def opened(self) -> None:
        """Counts a link that was opened."""
        now = self._status
        self._change(LinkState.OPEN, links=now.links + 1, opened=now.opened + 1)

    def closed(self) -> None:
        """Counts a link that was closed."""
        left = max(0, self._status.links - 1)
        self._change(LinkState.OPEN if left else LinkState.DOWN, links=left)

    def failed(self, why: str) -> None:
        """Notes why a link could not be opened, or was lost."""
        failures, at = self._status.failures + 1, self._clock()
        error = why[:LONGEST_ERROR]
        self._change(self._status.state, failures=failures, last_error=error, failed_at=at)

    def ended(self, why: str) -> None:
        """Notes why no link will be opened again."""
        self.failed(why)
        self._change(LinkState.ENDED, links=0)

    def stopped(self) -> None:
        """Notes that the process stops."""
        if self._status.state is not LinkState.ENDED:
            self._change(LinkState.STOPPED, links=0)

    def _change(self, state: LinkState, **fields: int | str) -> None:
        if state is not self._status.state:
            fields["since"] = self._clock()
        self._status = replace(self._status, state=state, **fields)
        self.written = False
        self.on_change()


class LinkReporter:
    """Writes figures to the store."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        figures: Callable[[], Collection[LinkFigures]],
        *,
        renewed: float = RENEWED,
    ) -> None:
        """`store` returns the store, which is open. `figures` returns those of all links."""
        self._store, self._figures, self._renewed = store, figures, renewed
        self._news = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Has what has changed written soon."""
        self._news.set()

    def start(self) -> None:
        """Begins to write."""
        self._work = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Writes for the last time: the links stop with their process."""
        work, self._work = self._work, None
        if work is None:
            return
        work.cancel()
        await asyncio.wait([work])
        for each in self._figures():
            each.stopped()
        await self._write(self._figures())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            figures = self._figures()
            if loop.time() < due:
                figures = [each for each in figures if not each.written]
            else:
                due = loop.time() + self._renewed
            await self._write(figures)
            await asyncio.sleep(TOGETHER)

    async def _write(self, figures: Collection[LinkFigures]) -> None:
        if not figures:
            return
        for each in figures:
            each.written = True
        try:
            store = await self._store()
            await store.link_status.put([each.status for each in figures])
        except DragomanError as exc:
            for each in figures:
                each.written = False
            log.warning("The status of links cannot be written", why=exc)


def families(figures: Iterable[LinkFigures]) -> Iterable[Family]:
    """Returns the figures for `/metrics`."""
    statuses = [each.status for each in figures]
    for name, kind, text, figure in _METRICS:
        yield Family(name, kind, text, [f"{_labels(each)} {figure(each):g}" for each in statuses])


def _labels(status: LinkStatus) -> str:
    agent_id, server = quoted(status.agent_id), quoted(status.server)
    return f'{{side="{status.side}",agent_id="{agent_id}",server="{server}"}}'


_METRICS: tuple[tuple[str, str, str, Callable[[LinkStatus], float]], ...] = (
    ("xiaoyi_links", "gauge", "Open XiaoYi links.", lambda each: each.links),
    (
        "xiaoyi_links_opened_total",
        "counter",
        "XiaoYi links that were opened, again and again.",
        lambda each: each.opened,
    ),
    (
        "xiaoyi_link_failures_total",
        "counter",
        "XiaoYi links that failed, were lost or refused.",
        lambda each: each.failures,
    ),
    (
        "xiaoyi_link_latency_seconds",
        "gauge",
        "The last round trip of a XiaoYi link.",
        lambda each: each.latency,
    ),
)
