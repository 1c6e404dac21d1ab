"""Ports for servers that must know theirs before they start, and whether there is IPv6."""

from __future__ import annotations

import socket

import pytest

_HELD: list[socket.socket] = []


def own_port() -> int:
    """A port of this machine's own address that nobody else is given while this process lives.

    It is held by a socket that does not listen: the system gives it to no one who asks for any
    port, a server that asks for this one may still listen there, and until one does a caller is
    refused.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    return int(held.getsockname()[1])


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


NEEDS_IPV6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")
