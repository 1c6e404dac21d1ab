"""The `Dialect` record: the one description of a dialect that the server, the client, the gateway,
the doctor and the tests read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from .session import CallerConversation, Introduction, Session, Signal


class Wire(StrEnum):
    """The transport protocol that carries the frames of a dialect."""

    HTTP = "http"
    """Requests and answers; streams are server-sent events."""
    WEBSOCKET = "websocket"
    GRPC = "grpc"
    CHAT = "chat"
    """The messages of a room, whichever channel carries them."""


class CallerFactory(Protocol):
    """Makes the caller side of a new conversation."""

    def __call__(self, extensions: Iterable[str] = (), tenant: str = "") -> Session:
        """Returns a session that activates these extensions and names this tenant, as far as the
        dialect can express them."""


class Route(Struct, frozen=True):
    """Where a dialect is served, relative to the mount point of its agent."""

    path: str
    method: str = "POST"
    """`*` stands for any method. A WebSocket has none."""
    matches: Callable[[str], bool] | None = None
    """For a path with variables: returns whether a requested path matches it."""
    callee: Callable[[], Session] | None = None
    """The callee of this route, if it is not the callee of the dialect. It serves an older or
    simpler form of the same requests, which only callers of other vendors use."""


class CallerIdentity(Struct, frozen=True, kw_only=True):
    """The names of both sides in a conversation, with a clock and a source of ids."""

    me: str
    """Our name in messages."""
    to: str = ""
    """The name of the other side; empty if its introduction is to provide it."""
    joins: bool = False
    """Whether we register with the other side, which then calls us."""
    token: str = ""
    """A session token that the other side got from us."""
    now: Callable[[], int]
    """The time in milliseconds."""
    new_id: Callable[[], str]


class SharedSecretProof(Struct, frozen=True):
    """The way in which a dialect proves a shared secret without sending it."""

    headers: Callable[[str, bytes, float], Mapping[str, str]]
    """Returns the headers that prove the secret, for this body and this time in seconds. The body
    names the receiver, so a proof for one receiver is worthless to another."""
    variable: str = ""
    """The environment variable in which people keep the secret."""


class Manifest(Struct, frozen=True):
    """Where an agent describes itself, in a dialect that has no cards."""

    path: str
    """Relative to the mount point of the agent."""
    read: Callable[[bytes], Introduction]
    """Parses a manifest. Raises `PeerMisbehaved` if the body is not one."""


def unchanged(signal: Signal) -> Signal:
    """Returns the signal itself, for a wire that loses nothing."""
    return signal


class Dialect(Struct, frozen=True, kw_only=True):
    """One dialect over one wire: its sessions, its routes and how cards and addresses name it."""

    name: str
    wire: Wire = Wire.HTTP
    caller: CallerFactory
    callee: Callable[[], Session] | None
    """Makes the callee's side of a conversation. Dialects that share a route share a callee, which
    tells them apart by the frame; `session.dialect` then names the record. None for a dialect that
    our client speaks and our server does not serve."""
    carried: Callable[[Signal], Signal] = unchanged
    """Returns what remains of a signal after this wire: the declared losses of the dialect."""
    max_message: int = 0
    """The bytes of the largest message that agents of this dialect take, unless their operators
    changed it; 0: that differs. A gateway passes larger files by reference."""

    routes: tuple[Route, ...] = ()
    binding: str = ""
    """The name of the binding on cards; empty for a dialect that a card cannot list as an
    interface."""
    versions: tuple[str, ...] = ()
    """The protocol versions as cards spell them. Our own cards name the first one."""
    scheme: str = ""
    """The text before the `+` in an address that names this dialect: `iat` in `iat+http://`."""

    along_with: str = ""
    """The dialect together with which this one is served, if operators cannot choose it
    separately."""
    role: str = ""
    """The service that the dialect needs beyond its codec. A server without that service does not
    serve the dialect."""
    listed_as: str = ""
    """The binding under which `urn:dragoman:dialects:1` lists the first route of a dialect that is
    not an interface of our card. If it is empty, the dialect is not listed."""
    own_card: bool = False
    """Whether its clients look for a card of its own below its first route."""

    conversation: Callable[[CallerIdentity], CallerConversation] | None = None
    """For a dialect that begins with an introduction: makes the caller's side of all exchanges with
    one agent. If it is None, each exchange stands alone and `caller` makes its session."""
    proof: SharedSecretProof | None = None
    """How callers prove a shared secret, if the dialect has a way to do so."""
    manifest: Manifest | None = None
    foreign_paths: tuple[str, ...] = ()
    """Other paths at which servers of other vendors serve the dialect, beside the path of its
    first route."""
    http2: bool = False
    """Whether callers start with HTTP/2, even without TLS (RFC 9113 §3.3), and fall back to
    HTTP/1.1 if the server closes the connection. The first message may then be sent twice, so this
    is only for dialects whose first message is an introduction."""

    listens: bool = False
    """Whether agents dial their callers, so that a caller listens at its own address."""
    prefix: str = ""
    """The prefix of the paths of its requests."""
    path: str = ""
    """The path at which a server of several dialects serves this one, if another dialect is served
    at the address itself."""
    fallback: CallerFactory | None = None
    """Makes a caller that spells requests differently, for servers that refuse the usual spelling
    as malformed."""
    names_tasks: bool = False
    """Whether the caller chooses the ids of its tasks and every stream numbers the artifacts from
    the beginning, as in A2A 0.1 and its relatives."""

    @property
    def interface(self) -> tuple[str, str] | None:
        """Returns the binding and version of the dialect on our own cards and in
        `server.interfaces`, or None for a dialect that cannot be chosen there."""
        if self.callee is None or not self.binding or self.along_with:
            return None
        return self.binding, self.versions[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """Returns the paths to try at an address that has no path of its own, in order."""
        own = [route.path for route in self.routes[:1]]
        return (*own, *self.foreign_paths)
