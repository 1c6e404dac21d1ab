"""Agent2Agent, every version over every framing."""

from functools import partial

from dragoman.core.session import Dialect

from .jsonrpc import RpcCallee, RpcCaller
from .legacy.a2a_go import A2A_GO as GO_VERSION
from .legacy.a2a_go import GO, GoCallee, GoCaller
from .legacy.python_a2a import PythonCaller
from .legacy.v0_1 import PLAIN, V0_1
from .legacy.v0_1.losses import Losses
from .losses import carried_0_3, carried_0_3_rest, carried_1_0, carried_1_0_rest
from .rest import RestCallee, RestCaller
from .routes import REST_0_3, REST_0_3_BARE, REST_1_0
from .v0_3 import V0_3
from .v1_0 import V1_0

A2A_1_0 = Dialect(
    name=V1_0.dialect, caller=partial(RpcCaller, V1_0), callee=RpcCallee, carried=carried_1_0
)
A2A_0_3 = Dialect(
    name=V0_3.dialect, caller=partial(RpcCaller, V0_3), callee=RpcCallee, carried=carried_0_3
)
A2A_0_1 = Dialect(
    name=V0_1.dialect,
    caller=partial(RpcCaller, V0_1),
    callee=RpcCallee,
    carried=Losses(V0_1, PLAIN).carried,
)
A2A_GO = Dialect(
    name=GO_VERSION.dialect,
    caller=GoCaller,
    callee=GoCallee,
    carried=Losses(GO_VERSION, GO, begins_with_task=True, names_hooks=False).carried,
)
A2A_1_0_REST = Dialect(
    name=REST_1_0.version.dialect,
    caller=partial(RestCaller, REST_1_0),
    callee=RestCallee,
    carried=carried_1_0_rest,
)
A2A_0_3_REST = Dialect(
    name=REST_0_3.version.dialect,
    caller=partial(RestCaller, REST_0_3),
    callee=RestCallee,
    carried=carried_0_3_rest,
)

__all__ = [
    "A2A_0_1",
    "A2A_0_3",
    "A2A_0_3_REST",
    "A2A_1_0",
    "A2A_1_0_REST",
    "A2A_GO",
    "REST_0_3",
    "REST_0_3_BARE",
    "REST_1_0",
    "V0_1",
    "V0_3",
    "V1_0",
    "GoCallee",
    "GoCaller",
    "PythonCaller",
    "RestCallee",
    "RestCaller",
    "RpcCallee",
    "RpcCaller",
]
