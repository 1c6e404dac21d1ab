"""The rules for addresses that may be called: the scope of each address, and what the operator
allows.

Private addresses may not be called unless the operator, or the user who typed the address, allows
it (DESIGN §5.10).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import BadParams

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

OPEN_PORTS = (80, 443, 8080, 8443)
ALL_PORTS = range(1, 65536)
"""The ports of web servers. Other ports are allowed only by setting, or when private addresses are
allowed: mail servers and databases have been attacked through webhooks before."""


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


NAT64 = ip_network("64:ff9b::/96")
LOOPBACK = _networks("127.0.0.0/8", "::1/128")
PRIVATE = _networks(
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
)
"""The networks that `allow_private` opens beside loopback. Link-local stays closed, because cloud
metadata is served there."""
METADATA = _networks(
    "100.100.100.200/32",  # Alibaba Cloud
    "fd00:ec2::/112",  # AWS: instance metadata, credentials of containers and pods, time, names
    "fd20:ce::254/128",  # Google Cloud
    "fd00:42::42/128",  # Scaleway
)
"""The metadata services that clouds have put into private networks, beside those in link-local
ones: whoever reaches them gets the credentials of the machine, so no setting opens them."""

NEVER = _networks(
    *("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
    *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    "168.63.129.16/32",  # a cloud's own services, under a public address
    *("::/128", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32"),
    *("2002::/16", "3fff::/20", "5f00::/16", "fe80::/10", "fec0::/10", "ff00::/8"),
    *("::/96", "::ffff:0:0:0/96"),  # IPv4 in disguise, beside the mapped ones
)
"""The networks that no setting opens."""


class AddressScope(Enum):
    """The scope of an address, in words for people."""

    LOOPBACK = "this machine"
    PRIVATE = "a private network"
    PUBLIC = "a public address"
    UNSPECIFIED = "the unspecified address"
    """0.0.0.0 and ::, where a connection ends up on this machine."""
    CLOSED = "an address that may not be called"


class Rules(Struct, frozen=True, kw_only=True):
    """The rules for addresses that we may call."""

    allow_private: bool = False
    """Whether private networks and this machine may be called."""
    allow_loopback: bool = False
    """Whether this machine may be called, under every address that it has for itself."""
    hosts: tuple[str, ...] = ()
    """The only hosts that may be called, if any are given: a name, or `.example.com` for all names
    under it."""
    ports: Collection[int] = OPEN_PORTS


class Unreachable(Exception):
    """There was no answer; the text says why."""

    failure: Exception | None = None
    """The error of the connection; None if no connection was tried."""


def scope_of(address: Address) -> AddressScope:
    """Returns the scope of this address."""
    if isinstance(address, IPv6Address) and address in NAT64:
        # The network translates it to the IPv4 address it holds, which must be public (RFC 6052).
        public = scope_of(IPv4Address(int(address) & 0xFFFFFFFF)) is AddressScope.PUBLIC
        return AddressScope.PUBLIC if public else AddressScope.CLOSED
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if mapped is not None:
        address = mapped
    if any(address in network for network in LOOPBACK):
        return AddressScope.LOOPBACK
    if any(address in network for network in METADATA):
        return AddressScope.CLOSED
    if any(address in network for network in PRIVATE):
        return AddressScope.PRIVATE
    if address.is_unspecified:
        return AddressScope.UNSPECIFIED
    closed = address.is_multicast or address.is_reserved or not address.is_global
    if closed or any(address in network for network in NEVER):
        return AddressScope.CLOSED
    return AddressScope.PUBLIC


def may_call(address: Address, rules: Rules) -> bool:
    """Returns whether a connection may go to this address."""
    match scope_of(address):
        case AddressScope.PUBLIC:
            return True
        case AddressScope.PRIVATE:
            return rules.allow_private
        case AddressScope.LOOPBACK:
            return rules.allow_private or rules.allow_loopback
        case AddressScope.UNSPECIFIED:
            return rules.allow_loopback
        case AddressScope.CLOSED:
            return False


def _may_call_text(text: str, rules: Rules) -> bool:
    address = literal(text)
    return address is not None and "%" not in text and may_call(address, rules)


def within(text: str, networks: Iterable[Network]) -> bool:
    """Returns whether this is an address in one of the networks. IPv4 counts in either spelling."""
    address = literal(text)
    if address is None:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return any((mapped or address) in network for network in networks)


def literal(host: str) -> Address | None:
    """Returns the address that a host is, or None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def checked(addresses: Iterable[str], rules: Rules) -> list[str]:
    """Returns the addresses, if every one of them may be called. Raises `BadParams` if not."""
    found = list(addresses)
    if not all(_may_call_text(text, rules) for text in found):
        raise refusal("The url leads to an address that may not be called")
    if not found:
        raise Unreachable("no address")
    return found


