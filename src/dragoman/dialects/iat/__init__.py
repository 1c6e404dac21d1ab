"""IAT: envelopes between a host and its sub-agents, nested and flat."""

from collections.abc import Iterable
from functools import partial

from dragoman.core.dialect import Dialect, Manifest, Route, SharedSecretProof, Wire
from dragoman.core.session import Session

from .callee import IatCallee, IatSocketCallee
from .caller import IatCaller, IatConversation
from .duplex import IatDuplex
from .losses import carried, carried_by_socket
from .plain_endpoints import PlainCallee, PlainStream
from .requests import manifest_in
from .signature import signed

ROLE = SCHEME = "iat"
ENVELOPES = Route("/iat")
PLAIN = (
    Route("/a2a", callee=PlainCallee),
    Route("/a2a/stream", "GET", callee=PlainStream),
    Route("/a2a/stream", callee=PlainStream),
)
"""The paths at which real hosts post content without an envelope."""
PROOF = SharedSecretProof(signed, "IAT_SECRET")
MANIFEST = Manifest("/manifest", manifest_in)


def _nested(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return IatCaller()


def _flat(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return IatCaller(flat=True)


_CALLED = partial(
    Dialect, scheme=SCHEME, role=ROLE, conversation=IatConversation, proof=PROOF, manifest=MANIFEST
)

DIALECTS = (
    _CALLED(
        name="iat",
        caller=_nested,
        callee=IatCallee,
        carried=carried,
        routes=(ENVELOPES,),
        listed_as="HTTP+SSE",
        foreign_paths=("/a2a",),
        http2=True,
    ),
    Dialect(
        name="iat-flat",
        caller=_flat,
        callee=IatCallee,
        carried=carried,
        routes=(ENVELOPES, *PLAIN),
        role=ROLE,
    ),
    _CALLED(
        name="iat-ws",
        wire=Wire.WEBSOCKET,
        caller=_nested,
        callee=IatSocketCallee,
        carried=carried_by_socket,
        max_message=1024 * 1024,
        routes=(Route("/iat/ws", "GET"),),
        listed_as="WEBSOCKET",
    ),
)

__all__ = ["DIALECTS", "IatCallee", "IatCaller", "IatDuplex", "IatSocketCallee"]
