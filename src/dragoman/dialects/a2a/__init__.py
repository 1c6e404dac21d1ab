"""Agent2Agent (A2A): every version over every binding."""

from collections.abc import Iterable
from functools import partial

from dragoman.core.dialect import Dialect, Route, Wire
from dragoman.core.session import Session

from .jsonrpc import RpcCallee, RpcCaller
from .legacy.a2a_go import A2A_GO as GO_VERSION
from .legacy.a2a_go import GO, GoCallee, GoCaller
from .legacy.agno import AGNO, AgnoCaller
from .legacy.python_a2a import PYTHON_A2A, PythonCaller
from .legacy.v0_1 import PLAIN, V0_1
from .legacy.v0_1.losses import Losses
from .losses import carried_0_3, carried_0_3_grpc, carried_0_3_rest, carried_1_0, carried_1_0_rest
from .rest import RestCallee, RestCaller
from .routes import PLAIN as PLAIN_PATHS
from .routes import REST_0_3, REST_0_3_BARE, REST_1_0, Binding, is_ours
from .v0_3 import V0_3
from .v1_0 import V1_0

SCHEME = "a2a"
ROOT = Route("/")
GO_PATH = "/a2a-go"
PYTHON_PATHS = ("/tasks/send", "/tasks/get", "/tasks/cancel", "/tasks/stream")
"""The paths of python-a2a, which also puts the method into the path. REST has no POST at these
paths."""
WITH_IDS = Route("/{tenant}/tasks/{id}", "*", is_ours)
"""The paths of REST that contain an id, a tenant or the name of a method."""


def _rest_routes(binding: Binding) -> tuple[Route, ...]:
    plain = [
        Route(path, verb)
        for path, (whose, found) in PLAIN_PATHS.items()
        if whose is binding
        for verb in found.verbs
    ]
    return (*plain, WITH_IDS)


def _go(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return GoCaller()


def _python(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return PythonCaller()


def _agno(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return AgnoCaller()


def _grpc(version: str, extensions: Iterable[str] = (), tenant: str = "") -> Session:
    from .grpc.caller import GrpcCaller  # protobuf is an extra

    return GrpcCaller(version, extensions, tenant)


def _grpc_callee() -> Session:
    from .grpc.callee import GrpcCallee  # protobuf is an extra

    return GrpcCallee()


_JSONRPC = partial(Dialect, callee=RpcCallee, binding="JSONRPC")
_REST = partial(Dialect, callee=RestCallee, binding="HTTP+JSON")
_GRPC = partial(
    Dialect,
    wire=Wire.GRPC,
    callee=_grpc_callee,
    binding="GRPC",
    scheme=SCHEME,
    max_message=4 * 1024 * 1024,  # of every gRPC library, unless it is told otherwise
)
_OLD = ("0.3", "0.2")

DIALECTS = (
    _JSONRPC(
        name=V1_0.dialect,
        caller=partial(RpcCaller, V1_0),
        carried=carried_1_0,
        routes=(ROOT,),
        versions=("1.0",),
    ),
    _REST(
        name=REST_1_0.version.dialect,
        caller=partial(RestCaller, REST_1_0),
        carried=carried_1_0_rest,
        routes=_rest_routes(REST_1_0),
        versions=("1.0",),
    ),
    _GRPC(
        name="a2a-1.0-grpc",
        caller=partial(_grpc, "1.0"),
        carried=carried_1_0_rest,
        versions=("1.0",),
    ),
    _JSONRPC(
        name=V0_3.dialect,
        caller=partial(RpcCaller, V0_3),
        carried=carried_0_3,
        routes=(ROOT,),
        versions=_OLD,
    ),
    _REST(
        name=REST_0_3.version.dialect,
        caller=partial(RestCaller, REST_0_3),
        carried=carried_0_3_rest,
        routes=_rest_routes(REST_0_3),
        versions=_OLD,
        prefix="/v1",
        fallback=partial(RestCaller, REST_0_3_BARE),
    ),
    _GRPC(
        name="a2a-0.3-grpc",
        caller=partial(_grpc, "0.3"),
        carried=carried_0_3_grpc,
        versions=_OLD,
    ),
    _JSONRPC(
        name=V0_1.dialect,
        caller=partial(RpcCaller, V0_1),
        carried=Losses(V0_1, PLAIN).carried,
        # Clients of python-a2a speak this dialect too, at paths of their own.
        routes=(ROOT, *map(Route, PYTHON_PATHS)),
        versions=("0.1",),
        along_with=V0_3.dialect,
        listed_as="JSONRPC",
        names_tasks=True,
    ),
    Dialect(
        name=GO_VERSION.dialect,
        caller=_go,
        callee=GoCallee,
        carried=Losses(GO_VERSION, GO, begins_with_task=True, names_hooks=False).carried,
        routes=(Route(GO_PATH),),
        along_with=V0_3.dialect,
        listed_as="JSONRPC",
        own_card=True,
        path=GO_PATH,
        names_tasks=True,
    ),
    # The dialect of python-a2a servers is not a version of A2A, whatever their cards say. Its
    # clients are served as callers of 0.1.
    Dialect(
        name=PYTHON_A2A.dialect,
        caller=_python,
        callee=None,
        carried=Losses(V0_1, PLAIN).carried,
        binding="JSONRPC",
        versions=(PYTHON_A2A.dialect,),
        names_tasks=True,
    ),
    # That of agno servers, in the same way. Its clients are served as callers of 0.3.
    Dialect(
        name=AGNO.dialect,
        caller=_agno,
        callee=None,
        carried=carried_0_3,
        binding="JSONRPC",
        versions=(AGNO.dialect,),
    ),
)

__all__ = [
    "DIALECTS",
    "PYTHON_A2A",
    "PYTHON_PATHS",
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
