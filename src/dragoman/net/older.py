"""The addresses of JSON-RPC: the agent's own, and those that only older clients know."""

from __future__ import annotations

from collections.abc import Collection

from ..dialects.a2a.go import GoCallee
from ..dialects.a2a.rpc import RpcCallee
from ..dialects.a2a.v0_1 import V0_1
from ..dialects.a2a.v0_3 import V0_3
from ..dialects.a2a.v1_0 import V1_0
from .asgi import Handler
from .exchange import Exchange, Floor
from .rest import spoken

A2A_GO = "/a2a-go"
PYTHON_A2A = ("/tasks/send", "/tasks/get", "/tasks/cancel", "/tasks/stream")
"""python-a2a puts the method into the path too. REST has nothing to POST there."""


DIALECTS = {"1.0": (V1_0.dialect,), "0.3": (V0_3.dialect, V0_1.dialect)}
"""What is spoken over JSON-RPC, by version. Older ones go with 0.3."""


def rpc_routes(floor: Floor, versions: Collection[str]) -> dict[str, dict[str, Handler]]:
    """The addresses of JSON-RPC, if it is served in any version: the agent's own, and with 0.3
    those of the community a2a-go and of python-a2a."""
    if not versions:
        return {}
    named = spoken(versions, DIALECTS)
    paths = ("/", *PYTHON_A2A) if "0.3" in versions else ("/",)
    found: dict[str, dict[str, Handler]] = {
        path: {"POST": Exchange(floor, RpcCallee, f"POST {path}", named)} for path in paths
    }
    if "0.3" in versions:
        found[A2A_GO] = {"POST": Exchange(floor, GoCallee, f"POST {A2A_GO}")}
    return found
