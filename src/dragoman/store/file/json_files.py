"""Small JSON files, one for each entry of a collection, each replaced as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from .damage import Quarantine
from .sessions import Replace
from .writer import clean_folder

T = TypeVar("T")


def name_for(key: str) -> str:
    """Returns a name for an entry whose key may be any text, which a file name may not."""
    return hashlib.sha256(key.encode()).hexdigest()


class JsonFiles(Generic[T]):
    """The entries of one folder."""

    def __init__(self, folder: Path, kind: type[T], put: Replace) -> None:
        self._folder, self._kind, self._replace = folder, kind, put

    def read_all(self, damaged: Quarantine) -> list[T]:
        """Returns the entries of the folder, which is created if there is none. A file that holds
        no entry is put aside."""
        clean_folder(self._folder)
        found: list[T] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=self._kind))
            except ValueError as error:  # not JSON, or not an entry
                damaged.put(path, error)
        return found

    async def put(self, name: str, entry: T | None) -> None:
        """Writes the entry of this name, or removes it."""
        data = msgspec.json.encode(entry) if entry is not None else b""
        await self._replace(self._folder / f"{name}.json", data)

    async def replace_all(self, entries: Mapping[str, T]) -> None:
        """Writes these entries by their names, and removes all others."""
        for name, entry in entries.items():
            await self.put(name, entry)
        for path in sorted(self._folder.glob("*.json")):
            if path.stem not in entries:
                await self._replace(path, b"")
