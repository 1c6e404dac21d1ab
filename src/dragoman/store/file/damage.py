"""What of a file store cannot be read: named in the log, put aside, and in nobody's way."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from dragoman.core.log import Logger

from ..private_files import make_folder

log = Logger("store")


class Damaged(Exception):
    """A file does not hold what was once written to it, and that may have been acknowledged."""


class Quarantine:
    """The folder for what is damaged. Nothing is ever deleted from it but by a person."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: set[str] = set()
        """Of the files that were put aside, without their endings."""

    def put(self, path: Path, why: object) -> None:
        """Takes a file out of the store."""
        make_folder(self._folder)
        names = (path.name if not n else f"{path.stem}.{n}{path.suffix}" for n in count())
        aside = next(place for name in names if not (place := self._folder / name).exists())
        path.rename(aside)
        self.names.add(path.stem)
        log.error("A file is damaged and was put aside", file=path, aside=aside, where=why)
