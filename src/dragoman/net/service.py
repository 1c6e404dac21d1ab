"""A part of an app with its own start and stop, beside the requests: a port, a link or a room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from dragoman.core.card import Interface
from dragoman.core.dialect import Dialect
from dragoman.core.session import Session

from .driver import Driver
from .http.asgi import Handler, Receive, Scope, Send

if TYPE_CHECKING:
    from dragoman.observability.metrics import Family
from .server_context import ServerContext

Factory = Callable[[], Session]


class OtherWorkers(Protocol):
    """The other processes of a server that has several."""

    own: dict[str, Callable[[], Awaitable[bytes]]]
    """Returns the figures of this process for the others, by their kinds."""

    answers: dict[str, tuple[Callable[[str], bool], Handler]]
    """Whether this process has what a key names, and what answers requests for it, by their
    kinds."""

    async def figures(self, kind: str) -> Sequence[bytes]:
        """Returns the figures of a kind of the others."""

    async def pass_on(
        self, kind: str, key: str, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Has another process answer a request, if one of them has what the key names. Returns
        False if none has."""


class Service:
    """A part of an app that is started and stopped with it. A service overrides what it needs.

    The methods are called in the order `open`, `start`, `drain`, `stop`. The engine starts after
    every `open`, so that a port in use is reported before any task runs. It stops between `drain`
    and `stop`, so that running calls are still answered.
    """

    name = ""
    """The name of the service in the log."""
    role = ""
    """The role in the records of the dialects that this service implements; empty if there is
    none."""
    port: int | None = None
    """The port on which the service listens, if it has its own."""

    def open(self) -> None:
        """Acquires what the service cannot run without, such as a port. Raises `ConfigError` if it
        cannot."""

    async def start(self) -> None:
        """Starts the service."""

    async def drain(self) -> None:
        """Refuses new work and lets running work end by itself. This may be called twice."""

    async def stop(self) -> None:
        """Ends the remaining work, and returns when nothing of the service runs any more."""

    def driver(self, dialect: Dialect, callee: Factory, served: frozenset[str] | None) -> Driver:
        """Returns the driver for a dialect whose record names this role. `served` holds the
        dialects that are served, or is None for every one that the callee recognises."""
        raise NotImplementedError

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Returns the HTTP routes of the service beside those of its dialects."""
        return {}

    def patterns(self) -> Mapping[str, Callable[[str], bool]]:
        """Returns for routes of a service of a whole server that stand for many paths which those
        are."""
        return {}

    def add_agent(self, name: str, server: ServerContext, host: str = "", tenant: str = "") -> None:
        """Serves one more agent, or replaces the one of this name. Calls may also name it by its
        `host` or its `tenant`. Only a service of a whole server implements this."""

    def remove_agent(self, name: str) -> None:
        """Stops answering calls for this agent. Only a service of a whole server implements
        this."""

    def metrics(self) -> Iterable[Family]:
        """Returns figures for `/metrics`, which shows those of one name together."""
        return ()

    def join(self, others: OtherWorkers) -> None:
        """Called before the start with the other processes of the server, if it has any."""

    def interfaces(self, url: str, agent: str = "") -> tuple[Interface, ...]:
        """Returns the service's interfaces for the card of the agent at `url`. `agent` is its name,
        if the server has several."""
        return ()
