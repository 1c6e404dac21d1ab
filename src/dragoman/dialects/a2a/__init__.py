"""Agent2Agent, every version over every framing."""

from functools import partial

from dragoman.session import Dialect

from .losses import carried_0_3, carried_1_0
from .rpc import RpcCallee, RpcCaller
from .v0_3 import V0_3
from .v1_0 import V1_0

A2A_1_0 = Dialect(
    name=V1_0.dialect, caller=partial(RpcCaller, V1_0), callee=RpcCallee, carried=carried_1_0
)
A2A_0_3 = Dialect(
    name=V0_3.dialect, caller=partial(RpcCaller, V0_3), callee=RpcCallee, carried=carried_0_3
)

__all__ = ["A2A_0_3", "A2A_1_0", "V0_3", "V1_0", "RpcCallee", "RpcCaller"]
