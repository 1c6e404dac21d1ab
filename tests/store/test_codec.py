"""How events are written down, and read by another version."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.core.events import Stamped, StateChanged
from dragoman.core.model import State
from dragoman.store.codec import unpack_piece


@pytest.mark.parametrize("encode", [msgspec.msgpack.encode, msgspec.json.encode])
def test_events_with_fields_of_a_newer_version_are_read(encode: type) -> None:
    """A new version was in use for a while, and the old one is back."""
    entry = Stamped("t", "c", 2, 1_700_000_000_000, StateChanged(state=State.WORKING))
    (newer,) = msgspec.to_builtins([entry])
    newer[-1]["urgency"] = {"level": 3}
    assert unpack_piece(encode([[*newer, "signature"]])) == [entry]
