"""Small JSON files, one for each entry of a collection, each replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from .damage import Quarantine
from .writer import clean_folder

T = TypeVar("T")


def read_all(folder: Path, kind: type[T], damaged: Quarantine) -> list[T]:
    """Returns the entries of a folder, which is created if there is none. A file that holds no
    entry is put aside."""
    clean_folder(folder)
    found: list[T] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=kind))
        except ValueError as error:  # not JSON, or not an entry
            damaged.put(path, error)
    return found
