"""A2A-Lite: agents that meet in a chat room, with a small marker before natural language."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.session import Session, Signal
from dragoman.lazy_names import lazy_names

if TYPE_CHECKING:
    from .callee import LiteCallee
    from .caller import LiteCaller


# A server without rooms imports none of this.


def _caller(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    from .caller import LiteCaller

    return LiteCaller()


def _callee() -> Session:
    from .callee import LiteCallee

    return LiteCallee()


def _carried(signal: Signal) -> Signal:
    from .losses import carried

    return carried(signal)


DIALECTS = (
    # Both sides are members of a room, so nobody calls this callee at an address of ours.
    Dialect(
        name="lite",
        scheme="lite",
        role="lite",
        wire=Wire.CHAT,
        caller=_caller,
        callee=_callee,
        carried=_carried,
    ),
)

__all__ = ["DIALECTS", "LiteCallee", "LiteCaller"]
__getattr__ = lazy_names(__name__, {"callee": "LiteCallee", "caller": "LiteCaller"})
