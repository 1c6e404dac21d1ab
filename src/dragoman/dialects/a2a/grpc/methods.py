"""Methods of the agent's own over gRPC, which no version of A2A provides for."""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.model import Json
from dragoman.core.operations import Invoke

from ..proto import Fields, Proto, bag_in, needed, value_in, value_out
from ..scalars import Wrong
from ..v1_0.grpc import SERVICE
from .service import rpc


def invoke_in(request: Proto) -> Invoke:
    method = needed(request.method, "the name of a method", ".method")
    return Invoke(method=method, params=bag_in(request, "params"))


def invoke_out(op: Invoke) -> Fields:
    # A Struct can hold only an object.
    if op.params is not None and not isinstance(op.params, dict):
        raise Wrong("Over gRPC the params of a method are an object", ".params")
    return {"method": op.method, "params": op.params or {}}


def result_out(value: Json) -> Fields:
    return {"result": value_out(value)}


def result_in(response: Proto) -> Json:
    return value_in(response.result)


INVOKE = rpc(
    *("dragoman.v1", Invoke, "InvokeRequest", (invoke_in, invoke_out)),
    *("InvokeResponse", (result_out, result_in)),
)
METHODS = replace(SERVICE, name="dragoman.v1.Methods", rpcs={"Invoke": INVOKE})
"""One service for all versions. It uses the errors of 1.0, whatever version the caller speaks
otherwise."""
