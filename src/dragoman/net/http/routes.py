"""Builds the table of routes from the records of the served dialects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.errors import ConfigError

from ..driver import Driver
from ..server_context import ServerContext
from ..service import Factory, Service
from ..websocket.endpoint import WebSocketEndpoint
from ..websocket.socket import SocketDriver
from .asgi import Handler
from .exchange import HttpEndpoint
from .router import SOCKET

Routes = dict[str, dict[str, Handler]]
Patterns = dict[str, Callable[[str], bool]]


def routes_of(
    server: ServerContext,
    dialects: Sequence[Dialect],
    known: Sequence[Dialect],
    roles: Mapping[str, Service],
) -> tuple[Routes, Patterns]:
    """Returns the endpoints of these dialects, of all that are `known`, by path and method.

    Dialects that share a route and a callee have one endpoint, whose callee recognises each.
    """
    routes: Routes = {}
    patterns: Patterns = {}
    taken: dict[tuple[str, str], Factory] = {}
    for dialect in dialects:
        for route in dialect.routes if dialect.wire is not Wire.GRPC else ():
            callee = route.callee or dialect.callee
            assert callee is not None  # noqa: S101  only dialects with a callee are served
            place = route.path, route.method
            if taken.setdefault(place, callee) is not callee:
                raise ConfigError(f"Two dialects are served at {route.method} {route.path}.")
            methods = routes.setdefault(route.path, {})
            if route.method in methods:
                continue
            target = f"{route.method} {route.path}" if route.matches is None else ""
            served = _told_apart(callee, dialects, known)
            if dialect.role:
                driver = roles[dialect.role].driver(dialect, callee, served)
            elif dialect.wire is Wire.WEBSOCKET:
                driver = SocketDriver(server, callee, served=served)
            else:
                driver = Driver(server, callee, served=served)
            if isinstance(driver, SocketDriver):
                methods[SOCKET] = methods[route.method] = WebSocketEndpoint(driver, target)
            else:
                methods[route.method] = HttpEndpoint(driver, target)
            if route.matches is not None:
                patterns[route.path] = route.matches
    return routes, patterns


def _told_apart(
    callee: Factory, dialects: Sequence[Dialect], known: Sequence[Dialect]
) -> frozenset[str] | None:
    """Returns the dialects of a callee that are served, or None if all of them are."""
    here = frozenset(each.name for each in dialects if each.callee is callee)
    every = frozenset(each.name for each in known if each.callee is callee)
    return here if here < every else None


def card_paths(dialects: Sequence[Dialect]) -> list[str]:
    """Returns the paths below which clients look for a card."""
    return [each.routes[0].path for each in dialects if each.own_card]
