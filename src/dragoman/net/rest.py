"""REST's places in the table of routes: those without ids by name, all others by one pattern."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..dialects.a2a.rest import RestCallee
from ..dialects.a2a.routes import PLAIN, is_ours
from ..dialects.a2a.v0_3.rest import V0_3_REST
from ..dialects.a2a.v1_0.rest import V1_0_REST
from .asgi import Handler
from .exchange import Exchange, Floor

WITH_IDS = "/{tenant}/tasks/{id}"
"""The key under which every path stands that has an id, a tenant or a method's name in it."""
PATTERNS = {WITH_IDS: is_ours}
DIALECTS = {"1.0": (V1_0_REST.dialect,), "0.3": (V0_3_REST.dialect,)}
"""What is spoken here, by version."""


def spoken(
    versions: Collection[str], dialects: Mapping[str, Collection[str]]
) -> frozenset[str] | None:
    """The dialects of these versions; None if that is all of them."""
    if set(versions) >= set(dialects):
        return None
    return frozenset(each for version in versions for each in dialects[version])


def rest_routes(floor: Floor, versions: Collection[str]) -> dict[str, dict[str, Handler]]:
    """Every route of REST, if it is served in any version; one exchange answers them all."""
    if not versions:
        return {}
    exchange = Exchange(floor, RestCallee, spoken=spoken(versions, DIALECTS))
    return {
        **{path: dict.fromkeys(found.verbs, exchange) for path, (_, found) in PLAIN.items()},
        WITH_IDS: {"*": exchange},
    }
