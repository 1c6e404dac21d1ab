"""Reads the headers in which a proxy reports the caller's address and the host it called.

Anyone can send these headers, so they count only on connections from the configured ranges. Our
proxies append to them, and so the last address outside those ranges is the caller; the addresses
before it were sent by the caller itself. Only one family of headers is read: a proxy that writes
one and passes the other on would let callers forge it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from msgspec import Struct

from dragoman.core.errors import ConfigError
from dragoman.security.allowed_hosts import PROXIED
from dragoman.security.outbound.address_scopes import within

from .asgi import Header, Scope, headers_in

HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")
MOST_HOPS = 32
SCHEMES = {
    **{(ours, said): said for ours in ("http", "https") for said in ("http", "https")},
    **{(ours, said): said for ours in ("ws", "wss") for said in ("ws", "wss")},
    **{(ours, "http"): "ws" for ours in ("ws", "wss")},
    **{(ours, "https"): "wss" for ours in ("ws", "wss")},
}
"""The original scheme of a request, by its scheme here and the one that the proxy reports."""

# RFC 7239 §4: a parameter whose value is a token or a quoted string.
_PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"=]+)\s*')


def typed_base(scope: Scope, headers: Mapping[str, str]) -> str:
    """Returns the URL of this server with the host that the caller used, which works for that
    caller whatever lies in between (caches include the host in their keys). It is used only if no
    public URL is set and we listen on all addresses."""
    host = headers.get("host", "")
    if not HOST.fullmatch(host):
        host = f"127.0.0.1:{(scope.get('server') or ('', 80))[1]}"
    return f"{scope.get('scheme', 'http')}://{host}"


class Hop(Struct, frozen=True):
    """What one proxy reports about its client."""

    address: str = ""
    scheme: str = ""
    host: str = ""


class ForwardedHeaders:
    """Restores requests to what they were before they passed our trusted proxies."""

    def __init__(self, ranges: Iterable[str], header: str = "x-forwarded-for") -> None:
        try:
            self._ranges: list[IPv4Network | IPv6Network] = [ip_network(r) for r in ranges]
        except ValueError as exc:
            raise ConfigError(f"trusted_proxies are address ranges: {exc}.") from None
        self._hops = {"x-forwarded-for": _x_forwarded, "forwarded": _forwarded}[header]

    def seen(self, scope: Scope) -> Scope:
        """Returns the request as the caller made it, or unchanged if it is not from a trusted
        proxy."""
        client = scope.get("client")
        if client is None or not self.trusts(client[0]):
            return scope
        hops = self._hops(headers_in(scope["headers"]))
        if not hops:
            return scope
        return _before(scope, self._caller(hops))

    def _caller(self, hops: list[Hop]) -> Hop:
        """Returns the nearest hop that is not one of our proxies, or else the farthest."""
        for hop in reversed(hops):
            if not self.trusts(hop.address):
                return hop
        return hops[0]

    def trusts(self, text: str) -> bool:
        """Returns whether this is the address of a trusted proxy."""
        return within(text, self._ranges)


def _before(scope: Scope, hop: Hop) -> Scope:
    changed: Scope = {**scope, "client": (hop.address, 0)}
    scheme = scope.get("scheme", "http")
    changed["scheme"] = SCHEMES.get((scheme, hop.scheme), scheme)
    if hop.host and HOST.fullmatch(hop.host):
        host: Header = (b"host", hop.host.encode())
        changed[PROXIED] = True
        changed["headers"] = [host, *(h for h in scope["headers"] if h[0] != b"host")]
    return changed


def _x_forwarded(headers: Mapping[str, str]) -> list[Hop]:
    addresses = _split(headers.get("x-forwarded-for", ""))
    schemes = _split(headers.get("x-forwarded-proto", "").lower())
    hosts = _split(headers.get("x-forwarded-host", ""))
    if not addresses:
        # The proxy does not report the caller's address. It stays unknown: the proxy's own address
        # might be one that is allowed more.
        return [Hop("", *(_last(each) for each in (schemes, hosts)))] if schemes or hosts else []
    count = len(addresses)
    return [
        Hop(_address(address), _of(schemes, place, count), _of(hosts, place, count))
        for place, address in enumerate(addresses)
    ]


def _split(value: str) -> list[str]:
    return [each.strip() for each in value.split(",")][-MOST_HOPS:] if value.strip() else []


def _last(values: list[str]) -> str:
    return values[-1] if values else ""


def _of(values: list[str], place: int, count: int) -> str:
    """Returns the value of one hop if every proxy added one, or else the only value."""
    return values[place] if len(values) == count else _last(values)


def _forwarded(headers: Mapping[str, str]) -> list[Hop]:
    value = headers.get("forwarded", "")
    if not value.strip():
        return []
    hops: list[Hop] = []
    said: dict[str, str] = {}
    place = 0
    while True:
        found = _PAIR.match(value, place)
        if found is None or found[1].lower() in said:
            # A caller could open a quote that the proxy's own part closes, and so merge two
            # elements into one. A header that is not well-formed to its end is therefore ignored.
            return [Hop()]
        said[found[1].lower()] = _plain(found[2])
        place = found.end()
        ended = place == len(value)
        if ended or value[place] == ",":
            scheme, host = said.get("proto", "").lower(), said.get("host", "")
            hops.append(Hop(_address(said.get("for", "")), scheme, host))
            said = {}
        elif value[place] != ";":
            return [Hop()]
        if ended:
            return hops[-MOST_HOPS:]
        place += 1


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _address(text: str) -> str:
    """Returns the address alone, or an empty text if it is obfuscated or no address
    (RFC 7239 §6)."""
    bare = re.fullmatch(r"\[([^\]]*)\](?::\w+)?", text)
    if bare:
        text = bare[1]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return ""
