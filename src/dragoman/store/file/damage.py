"""The quarantine for damaged files: they are put aside, so that the rest of the store can be
used."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from dragoman.core.log import Logger

from ..local.private_files import make_folder

log = Logger("store")


class Damaged(Exception):
    """A file can no longer be read, although its content may have been acknowledged."""


class Quarantine:
    """The folder for damaged files. The store never deletes anything from it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: set[str] = set()
        """The names of the files that were put aside, without their endings."""

    def put(self, path: Path, why: object) -> None:
        """Moves a file out of the store, and logs it. A file of the same name stays."""
        make_folder(self._folder)
        names = (path.name if not n else f"{path.stem}.{n}{path.suffix}" for n in count())
        aside = next(place for name in names if not (place := self._folder / name).exists())
        path.rename(aside)
        self.names.add(path.stem)
        log.error("A file is damaged and was put aside", file=path, aside=aside, where=why)
