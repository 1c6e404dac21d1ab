"""Addresses that only older clients know, all of them JSON-RPC."""

from __future__ import annotations

from ..dialects.a2a.go import GoCallee
from ..dialects.a2a.rpc import RpcCallee
from .asgi import Handler
from .exchange import Exchange, Floor

A2A_GO = "/a2a-go"
PYTHON_A2A = ("/tasks/send", "/tasks/get", "/tasks/cancel", "/tasks/stream")
"""python-a2a puts the method into the path too. REST has nothing to POST there."""


def older_routes(floor: Floor) -> dict[str, dict[str, Handler]]:
    """The community a2a-go's address, and python-a2a's."""
    return {
        A2A_GO: {"POST": Exchange(floor, GoCallee, f"POST {A2A_GO}")},
        **{path: {"POST": Exchange(floor, RpcCallee, f"POST {path}")} for path in PYTHON_A2A},
    }
