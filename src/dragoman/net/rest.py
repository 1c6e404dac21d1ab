"""REST's places in the table of routes: those without ids by name, all others by one pattern."""

from __future__ import annotations

from ..dialects.a2a.rest import RestCallee
from ..dialects.a2a.routes import PLAIN, is_ours
from .asgi import Handler
from .exchange import Exchange, Floor

WITH_IDS = "/{tenant}/tasks/{id}"
"""The key under which every path stands that has an id, a tenant or a method's name in it."""
PATTERNS = {WITH_IDS: is_ours}


def rest_routes(floor: Floor) -> dict[str, dict[str, Handler]]:
    """Every route of REST, in all versions; one exchange answers them all."""
    exchange = Exchange(floor, RestCallee)
    return {
        **{path: dict.fromkeys(found.verbs, exchange) for path, (_, found) in PLAIN.items()},
        WITH_IDS: {"*": exchange},
    }
