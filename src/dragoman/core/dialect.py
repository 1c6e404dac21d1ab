"""What a dialect is: the one record that server, client, gateway, doctor and tests read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from .session import CallerConversation, Introduction, Session, Signal


class Wire(StrEnum):
    """What carries the frames of a dialect."""

    HTTP = "http"
    """Requests and answers; streams are server-sent events."""
    WEBSOCKET = "websocket"
    GRPC = "grpc"


class CallerFactory(Protocol):
    """Makes the caller side of a new conversation."""

    def __call__(self, extensions: Iterable[str] = (), tenant: str = "") -> Session:
        """A session that activates these extensions and names this tenant, where the dialect has
        words for them."""


class Route(Struct, frozen=True):
    """Where a dialect is served, relative to the mount point of its agent."""

    path: str
    method: str = "POST"
    """`*` stands for any method. A WebSocket has none."""
    matches: Callable[[str], bool] | None = None
    """For a path with variables: whether a path is one of those it stands for."""
    callee: Callable[[], Session] | None = None
    """The callee at this route, if it is not the dialect's: for an older or simpler way to say the
    same, which only foreign callers use."""


class CallerIdentity(Struct, frozen=True, kw_only=True):
    """The names of both sides in a conversation, with a clock and a source of ids."""

    me: str
    """Our name in messages."""
    to: str = ""
    """The name of the other side; empty if its introduction is to provide it."""
    joins: bool = False
    """Whether we register with the other side, which then calls us."""
    now: Callable[[], int] = lambda: 0
    """The time in milliseconds."""
    new_id: Callable[[], str] | None = None


class SharedSecretProof(Struct, frozen=True):
    """The way in which a dialect proves a shared secret without sending it."""

    headers: Callable[[str, bytes, float], Mapping[str, str]]
    """The headers that prove it, for this secret, this body and this time in seconds. The body
    names whom it is for."""
    variable: str = ""
    """The environment variable in which people keep the secret."""


class Manifest(Struct, frozen=True):
    """Where an agent of a dialect without cards says who it is."""

    path: str
    """Relative to the mount point of the agent."""
    read: Callable[[bytes], Introduction]
    """What it says; `PeerMisbehaved` for what is no manifest."""


def unchanged(signal: Signal) -> Signal:
    """The wire carries all of it."""
    return signal


class Dialect(Struct, frozen=True, kw_only=True):
    """One way to speak over one wire."""

    name: str
    wire: Wire = Wire.HTTP
    caller: CallerFactory
    callee: Callable[[], Session] | None
    """Dialects that share a route share a callee. It tells them apart by the frame, and
    `session.dialect` names the record. None: only others serve this dialect."""
    carried: Callable[[Signal], Signal] = unchanged
    """What of a signal survives this wire: the declared losses."""

    routes: tuple[Route, ...] = ()
    binding: str = ""
    """What cards call the binding; empty for a dialect that no interface of a card can name."""
    versions: tuple[str, ...] = ()
    """The protocol versions as cards spell them; cards of ours name the first."""
    scheme: str = ""
    """What stands before the `+` of an address that names this dialect: `iat+http://`."""

    along_with: str = ""
    """The dialect that it is served with, if operators cannot choose it by itself."""
    role: str = ""
    """The service of the server that it needs beyond its codec. A server without that service does
    not serve it."""
    listed_as: str = ""
    """The binding under which `urn:dragoman:dialects:1` lists its first route, for a dialect that
    is no interface of our card; empty: it is not listed."""
    own_card: bool = False
    """Whether its clients look for a card of its own below its first route."""

    conversation: Callable[[CallerIdentity], CallerConversation] | None = None
    """For a dialect that begins with an introduction: makes the caller's side of all exchanges with
    one agent. None: each exchange stands alone, and `caller` makes its session."""
    proof: SharedSecretProof | None = None
    """How callers prove a shared secret, if they can."""
    manifest: Manifest | None = None
    foreign_paths: tuple[str, ...] = ()
    """Where servers of others have it that are not at the path of its first route."""
    http2: bool = False
    """Whether callers speak HTTP/2 at once, also without TLS (RFC 9113 §3.3), and HTTP/1.1 to those
    who hang up on that. Only for dialects whose first message is an introduction: it is said twice
    then."""

    listens: bool = False
    """Whether agents dial their callers, so that a caller listens at its own address."""
    prefix: str = ""
    """What the paths of its requests begin with."""
    path: str = ""
    """Where servers of many dialects serve it, which have others at their address itself."""
    fallback: CallerFactory | None = None
    """Another spelling, for servers that refuse the first one as malformed."""
    names_tasks: bool = False
    """0.1 and its kin: the caller names its tasks, and every stream numbers artifacts anew."""

    @property
    def interface(self) -> tuple[str, str] | None:
        """Its binding and version on the card of a server of ours, and in `server.interfaces`; None
        for a dialect that is served without being chosen there."""
        if self.callee is None or not self.binding or self.along_with:
            return None
        return self.binding, self.versions[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where to find it at an address without a path, in the order to try."""
        own = [route.path for route in self.routes[:1]]
        return (*own, *self.foreign_paths)
