"""IAT: envelopes between a host and its sub-agents, nested and flat."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from dragoman.core.dialect import CallerIdentity, Dialect, Manifest, Route, SharedSecretProof, Wire
from dragoman.core.session import CallerConversation, Session, Signal
from dragoman.lazy_names import lazy_names

from .callee import IatCallee, IatSocketCallee
from .plain_endpoints import PlainCallee, PlainStream
from .requests import manifest_in
from .signature import signed

if TYPE_CHECKING:
    from .caller import IatCaller
    from .duplex import IatDuplex

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


# A server that calls nobody imports no caller.


def _nested(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    from .caller import IatCaller

    return IatCaller()


def _flat(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    from .caller import IatCaller

    return IatCaller(flat=True)


def _conversation(identity: CallerIdentity) -> CallerConversation:
    from .caller import IatConversation

    return IatConversation(identity)


def _carried(signal: Signal) -> Signal:
    from .losses import carried

    return carried(signal)


def _carried_by_socket(signal: Signal) -> Signal:
    from .losses import carried_by_socket

    return carried_by_socket(signal)


_CALLED = partial(
    Dialect, scheme=SCHEME, role=ROLE, conversation=_conversation, proof=PROOF, manifest=MANIFEST
)

DIALECTS = (
    _CALLED(
        name="iat",
        caller=_nested,
        callee=IatCallee,
        carried=_carried,
        routes=(ENVELOPES,),
        listed_as="HTTP+SSE",
        foreign_paths=("/a2a",),
        http2=True,
    ),
    Dialect(
        name="iat-flat",
        caller=_flat,
        callee=IatCallee,
        carried=_carried,
        routes=(ENVELOPES, *PLAIN),
        role=ROLE,
    ),
    _CALLED(
        name="iat-ws",
        wire=Wire.WEBSOCKET,
        caller=_nested,
        callee=IatSocketCallee,
        carried=_carried_by_socket,
        max_message=1024 * 1024,
        routes=(Route("/iat/ws", "GET"),),
        listed_as="WEBSOCKET",
    ),
)

__all__ = ["DIALECTS", "IatCallee", "IatCaller", "IatDuplex", "IatSocketCallee"]
__getattr__ = lazy_names(__name__, {"caller": "IatCaller", "duplex": "IatDuplex"})
