"""Decides to which addresses a secret may be sent: over TLS, or on this machine."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from dragoman.core.errors import BadParams
from dragoman.dialects.refusals import printable as printable

from ..credentials import PORTS, origin_of


def is_loopback(url: str) -> bool:
    """Returns whether an address stays on this machine."""
    host = (urlsplit(url).hostname or "").lower().removesuffix(".")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_safe(url: str) -> bool:
    """Returns whether a secret may be sent there: over https, or over http that stays on this
    machine."""
    try:
        scheme, _, _ = origin_of(url).partition(":")
        return scheme == "https" or is_loopback(url)
    except (BadParams, ValueError):
        return False


def shown(origin: str) -> str:
    """Returns an origin as people write it, without the default port."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.rpartition(":")
    return f"{scheme}://{host}" if port == str(PORTS.get(scheme)) else origin
