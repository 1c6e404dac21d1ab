"""The table of routes, made from the records of the dialects that are served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.errors import ConfigError
from dragoman.core.session import Session

from .asgi import Handler
from .router import SOCKET

Factory = Callable[[], Session]
Routes = dict[str, dict[str, Handler]]
Patterns = dict[str, Callable[[str], bool]]


class MakeEndpoint(Protocol):
    """Makes what answers at one route."""

    def __call__(
        self, dialect: Dialect, callee: Factory, target: str, served: frozenset[str] | None
    ) -> Handler:
        """`target` is method and path, or empty where each request says its own. `served` are the
        dialects that are served, if it is not every one that the callee tells apart."""


def routes_of(
    dialects: Sequence[Dialect], known: Sequence[Dialect], make: MakeEndpoint
) -> tuple[Routes, Patterns]:
    """The endpoints of these dialects, of all that are `known`, by path and method.

    Dialects that share a route and a callee are one endpoint, whose callee tells them apart.
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
            endpoint = make(dialect, callee, target, _told_apart(callee, dialects, known))
            methods[route.method] = endpoint
            if dialect.wire is Wire.WEBSOCKET:
                methods[SOCKET] = endpoint
            if route.matches is not None:
                patterns[route.path] = route.matches
    return routes, patterns


def _told_apart(
    callee: Factory, dialects: Sequence[Dialect], known: Sequence[Dialect]
) -> frozenset[str] | None:
    """The dialects of a callee that are served; None if that is all of them."""
    here = frozenset(each.name for each in dialects if each.callee is callee)
    every = frozenset(each.name for each in known if each.callee is callee)
    return here if here < every else None


def card_paths(dialects: Sequence[Dialect]) -> list[str]:
    """The addresses below which clients look for a card."""
    return [each.routes[0].path for each in dialects if each.own_card]