def refusal(message: str) -> BadParams:
    """Returns the error for a URL that may not be called."""
    return BadParams(message, field="url")


class TypedHost:
    """The host that a user typed. It may be in any network, but it stays where it was found first.

    A user who types 10.0.0.5, or a name of the local network, means it. A user who types the name
    of a stranger does not mean this machine; but the stranger can later let that name resolve to
    this machine, while we call addresses from the stranger's own card (DNS rebinding). Therefore
    the first look-up decides on the scope, and only addresses of that scope are called.
    """

    def __init__(self, host: str, rules: Rules, *, by_stranger: bool = False) -> None:
        """`by_stranger` says that somebody else has typed it, who may only mean what is public."""
        self.host = host
        self._rules = rules
        self.scope = AddressScope.PUBLIC if by_stranger else _typed_scope(host)
        """Known of an address and of localhost; of other names after the first look-up."""
        self._by_stranger = by_stranger

    @property
    def others(self) -> Rules:
        """Returns the rules for addresses that other parties name. A user who typed this machine
        may be directed back to it."""
        if self.scope is not AddressScope.LOOPBACK:
            return self._rules
        return replace(self._rules, allow_loopback=True)

    def checked(self, addresses: Iterable[str]) -> list[str]:
        """Returns the addresses of the host that may be called. Raises `BadParams` if there are
        none."""
        found = list(addresses)
        here = self.scope is AddressScope.LOOPBACK
        rules = Rules(allow_private=True, allow_loopback=here)
        # A machine on the local network often has a link-local address beside its real one.
        open_ones = [each for each in found if _may_call_text(each, rules)]
        if not open_ones or self._rules.allow_private:
            return open_ones or checked(found, rules)
        scopes = [_meant(ip_address(each)) for each in open_ones]
        if self.scope is None:
            self.scope = next(scope for scope in _WIDEST if scope in scopes)
        same = [each for each, scope in zip(open_ones, scopes, strict=True) if scope is self.scope]
        if not same and self._by_stranger:
            raise refusal(
                f"{self.host} leads to {scopes[0].value}, and only public addresses count"
            )
        if not same:
            raise refusal(
                f"{self.host} leads to {scopes[0].value}, and led to {self.scope.value} before. "
                "If that is right, allow it: --allow-private, or allow_private= in Python"
            )
        return same


_WIDEST = (AddressScope.PUBLIC, AddressScope.PRIVATE, AddressScope.LOOPBACK)
"""The order of precedence if a name has several scopes: a name must not open a network that is
nearer."""


def _typed_scope(host: str) -> AddressScope | None:
    """Returns the scope of a host, as far as it is known without a look-up."""
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761 §6.3
        return AddressScope.LOOPBACK
    address = literal(host)
    return None if address is None else _meant(address)


def _meant(address: Address) -> AddressScope:
    """Returns the scope of an address that a user typed; 0.0.0.0 means this machine."""
    found = scope_of(address)
    return AddressScope.LOOPBACK if found is AddressScope.UNSPECIFIED else found
