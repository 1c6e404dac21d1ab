"""A2A 0.1: the first public API, where callers name their tasks."""

from msgspec.structs import replace

from ...version import Version
from .calls import EventEncoder, event_in, methods
from .convert import BOTH, PLAIN, Flavour
from .spellings import MEANINGS, SPELLINGS, details

V0_1 = Version(
    name="0.1",
    dialect="a2a-0.1",
    extensions_header="x-a2a-extensions",
    methods=methods(PLAIN),
    event_out=lambda entry, notes: EventEncoder(PLAIN).event_out(entry, notes),
    event_in=event_in,
    spellings=SPELLINGS,
    meanings=MEANINGS,
    details=details,
)


def new_stream(version: Version, flavour: Flavour) -> Version:
    """Returns the version for one exchange, whose encoder keeps state."""
    return replace(version, event_out=EventEncoder(flavour).event_out)


__all__ = ["BOTH", "PLAIN", "V0_1", "EventEncoder", "new_stream"]
