"""A2A 0.3, and 0.2, which is the same on this wire."""

from .. import errors
from ..version import Version
from .calls import METHODS, event_in, event_out

V0_3 = Version(
    name="0.3",
    dialect="a2a-0.3",
    extensions_header="x-a2a-extensions",
    methods=METHODS,
    event_out=event_out,
    event_in=event_in,
    spellings=errors.SPELLINGS_0_3,
    details=errors.details_0_3,
    refuses_in_stream=True,
)
