"""A2A 1.0."""

from .. import errors
from ..version import Version
from .calls import METHODS, event_in, event_out, events_in

V1_0 = Version(
    name="1.0",
    dialect="a2a-1.0",
    extensions_header="a2a-extensions",
    methods=METHODS,
    event_out=event_out,
    event_in=event_in,
    events_in=events_in,
    spellings=errors.SPELLINGS,
    details=errors.details_1_0,
)
