"""Files and folders that only their owner can read."""

from __future__ import annotations

import stat
from pathlib import Path

from dragoman.core.log import Logger

log = Logger("store")

FILE, FOLDER = 0o600, 0o700


def make_folder(path: Path) -> None:
    """A folder for its owner alone, made if it is not there; those above it are as usual."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(exist_ok=True, mode=FOLDER)
    narrow(path)


def narrow(path: Path) -> None:
    """Takes from others what an older version gave them, if the file or folder is there."""
    try:
        mode = path.stat().st_mode
        if mode & 0o077:
            path.chmod(FOLDER if stat.S_ISDIR(mode) else FILE)
    except FileNotFoundError:
        return
    except PermissionError:
        log.warning("Others can read a file of the store, which is not ours to change", file=path)
