"""Files and folders that only their owner can read, such as audit logs."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
from msgspec import Struct

from dragoman.core.errors import StoreUnavailable
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


class AuditFile:
    """A file of JSON lines to which lines are only added. It is opened for each of them, so it may
    be renamed at any time to begin a new one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raises `StoreUnavailable` if the file cannot be opened."""
        os.close(self._open())
        narrow(self.path)

    def append(self, lines: bytes, *, durable: bool) -> None:
        """Adds whole lines. If `durable`, they are on the disk when this returns; else they survive
        the end of the process, but not that of the machine. Raises `StoreUnavailable` if they could
        not be written."""
        handle = self._open()
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                # A full disk or a power cut left half a line. It must not swallow this one.
                lines = b"\n" + lines
            if os.write(handle, lines) != len(lines):
                raise OSError("no space for the whole line")
            if durable:
                os.fsync(handle)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            os.close(handle)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, FILE)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> StoreUnavailable:
        log.error("The audit log cannot be written", file=self.path, why=error)
        return StoreUnavailable("The audit log cannot be written, so nothing is done now")


def audit_line(record: Struct) -> bytes:
    """Returns a record as a line, in which no character controls the terminal that shows it."""
    text = json.dumps(msgspec.to_builtins(record), separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode() + b"\n"
