"""The paths of REST: a table for each version, and the look-up of a path in it.

A path consists of words and ids in turn, so it has a shape (`tasks/*:cancel`) that is one key of a
dictionary. An id may contain colons: only the text after the last colon can be a verb, if it is a
verb of the table. Paths without a tenant come first, and our own words cannot be tenants (DESIGN
§5.7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from dragoman.core.operations import AnyOperation, Invoke

from .v0_3.rest import ROUTES as ROUTES_0_3
from .v0_3.rest import ROUTES_BARE, V0_3_REST
from .v1_0.rest import ROUTES as ROUTES_1_0
from .v1_0.rest import V1_0_REST
from .version import OWN, RpcMethod, Version, own_method

PATH_WORDS = frozenset(
    (
        *("v1", "agents", "agent", "tasks", "message:send", "message:stream", "extendedAgentCard"),
        *(".well-known", "a2a", "a2a-go", "iat", "openclaw", "console", "manifest"),
        *("mcp", "files", "openapi.json"),
        *("health", "healthz", "readyz", "metrics", "dragoman"),
    )
)
"""The first words of our own paths, which cannot be tenants."""

_VARIABLE = re.compile(r"\{(\w+)\}")


class RestRoute(NamedTuple):
    """One route of REST."""

    verb: str
    path: str
    method: RpcMethod
    ids: tuple[str, ...]
    """The names of the path's variables in the params."""


class RouteMatch(NamedTuple):
    """The route of a path, and the values of its variables."""

    verbs: Mapping[str, RestRoute]
    ids: tuple[str, ...] = ()
    tenant: str = ""


class Binding:
    """One version over REST: its routes below a prefix."""

    def __init__(
        self, version: Version, routes: Iterable[tuple[str, str, RpcMethod]], prefix: str = ""
    ) -> None:
        self.version = version
        self.prefix = prefix
        self.routes = [
            RestRoute(verb, path, method, tuple(_VARIABLE.findall(path)))
            for verb, path, method in routes
        ]
        self._verbs = {verb for _, path, _, _ in self.routes for verb in path.split("}:")[1:]}
        self._shapes: dict[str, dict[str, RestRoute]] = {}
        for route in self.routes:
            shape = _VARIABLE.sub("*", route.path)[1:]
            self._shapes.setdefault(shape, {})[route.verb] = route

    def find(self, path: str) -> RouteMatch | None:
        """Returns the route of a path without the prefix, with ids as they were sent."""
        segments = path[1:].split("/")
        found = self._known(segments)
        if found is not None or self.prefix:  # 0.3 has no tenants
            return found or _find_own(segments)
        tenant, *rest = segments
        if not rest or not tenant or tenant in PATH_WORDS:
            return None
        found = self._known(rest)
        if found is None and (mine := _find_own(segments)) is not None:
            return mine
        found = found or _find_own(rest)
        return found._replace(tenant=unquote(tenant)) if found is not None else None

    def _known(self, segments: list[str]) -> RouteMatch | None:
        words, ids = segments[:1], []
        for index, segment in enumerate(segments[1:], 1):
            if index % 2 == 0:
                words.append(segment)
                continue
            head, colon, verb = segment.rpartition(":")
            if colon and verb in self._verbs:
                words.append(f"*:{verb}")
            else:
                head = segment
                words.append("*")
            if not head:
                return None
            ids.append(unquote(head))
        verbs = self._shapes.get("/".join(words))
        return RouteMatch(verbs, tuple(ids)) if verbs is not None else None

    def find_route(self, op: AnyOperation, *, stream: bool) -> RestRoute | None:
        """Returns the route of an operation, if the version has one."""
        if isinstance(op, Invoke):
            return _own_route(op.method)
        for route in self.routes:
            if route.method.op is type(op) and route.method.stream == stream:
                return route
        return None


def _find_own(segments: list[str]) -> RouteMatch | None:
    """Returns the route of a method of the agent's own: `myorg.billing/refund` is POST
    /myorg.billing/refund."""
    if len(segments) != 2:
        return None
    name = unquote("/".join(segments))
    return RouteMatch({"POST": _own_route(name)}) if OWN(name) and name[0] != "." else None


def _own_route(name: str) -> RestRoute:
    space, _, rest = name.partition("/")
    path = f"/{quote(space, safe='')}/{quote(rest, safe='')}"
    return RestRoute("POST", path, own_method(name), ())


REST_1_0 = Binding(V1_0_REST, ROUTES_1_0)
REST_0_3 = Binding(V0_3_REST, ROUTES_0_3, "/v1")
REST_0_3_BARE = Binding(V0_3_REST, ROUTES_BARE, "/v1")
"""The routes that a caller tries if a server did not understand the usual ones."""
BINDINGS = (REST_1_0, REST_0_3)

# 0.2.1 to 0.2.6 get the extended card here, by plain HTTP (a2a-wire §8).
_CARD_0_2 = "/agent/authenticatedExtendedCard"

PLAIN: dict[str, tuple[Binding, RouteMatch]] = {
    **{
        binding.prefix + route.path: (binding, found)
        for binding in BINDINGS
        for route in binding.routes
        if not route.ids and (found := binding.find(route.path))
    },
    _CARD_0_2: (REST_0_3, RouteMatch(REST_0_3.find("/card").verbs)),  # type: ignore[union-attr]
}
"""The paths without ids or tenants, which are most of them, so that one look-up finds them."""


def find_route(path: str) -> tuple[Binding, RouteMatch | None]:
    """Returns the version of a path, and its route."""
    known = PLAIN.get(path)
    if known is not None:
        return known
    if path.startswith("/v1/"):
        return REST_0_3, REST_0_3.find(path[3:])
    return REST_1_0, REST_1_0.find(path)


def is_ours(path: str) -> bool:
    """Returns whether REST answers at this path, even if only with a 404."""
    return path.startswith(("/tasks/", "/v1/")) or find_route(path)[1] is not None
