"""What has a life of its own beside the requests that an app answers: a port, a link, a room."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dragoman.core.card import Interface
from dragoman.core.dialect import Dialect
from dragoman.core.session import Session

from .driver import Driver
from .http.asgi import Handler

Factory = Callable[[], Session]


class Service:
    """One such thing. Whatever a service does not need, it leaves as it is here.

    The order of a life is `open`, `start`, `drain`, `stop`. The engine starts after every `open`,
    so that a port which is taken is reported before any task runs, and it stops between `drain`
    and `stop`, so that calls which are under way are still answered.
    """

    name = ""
    """The name in the log."""
    role = ""
    """What it plays for the dialects whose records name this role; empty: nothing."""
    port: int | None = None
    """The port that it listens on, if it has one of its own."""

    def open(self) -> None:
        """Takes what it cannot do without; raises `ConfigError` if that cannot be had."""

    async def start(self) -> None:
        """Begins its work."""

    async def drain(self) -> None:
        """Takes nothing new; what is under way may end by itself. May be called twice."""

    async def stop(self) -> None:
        """Ends what is left. Returns when nothing of it runs any more."""

    def driver(self, dialect: Dialect, callee: Factory, served: frozenset[str] | None) -> Driver:
        """The driver of the conversations in a dialect that names its role. `served` are the
        dialects that are served, if it is not every one that the callee tells apart."""
        raise NotImplementedError

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """The pages that it serves beside the routes of its dialects."""
        return {}

    def interfaces(self, url: str, agent: str = "") -> tuple[Interface, ...]:
        """Its entries on the card of an agent that is reached at `url`. `agent` is what that one is
        called, if the server has several."""
        return ()
