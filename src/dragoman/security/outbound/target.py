"""Takes a URL apart once, and refuses what is not a plain web address that may be called."""

from __future__ import annotations

import re
from functools import cached_property
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from .address_scopes import Rules, checked, literal, refusal

LONGEST_URL = 2048
PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"[!#-;=?-\[\]_a-z~%]+", re.ASCII)  # RFC 3986: what may stand in a URL at all
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")


class Target(Struct, frozen=True, dict=True):
    """A URL, taken apart once."""

    scheme: str
    host: str
    port: int
    path: str

    @cached_property
    def authority(self) -> str:
        """Returns host and port as the Host header has them."""
        return self._host if self.port == PORTS[self.scheme] else f"{self._host}:{self.port}"

    @cached_property
    def origin(self) -> str:
        """Returns scheme, host and port; the port is always there."""
        return f"{self.scheme}://{self._host}:{self.port}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


class OutgoingRequest(NamedTuple):
    """A request as it goes on the wire, and the seconds that it may take."""

    method: str
    target: Target
    path: str
    fields: list[tuple[str, str]]
    body: bytes
    connect: float | None
    idle: float | None


def parse(url: str, rules: Rules) -> Target:
    """Takes a URL apart. Raises `BadParams` for anything that is not a plain web address that we
    may call."""
    if len(url) > LONGEST_URL:
        raise refusal(f"The url is longer than {LONGEST_URL} characters")
    if not _URL.fullmatch(url.lower()):
        raise refusal("The url holds characters that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise refusal("The url is not valid") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise refusal("The url must begin with http:// or https://")
    if "@" in parts.netloc:
        raise refusal("The url must not hold a user name or password")
    host = _host(parts.netloc, parts.hostname or "")
    port = PORTS[scheme] if port is None else port
    if not rules.allow_private and port not in rules.ports:
        raise refusal(f"Port {port} is not open for calls from here (--allow-private opens all)")
    if rules.hosts and not any(_covers(pattern, host) for pattern in rules.hosts):
        raise refusal("This host is not on the list of hosts that may be called")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.startswith("/"):
        raise refusal("The url is not valid")
    target = Target(scheme, host, port, path)
    if literal(host) is not None:
        checked([host], rules)
    return target


def _host(netloc: str, host: str) -> str:
    host = host.lower()
    if netloc.startswith("["):
        if "%" in netloc or not isinstance(literal(host), IPv6Address):
            raise refusal("The url has no valid host")
        return host
    host = host.removesuffix(".")
    if not host or len(host) > 253 or not _NAME.fullmatch(host):
        raise refusal("The url has no valid host")
    # What ends in a number is an IPv4 address or nothing: 0x7f.1 and 2130706433 are 127.0.0.1 to
    # some resolvers, so only the plain form is taken.
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and literal(host) is None:
        raise refusal("The url has no valid host")
    return host


def _covers(pattern: str, host: str) -> bool:
    pattern = pattern.lower()
    return host.endswith(pattern) if pattern.startswith(".") else host == pattern
