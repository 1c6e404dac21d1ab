"""Bulkheads of the outbox: a receiver that hangs holds up the webhooks of its owner, not all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from urllib.parse import urlsplit

Principal = tuple[str, str]
"""A tenant and a principal of it."""
Destination = tuple[str, str, str]
"""A principal and a host that its webhooks call. Two principals that call one host are two
destinations: what one of them has hanging there is no reason to let the other wait."""


class Bulkheads:
    """Limits how many deliveries may be under way at a time for one principal, and for one
    principal to one host.

    An object counts the deliveries that are under way already and those that `admit` lets through,
    so it serves one look into the outbox.
    """

    def __init__(
        self, per_principal: int, per_host: int, under_way: Iterable[tuple[Principal, str]] = ()
    ) -> None:
        self._per_principal, self._per_host = per_principal, per_host
        self._principals: Counter[Principal] = Counter()
        self._destinations: Counter[Destination] = Counter()
        for principal, host in under_way:
            self._principals[principal] += 1
            self._destinations[*principal, host] += 1

    @property
    def full_principals(self) -> list[Principal]:
        """The principals that have no place left."""
        return [one for one, count in self._principals.items() if count >= self._per_principal]

    @property
    def full_destinations(self) -> list[Destination]:
        """The principals and hosts that have no place left together."""
        return [one for one, count in self._destinations.items() if count >= self._per_host]

    def admit(self, principal: Principal, host: str) -> bool:
        """Takes a place for one more delivery; False if the principal has none left, at all or at
        this host."""
        if self._principals[principal] >= self._per_principal:
            return False
        if self._destinations[*principal, host] >= self._per_host:
            return False
        self._principals[principal] += 1
        self._destinations[*principal, host] += 1
        return True


def host_of(url: str) -> str:
    """Returns the host that a webhook calls. The port does not count, since a host hangs as a
    whole."""
    try:
        return (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return ""
