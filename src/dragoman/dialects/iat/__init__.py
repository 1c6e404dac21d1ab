"""IAT: envelopes between a host and its sub-agents, nested and flat."""

from functools import partial

from dragoman.core.session import Dialect

from .callee import IatCallee
from .caller import IatCaller
from .losses import carried

IAT = Dialect(name="iat", caller=IatCaller, callee=IatCallee, carried=carried)
IAT_FLAT = Dialect(
    name="iat-flat", caller=partial(IatCaller, flat=True), callee=IatCallee, carried=carried
)

__all__ = ["IAT", "IAT_FLAT", "IatCallee", "IatCaller"]
