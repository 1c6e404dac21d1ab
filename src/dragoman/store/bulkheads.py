"""Bulkheads of the outbox: a receiver that hangs holds up the webhooks of its owner, not all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from urllib.parse import urlsplit

Principal = tuple[str, str]
"""A tenant and a principal of it."""


class Bulkheads:
    """Limits how many deliveries may be under way at a time for one principal, and to one host.

    An object counts the deliveries that are under way already and those that `admit` lets through,
    so it serves one look into the outbox.
    """

    def __init__(
        self, per_principal: int, per_host: int, under_way: Iterable[tuple[Principal, str]] = ()
    ) -> None:
        self._per_principal, self._per_host = per_principal, per_host
        self._principals: Counter[Principal] = Counter()
        self._hosts: Counter[str] = Counter()
        for principal, host in under_way:
            self._principals[principal] += 1
            self._hosts[host] += 1

    @property
    def full_principals(self) -> list[Principal]:
        """The principals that have no place left."""
        return [one for one, count in self._principals.items() if count >= self._per_principal]

    @property
    def full_hosts(self) -> list[str]:
        """The hosts that have no place left."""
        return [one for one, count in self._hosts.items() if count >= self._per_host]

    def admit(self, principal: Principal, host: str) -> bool:
        """Takes a place for one more delivery; False if the principal or the host has none left."""
        if self._principals[principal] >= self._per_principal:
            return False
        if self._hosts[host] >= self._per_host:
            return False
        self._principals[principal] += 1
        self._hosts[host] += 1
        return True


def host_of(url: str) -> str:
    """Returns the host that a webhook calls. The port does not count, since a host hangs as a
    whole."""
    try:
        return (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return ""
