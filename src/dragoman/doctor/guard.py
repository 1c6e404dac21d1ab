"""Decides which addresses the doctor may call: the host that the user typed, and public ones.

The card of the agent names the other addresses, and a card can name any address: a few hundred
malformed requests must not go to the user's own machine or network.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

import httpcore2

from dragoman.security.outbound.address_scopes import (
    Rules,
    TypedHost,
    Unreachable,
    checked,
    literal,
)


class Guard:
    """Resolves names and checks their addresses."""

    def __init__(self, url: str, *, allow_private: bool) -> None:
        self._typed = TypedHost(_host(url), Rules(allow_private=allow_private))

    def addresses(self, host: str, port: int) -> list[str]:
        """Returns the addresses of a host. Raises `BadParams` if they may not be called."""
        host = host.lower().removesuffix(".")
        found = [host] if literal(host) is not None else _look_up(host, port)
        if host == self._typed.host:
            return self._typed.checked(found)
        return checked(found, self._typed.others)

    def one(self, host: str, port: int) -> str:
        """Returns the first address that accepts a connection, or the last one."""
        *more, last = self.addresses(host, port)
        for address in more:
            try:
                socket.create_connection((address, port), 2.0).close()
            except OSError:
                continue
            return address
        return last


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "").lower().removesuffix(".")


def _look_up(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreachable("unknown name") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedSockets(httpcore2.SyncBackend):
    """Connects to checked addresses only."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        *more, last = self._guard.addresses(host, port)
        for address in more:
            try:
                return super().connect_tcp(address, port, timeout)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return super().connect_tcp(last, port, timeout)
