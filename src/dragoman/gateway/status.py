"""How the agents elsewhere are: `/gateway/status`, and figures for `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from dragoman.agent import Agent
from dragoman.engine.circuit_breaker import BreakerState
from dragoman.net.http.asgi import Handler, Receive, Scope, Send, answer
from dragoman.net.service import OtherWorkers, Service
from dragoman.observability.metrics import Family, histogram_lines, quoted
from dragoman.security.route_policy import Policy, policy

from .agent_health import HasHealth
from .agent_status import AgentStatus, added_up, agent_status

if TYPE_CHECKING:
    from .upstream_address import UpstreamAddress
    from .upstream_agent import UpstreamAgent
    from .upstream_pool import UpstreamPool

PATH = "/gateway/status"
_BREAKERS = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class GatewayStatus(Service):
    """Tells operators of the agents elsewhere. Nothing is said of callers, and no secret is in an
    address."""

    name = "gateway"

    def __init__(self, agents: Callable[[], Iterable[Agent]]) -> None:
        """`agents` tells those that the server has now."""
        self._agents = agents
        self._others: OtherWorkers | None = None

    def join(self, others: OtherWorkers) -> None:
        """Shares the status with the other processes of the server."""
        others.own[self.name] = self._own_status
        self._others = others

    async def _own_status(self) -> bytes:
        return msgspec.json.encode(self._status())

    def _status(self) -> dict[str, AgentStatus]:
        return {each.served_as: agent_status(each) for each in self._upstream()}

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """The address of the status."""
        return {PATH: {"GET": self.page, "HEAD": self.page}}

    @policy(Policy.STATUS)
    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with the status of all agents elsewhere."""
        found = [self._status()]
        if self._others is not None:
            others = await self._others.figures(self.name)
            found += [msgspec.json.decode(each, type=dict[str, AgentStatus]) for each in others]
        body = msgspec.json.encode({"agents": added_up(found)})
        headers = ((b"cache-control", b"no-store"),)
        await answer(send, 200, body, extra=headers, head=scope["method"] == "HEAD")

    def _upstream(self) -> Iterator[UpstreamAgent]:
        elsewhere: list[HasHealth] = [
            each for each in self._agents() if isinstance(each, HasHealth)
        ]
        if elsewhere:  # otherwise nothing of a gateway is imported
            from .upstream_agent import UpstreamAgent

            yield from (each for each in elsewhere if isinstance(each, UpstreamAgent))

    def metrics(self) -> Iterable[Family]:
        """Returns the figures of all agents elsewhere."""
        pools = [each.pool for each in self._upstream()]
        if not pools:
            return
        for name, kind, text, figure in _OF_ADDRESSES:
            lines = (
                f"{_labels(pool, address)} {figure(pool, address)}"
                for pool in pools
                for address in pool.addresses
            )
            yield Family(name, kind, text, lines)
        yield Family(
            "upstream_failures_total",
            "counter",
            "Failed calls and health checks of agents elsewhere, by reason.",
            (
                _labels(pool, address, f'reason="{reason}"') + f" {count}"
                for pool in pools
                for address in pool.addresses
                for reason, count in sorted(address.failures.items())
            ),
        )
        yield Family(
            "upstream_queued",
            "gauge",
            "Calls that wait for a place at an agent elsewhere.",
            (f'{{agent="{pool.name}"}} {pool.queued}' for pool in pools),
        )
        yield Family(
            "upstream_refused_total",
            "counter",
            "Calls refused because the queue was full.",
            (f'{{agent="{pool.name}"}} {pool.refused}' for pool in pools),
        )
        yield Family(
            "upstream_seconds",
            "histogram",
            "Time to the first answer of an agent elsewhere.",
            (
                line
                for pool in pools
                for line in histogram_lines(f'agent="{pool.name}"', pool.latency)
            ),
        )


_OF_ADDRESSES: tuple[tuple[str, str, str, Callable[[UpstreamPool, UpstreamAddress], int]], ...] = (
    (
        "upstream_in_flight",
        "gauge",
        "Tasks that an address of an agent elsewhere works on.",
        lambda pool, address: address.in_flight,
    ),
    (
        "upstream_breaker",
        "gauge",
        "The circuit breaker of an address: 0 closed, 1 half-open, 2 open.",
        lambda pool, address: _BREAKERS[pool.state(address)],
    ),
)


def _labels(pool: UpstreamPool, address: UpstreamAddress, more: str = "") -> str:
    said = f'agent="{pool.name}",address="{quoted(address.label)}"'
    return f"{{{said},{more}}}" if more else f"{{{said}}}"
