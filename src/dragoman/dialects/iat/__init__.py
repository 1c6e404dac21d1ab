"""IAT: envelopes between a host and its sub-agents, nested and flat."""

from collections.abc import Iterable

from dragoman.core.dialect import Dialect, Route, Wire
from dragoman.core.session import Session

from .callee import IatCallee, IatSocketCallee
from .caller import IatCaller
from .duplex import IatDuplex
from .losses import carried, carried_by_socket
from .plain_endpoints import PlainCallee, PlainStream

ROLE = SCHEME = "iat"
ENVELOPES = Route("/iat")
PLAIN = (
    Route("/a2a", callee=PlainCallee),
    Route("/a2a/stream", "GET", callee=PlainStream),
    Route("/a2a/stream", callee=PlainStream),
)
"""Where real hosts post content without an envelope around it."""


def _nested(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return IatCaller()


def _flat(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return IatCaller(flat=True)


DIALECTS = (
    Dialect(
        name="iat",
        caller=_nested,
        callee=IatCallee,
        carried=carried,
        routes=(ENVELOPES,),
        scheme=SCHEME,
        role=ROLE,
        listed_as="HTTP+SSE",
    ),
    Dialect(
        name="iat-flat",
        caller=_flat,
        callee=IatCallee,
        carried=carried,
        routes=(ENVELOPES, *PLAIN),
        role=ROLE,
    ),
    Dialect(
        name="iat-ws",
        wire=Wire.WEBSOCKET,
        caller=_nested,
        callee=IatSocketCallee,
        carried=carried_by_socket,
        routes=(Route("/iat/ws", "GET"),),
        scheme=SCHEME,
        role=ROLE,
        listed_as="WEBSOCKET",
    ),
)

__all__ = ["DIALECTS", "IatCallee", "IatCaller", "IatDuplex", "IatSocketCallee"]
