"""IAT: envelopes between a host and its sub-agents, nested and flat."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from dragoman.core.dialect import CallerIdentity, Dialect, Manifest, Route, SharedSecretProof, Wire
from dragoman.core.session import CallerConversation, Session, Signal
from dragoman.lazy_names import lazy_names

from .callee import IatCallee, IatSocketCallee
from .plain_endpoints import PlainCallee, PlainStream
from .requests import manifest_in
from .signature import signed
from .wire import message_ids

if TYPE_CHECKING:
    from .caller import IatCaller
    from .duplex import IatDuplex

ROLE = SCHEME = "iat"
ENVELOPES = Route("/iat")


def _without_clock() -> int:
    """The time of sessions that talk to nobody: those of the table of losses, and of tests. Servers
    and transports pass their own."""
    return 0


def _callees(kind: type[IatCallee]) -> Callable[..., Session]:
    """Returns what makes the callee sessions of a kind."""

    def make(
        me: str = "agent",
        *,
        now: Callable[[], int] = _without_clock,
        new_id: Callable[[], str] | None = None,
    ) -> Session:
        return kind(me, now=now, new_id=new_id or message_ids())

    return make


_callee, _plain_stream = _callees(IatCallee), _callees(PlainStream)
PLAIN = (
    Route("/a2a", callee=_callees(PlainCallee)),
    Route("/a2a/stream", "GET", callee=_plain_stream),
    Route("/a2a/stream", callee=_plain_stream),
)
"""The paths at which real hosts post content without an envelope."""
PROOF = SharedSecretProof(signed, "IAT_SECRET")
MANIFEST = Manifest("/manifest", manifest_in)


# A server that calls nobody imports no caller.


def _nested(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    from .caller import IatCaller

    return IatCaller(now=_without_clock, new_id=message_ids())


def _flat(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    from .caller import IatCaller

    return IatCaller(flat=True, now=_without_clock, new_id=message_ids())


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
        callee=_callee,
        carried=_carried,
        routes=(ENVELOPES,),
        listed_as="HTTP+SSE",
        foreign_paths=("/a2a",),
        http2=True,
    ),
    Dialect(
        name="iat-flat",
        caller=_flat,
        callee=_callee,
        carried=_carried,
        routes=(ENVELOPES, *PLAIN),
        role=ROLE,
    ),
    _CALLED(
        name="iat-ws",
        wire=Wire.WEBSOCKET,
        caller=_nested,
        callee=_callees(IatSocketCallee),
        carried=_carried_by_socket,
        max_message=1024 * 1024,
        routes=(Route("/iat/ws", "GET"),),
        listed_as="WEBSOCKET",
    ),
)

__all__ = ["DIALECTS", "IatCallee", "IatCaller", "IatDuplex", "IatSocketCallee"]
__getattr__ = lazy_names(__name__, {"caller": "IatCaller", "duplex": "IatDuplex"})
