"""Finds the store for a URL.

Another package adds a scheme with an entry point of the group `dragoman.stores`. Its name is the
scheme, and its value is a callable that takes the URL and the clock and returns a `Store`. A store
is imported when its scheme is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.core.errors import ConfigError

from .clock import Clock, wall_clock
from .interface import Store

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "dragoman.stores"

Maker = Callable[[str, Clock], Store]


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """Returns the store for a URL. It still has to be opened.

    `memory:`, `sqlite:///relative/path`, `sqlite:////absolute/path`, `file:relative/folder`,
    `file:///absolute/folder`, `postgresql://user@host/database`, or a scheme that another package
    has added."""
    scheme, colon, _ = url.partition(":")
    make = _OWN.get(scheme) if colon else None
    if make is None and colon:
        make = _foreign(scheme)
    if make is None:
        known = sorted({*_OWN, *(point.name for point in _entry_points())})
        # Only the scheme is named: the rest of a URL may hold a password.
        raise ConfigError(
            f"There is no store for '{scheme}:'. Known schemes: {', '.join(known)}.", scheme=scheme
        )
    return make(url, clock or wall_clock)


def _foreign(scheme: str) -> Maker | None:
    for point in _entry_points().select(name=scheme):
        make: Maker = point.load()
        return make
    return None


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # slow to import

    return entry_points(group=GROUP)


def _memory(url: str, clock: Clock) -> Store:
    if url != "memory:":
        raise ConfigError(f"A store in memory has no path: write 'memory:', not {url!r}.")
    from .memory.store import MemoryStore

    return MemoryStore(clock)


def _sqlite(url: str, clock: Clock) -> Store:
    path = url.removeprefix("sqlite:///")
    if path == url or not path or path == ":memory:":
        raise ConfigError(
            f"Write 'sqlite:///file.db', or four slashes for an absolute path, not {url!r}."
        )
    from .sqlite.store import SqliteStore

    return SqliteStore(Path(path), clock)


def _file(url: str, clock: Clock) -> Store:
    path = url.removeprefix("file:")
    if path.startswith("///"):
        path = path[2:]
    if not path or path.startswith("//"):
        raise ConfigError(
            f"Write 'file:folder', or 'file:///folder' for an absolute path, not {url!r}."
        )
    from .file.store import FileStore

    return FileStore(Path(path), clock)


def _postgres(url: str, clock: Clock) -> Store:
    try:
        from .postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        raise ConfigError(
            "A store on PostgreSQL needs the extra 'postgres': pip install 'dragoman[postgres]'."
        ) from error
    return PostgresStore(url, clock)


_OWN: dict[str, Maker] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "file": _file,
    "postgresql": _postgres,
    "postgres": _postgres,
}
