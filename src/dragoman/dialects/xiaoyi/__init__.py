"""XiaoYi: the WebSocket link on which agents dial a server, and are asked over what they opened."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.session import Session, Signal
from dragoman.lazy_names import lazy_names

if TYPE_CHECKING:
    from .callee import XiaoYiCallee
    from .caller import XiaoYiCaller

ROLE = SCHEME = "xiaoyi"
PATH = "/openclaw/v1/ws/link"
"""Where agents dial in, on every server that has this dialect."""


# A server imports the rest when an agent dials in.


def _caller(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    from .caller import XiaoYiCaller

    return XiaoYiCaller()


def _callee() -> Session:
    from .callee import XiaoYiCallee

    return XiaoYiCallee()


def _carried(signal: Signal) -> Signal:
    from .losses import carried

    return carried(signal)


DIALECTS = (
    Dialect(
        name="xiaoyi",
        scheme=SCHEME,
        # Agents dial, so nobody calls this callee at an address of ours: it has no route.
        listens=True,
        role=ROLE,
        wire=Wire.WEBSOCKET,
        caller=_caller,
        callee=_callee,
        carried=_carried,
        max_message=4 * 1024 * 1024,
    ),
)

__all__ = ["DIALECTS", "XiaoYiCallee", "XiaoYiCaller"]
__getattr__ = lazy_names(__name__, {"callee": "XiaoYiCallee", "caller": "XiaoYiCaller"})
