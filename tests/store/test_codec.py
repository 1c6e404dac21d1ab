"""How the events of a log are written: the ids of a task once for each piece, and older pieces."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dragoman.core.events import ArtifactChunk, Stamped, StateChanged
from dragoman.core.model import Artifact, Data, State
from dragoman.store.codec import pack, pack_piece, unpack_piece

HUGE = 1 << 70
"""More than msgpack can hold, so a piece that has it is JSON."""


def _piece(count: int, value: int = 1) -> list[Stamped]:
    chunk = ArtifactChunk(artifact=Artifact(artifact_id="a", parts=(Data(value={"n": value}),)))
    moved = StateChanged(state=State.WORKING)
    return [
        Stamped("task-1", "context-1", seq, 5, chunk if seq % 2 else moved)
        for seq in range(1, count + 1)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 15, 16, 80_000])
def test_a_piece_is_read_as_it_was_written(count: int) -> None:
    piece = _piece(count)
    assert unpack_piece(pack_piece(piece)) == piece
    assert unpack_piece(pack(piece)) == piece  # as it was written before


@pytest.mark.parametrize("count", [1, 3])
def test_a_piece_with_a_huge_number_is_read_too(count: int) -> None:
    piece = _piece(count, HUGE)
    assert unpack_piece(pack_piece(piece)) == piece
    assert unpack_piece(pack(piece)) == piece


def test_a_piece_names_its_task_once() -> None:
    written = pack_piece(_piece(9))
    assert written.count(b"task-1") == written.count(b"context-1") == 1
    assert msgspec.msgpack.decode(written)[:2] == ["task-1", "context-1"]


@pytest.mark.parametrize("encode", [msgspec.msgpack.encode, msgspec.json.encode])
def test_events_with_fields_of_a_newer_version_are_read(encode: Callable[[object], bytes]) -> None:
    """A new version was in use for a while, and the old one is back."""
    entry = Stamped("t", "c", 2, 1_700_000_000_000, StateChanged(state=State.WORKING))
    (newer,) = msgspec.to_builtins([entry])
    newer[-1]["urgency"] = {"level": 3}
    assert unpack_piece(encode(["t", "c", [[*newer[2:], "signature"]], "checksum"])) == [entry]
    assert unpack_piece(encode([[*newer, "signature"]])) == [entry]  # of an older form
