"""What our extensions add to A2A messages, and how a caller says which it understands."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.core.events import Note, Noted
from dragoman.core.extensions import WORK
from dragoman.core.model import Json, State

HEADERS = ("a2a-extensions", "x-a2a-extensions")
"""1.0's name and 0.3's; callers mix them, so both count in both (a2a-wire §11.1)."""

_KEYS = {f"{WORK}/{kind.value}": kind for kind in Note}
_KEY_OF = {kind: key for key, kind in _KEYS.items()}


def extensions_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The extensions a caller names in its headers."""
    values = (headers[name] for name in HEADERS if name in headers)
    return tuple(uri for value in values for uri in map(str.strip, value.split(",")) if uri)


def note_out(event: Noted) -> dict[str, Json]:
    """A note as metadata of a status update."""
    return {_KEY_OF[event.kind]: event.body}


def note_in(metadata: dict[str, Json] | None, state: State) -> Noted | None:
    """The note in the metadata of a status update, if that is what it is."""
    if metadata and len(metadata) == 1:
        ((key, body),) = metadata.items()
        if key in _KEYS:
            return Noted(kind=_KEYS[key], body=body, state=state)
    return None
