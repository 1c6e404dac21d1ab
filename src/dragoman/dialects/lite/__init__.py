"""A2A-Lite: agents that meet in a chat room, with a small marker before natural language."""

from collections.abc import Iterable

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.session import Session

from .callee import LiteCallee
from .caller import LiteCaller
from .losses import carried


def _caller(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return LiteCaller()


DIALECTS = (
    # Both sides are members of a room, so nobody calls this callee at an address of ours.
    Dialect(
        name="lite",
        scheme="lite",
        role="lite",
        wire=Wire.CHAT,
        caller=_caller,
        callee=LiteCallee,
        carried=carried,
    ),
)

__all__ = ["DIALECTS", "LiteCallee", "LiteCaller"]
