"""Where JSON-RPC and REST stand in the table of routes, the addresses of older clients included."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dragoman.dialects.a2a.jsonrpc import RpcCallee
from dragoman.dialects.a2a.legacy.a2a_go import GoCallee
from dragoman.dialects.a2a.legacy.v0_1 import V0_1
from dragoman.dialects.a2a.rest import RestCallee
from dragoman.dialects.a2a.routes import PLAIN, is_ours
from dragoman.dialects.a2a.v0_3 import V0_3
from dragoman.dialects.a2a.v0_3.rest import V0_3_REST
from dragoman.dialects.a2a.v1_0 import V1_0
from dragoman.dialects.a2a.v1_0.rest import V1_0_REST

from .asgi import Handler
from .exchange import Exchange, ServerContext

A2A_GO = "/a2a-go"
PYTHON_A2A = ("/tasks/send", "/tasks/get", "/tasks/cancel", "/tasks/stream")
"""python-a2a puts the method into the path too. REST has nothing to POST there."""


RPC_DIALECTS = {"1.0": (V1_0.dialect,), "0.3": (V0_3.dialect, V0_1.dialect)}
"""What is spoken over JSON-RPC, by version. Older ones go with 0.3."""


def rpc_routes(server: ServerContext, versions: Collection[str]) -> dict[str, dict[str, Handler]]:
    """The addresses of JSON-RPC, if it is served in any version: the agent's own, and with 0.3
    those of the community a2a-go and of python-a2a."""
    if not versions:
        return {}
    named = spoken(versions, RPC_DIALECTS)
    paths = ("/", *PYTHON_A2A) if "0.3" in versions else ("/",)
    found: dict[str, dict[str, Handler]] = {
        path: {"POST": Exchange(server, RpcCallee, f"POST {path}", named)} for path in paths
    }
    if "0.3" in versions:
        found[A2A_GO] = {"POST": Exchange(server, GoCallee, f"POST {A2A_GO}")}
    return found


WITH_IDS = "/{tenant}/tasks/{id}"
"""The key under which every path stands that has an id, a tenant or a method's name in it."""
PATTERNS = {WITH_IDS: is_ours}
REST_DIALECTS = {"1.0": (V1_0_REST.dialect,), "0.3": (V0_3_REST.dialect,)}
"""What is spoken over REST, by version."""


def spoken(
    versions: Collection[str], dialects: Mapping[str, Collection[str]]
) -> frozenset[str] | None:
    """The dialects of these versions; None if that is all of them."""
    if set(versions) >= set(dialects):
        return None
    return frozenset(each for version in versions for each in dialects[version])


def rest_routes(server: ServerContext, versions: Collection[str]) -> dict[str, dict[str, Handler]]:
    """Every route of REST, if it is served in any version; one exchange answers them all."""
    if not versions:
        return {}
    exchange = Exchange(server, RestCallee, spoken=spoken(versions, REST_DIALECTS))
    return {
        **{path: dict.fromkeys(found.verbs, exchange) for path, (_, found) in PLAIN.items()},
        WITH_IDS: {"*": exchange},
    }
