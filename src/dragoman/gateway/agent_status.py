"""The status of an agent elsewhere, as one process of a server sees it, and as all of them do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.circuit_breaker import BreakerState

if TYPE_CHECKING:
    from .upstream_address import UpstreamAddress
    from .upstream_agent import UpstreamAgent
    from .upstream_pool import UpstreamPool

UNKNOWN, HEALTHY, HALF_OPEN, OPEN = "unknown", "healthy", "half-open", "open"
_STATES = {
    BreakerState.CLOSED: HEALTHY,
    BreakerState.OPEN: OPEN,
    BreakerState.HALF_OPEN: HALF_OPEN,
}


class AddressStatus(Struct, frozen=True, rename="camel", kw_only=True):
    """The status of one address of an agent."""

    address: str
    state: str
    in_flight: int
    latency: float
    last_seen: str
    last_error: str
    last_failed: str
    failures: dict[str, int]


class AgentStatus(Struct, frozen=True, rename="camel", kw_only=True):
    """The status of an agent."""

    name: str
    dialect: str
    addresses: list[AddressStatus]
    queued: int
    refused: int
    fallbacks: list[str]


def agent_status(agent: UpstreamAgent) -> AgentStatus:
    """Returns the status of an agent in this process."""
    pool = agent.pool
    return AgentStatus(
        name=agent.served_as,
        dialect=agent.dialect,
        addresses=[_address_status(pool, each) for each in pool.addresses],
        queued=pool.queued,
        refused=pool.refused,
        fallbacks=[each.served_as for each in agent.fallbacks],
    )


def _address_status(pool: UpstreamPool, address: UpstreamAddress) -> AddressStatus:
    state = _STATES[pool.state(address)]
    return AddressStatus(
        address=address.label,
        state=UNKNOWN if state == HEALTHY and not address.seen_at else state,
        in_flight=address.in_flight,
        latency=round(address.latency, 6),
        last_seen=_time(address.seen_at),
        last_error=address.last_error,
        last_failed=_time(address.failed_at),
        failures=dict(address.failures),
    )


def added_up(found: Iterable[Mapping[str, AgentStatus]]) -> list[AgentStatus]:
    """Returns the status of all agents, from what each process says of them. Counts are added up;
    an address is open only if no process reaches it."""
    all_: dict[str, AgentStatus] = {}
    for process in found:
        for name, each in process.items():
            all_[name] = _both(all_[name], each) if name in all_ else each
    return list(all_.values())


def _both(one: AgentStatus, two: AgentStatus) -> AgentStatus:
    theirs = {each.address: each for each in two.addresses}
    own = [
        _address_of_both(each, theirs.pop(each.address)) if each.address in theirs else each
        for each in one.addresses
    ]
    return replace(
        one,
        dialect=one.dialect or two.dialect,
        addresses=[*own, *theirs.values()],
        queued=one.queued + two.queued,
        refused=one.refused + two.refused,
    )


def _address_of_both(one: AddressStatus, two: AddressStatus) -> AddressStatus:
    # Times are all of one zone and one length, so they are in the order of their texts.
    last = max(one, two, key=lambda each: each.last_failed)
    seen = max(one, two, key=lambda each: each.last_seen)
    states = {one.state, two.state} - {UNKNOWN}
    state = next(iter(states)) if len(states) == 1 else HALF_OPEN if states else UNKNOWN
    return replace(
        one,
        state=state,
        in_flight=one.in_flight + two.in_flight,
        latency=seen.latency,
        last_seen=seen.last_seen,
        last_error=last.last_error,
        last_failed=last.last_failed,
        failures=dict(Counter(one.failures) + Counter(two.failures)),
    )


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds") if at else ""
