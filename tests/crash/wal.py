"""What SQLite keeps in a write-ahead log, read from outside: frames, commits, and how far they got.

Format: https://www.sqlite.org/fileformat2.html#walformat and https://www.sqlite.org/walformat.html
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from dragoman.store.sqlite.store import FOLDED

HEADER, FRAME_HEADER = 32, 24


class Place(NamedTuple):
    """A place in a log: its generation, and the number of frames committed there."""

    generation: bytes
    frames: int


def place(db: Path) -> Place:
    """How far commits got, as the processes that use the file agree in its shared memory."""
    index = db.with_name(db.name + "-shm").read_bytes()[:48]
    (frames,) = struct.unpack_from("=I", index, 16)
    return Place(index[32:40], frames)


def frame_size(wal: bytes) -> int:
    (page,) = struct.unpack_from(">I", wal, 8)
    return int(page) + FRAME_HEADER


def generation(wal: bytes) -> bytes:
    """The salt that all frames since the last restart of the log carry."""
    return wal[16:24]


def commits(wal: bytes) -> list[int]:
    """The number of frames up to each commit of this generation."""
    size, salt = frame_size(wal), generation(wal)
    found: list[int] = []
    for n, start in enumerate(range(HEADER, len(wal) - size + 1, size), start=1):
        if wal[start + 8 : start + 16] != salt:
            break
        if wal[start + 4 : start + 8] != bytes(4):
            found.append(n)
    return found


def offset(wal: bytes, frames: int) -> int:
    """Where the frame behind these begins."""
    return HEADER + frames * frame_size(wal)


def lose_commits(db: Path, number: int) -> int:
    """What a disk does that said `synced` and was not, when the power goes: the last commits are
    gone. Gives how many. Only where none of them can be in the database itself already."""
    path = db.with_name(db.name + "-wal")
    wal = path.read_bytes() if path.exists() else b""
    if len(wal) < HEADER:
        return 0
    ends = commits(wal)
    if not ends or ends[-1] >= FOLDED - 100:  # about to be copied, or copied
        return 0
    keep = ends[-number - 1] if len(ends) > number else 0
    with path.open("r+b") as file:
        file.truncate(offset(wal, keep))
    return min(number, len(ends))
