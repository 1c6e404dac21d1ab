"""The members that our extensions add to A2A messages, and the headers in which a caller activates
extensions."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.core.events import Note, Noted
from dragoman.core.extensions import WORK
from dragoman.core.model import Json, State

HEADERS = ("a2a-extensions", "x-a2a-extensions")
"""The names of the header in 1.0 and 0.3. Callers mix them, so both count in both versions
(a2a-wire §11.1)."""

_KEYS = {f"{WORK}/{kind.value}": kind for kind in Note}
_KEY_OF = {kind: key for key, kind in _KEYS.items()}


def extensions_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the extensions that a caller names in its headers."""
    values = (headers[name] for name in HEADERS if name in headers)
    return tuple(uri for value in values for uri in map(str.strip, value.split(",")) if uri)


def note_out(event: Noted) -> dict[str, Json]:
    """Returns a note as the metadata of a status update."""
    return {_KEY_OF[event.kind]: event.body}


def note_in(metadata: dict[str, Json] | None, state: State) -> Noted | None:
    """Returns the note in the metadata of a status update, or None if it holds none."""
    if metadata and len(metadata) == 1:
        ((key, body),) = metadata.items()
        if key in _KEYS:
            return Noted(kind=_KEYS[key], body=body, state=state)
    return None
