"""What proxies in front of us tell about the caller: its address, and the address it typed.

Anyone can write these headers, so they count only on connections from configured ranges, and of
the addresses in them only what lies outside of those ranges: the rest was said by the proxies
themselves, the one before that by the caller. Only one family of headers is read. A proxy that
writes the one and passes the other on would let callers say what they like.
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
"""What a request's scheme was before, by what it is here and what the proxy says."""

# RFC 7239 §4: a parameter; its value is a token or quoted.
_PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"=]+)\s*')


def typed_base(scope: Scope, headers: Mapping[str, str]) -> str:
    """The address of this server as the caller typed it: right for it whatever stands between
    (every cache keys on the host too). Only used when no public URL is set and we listen on all
    addresses."""
    host = headers.get("host", "")
    if not HOST.fullmatch(host):
        host = f"127.0.0.1:{(scope.get('server') or ('', 80))[1]}"
    return f"{scope.get('scheme', 'http')}://{host}"


class Hop(Struct, frozen=True):
    """What one proxy tells about who asked it."""

    address: str = ""
    scheme: str = ""
    host: str = ""


class ForwardedHeaders:
    """Believes some, and shows requests as they were before them."""

    def __init__(self, ranges: Iterable[str], header: str = "x-forwarded-for") -> None:
        try:
            self._ranges: list[IPv4Network | IPv6Network] = [ip_network(r) for r in ranges]
        except ValueError as exc:
            raise ConfigError(f"server.trusted_proxies are address ranges: {exc}.") from None
        self._hops = {"x-forwarded-for": _x_forwarded, "forwarded": _forwarded}[header]

    def seen(self, scope: Scope) -> Scope:
        """The request as the caller made it; as it came, if it came from nobody we believe."""
        client = scope.get("client")
        if client is None or not self.trusts(client[0]):
            return scope
        hops = self._hops(headers_in(scope["headers"]))
        if not hops:
            return scope
        return _before(scope, self._caller(hops))

    def _caller(self, hops: list[Hop]) -> Hop:
        """The nearest that is none of ours, else the farthest."""
        for hop in reversed(hops):
            if not self.trusts(hop.address):
                return hop
        return hops[0]

    def trusts(self, text: str) -> bool:
        """Whether this is the address of a proxy of ours."""
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
        # Who asked is not told, so nobody knows: an address of a proxy would open doors.
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
    """The value of one hop where every proxy added one, else the only one there is."""
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
            # A caller that opens a quote and leaves it to the proxy to close it could make one
            # element of two. So what is not well-formed to its end tells nothing.
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
    """The address alone; nothing if it is hidden or no address (RFC 7239 §6)."""
    bare = re.fullmatch(r"\[([^\]]*)\](?::\w+)?", text)
    if bare:
        text = bare[1]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return ""
