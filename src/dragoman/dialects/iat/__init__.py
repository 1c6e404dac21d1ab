"""IAT: envelopes between a host and its sub-agents, nested and flat."""

from collections.abc import Iterable

from dragoman.core.dialect import Dialect
from dragoman.core.session import Session

from .callee import IatCallee
from .caller import IatCaller
from .losses import carried


def _nested(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return IatCaller()


def _flat(extensions: Iterable[str] = (), tenant: str = "") -> Session:
    return IatCaller(flat=True)


DIALECTS = (
    Dialect(name="iat", caller=_nested, callee=IatCallee, carried=carried, scheme="iat"),
    Dialect(name="iat-flat", caller=_flat, callee=IatCallee, carried=carried),
)

__all__ = ["DIALECTS", "IatCallee", "IatCaller"]
