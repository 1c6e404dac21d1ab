"""Files and folders that only their owner can read."""

from __future__ import annotations

import stat
from pathlib import Path

from dragoman.core.log import Logger

log = Logger("store")

FILE, FOLDER = 0o600, 0o700


def make_folder(path: Path) -> None:
    """Makes a folder that only its owner can read, if there is none. Folders above it get the usual
    mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(exist_ok=True, mode=FOLDER)
    narrow(path)


def narrow(path: Path) -> None:
    """Removes the access of other users, which an older version granted, if the path exists."""
    try:
        mode = path.stat().st_mode
        if mode & 0o077:
            path.chmod(FOLDER if stat.S_ISDIR(mode) else FILE)
    except FileNotFoundError:
        return
    except PermissionError:
        log.warning("Others can read a file of the store, which is not ours to change", file=path)
