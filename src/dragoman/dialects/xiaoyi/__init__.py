"""XiaoYi: the WebSocket link on which agents dial a server, and are asked over what they opened."""

from collections.abc import Iterable

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.session import Session

from .callee import XiaoYiCallee
from .caller import XiaoYiCaller
from .losses import carried

ROLE = SCHEME = "xiaoyi"


def _caller(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return XiaoYiCaller()


DIALECTS = (
    Dialect(
        name="xiaoyi",
        scheme=SCHEME,
        # Agents dial, so nobody calls this callee at an address of ours: it has no route.
        listens=True,
        role=ROLE,
        wire=Wire.WEBSOCKET,
        caller=_caller,
        callee=XiaoYiCallee,
        carried=carried,
        max_message=4 * 1024 * 1024,
    ),
)

__all__ = ["DIALECTS", "XiaoYiCallee", "XiaoYiCaller"]
