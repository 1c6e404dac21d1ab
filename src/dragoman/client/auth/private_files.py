"""The files with a user's secrets, which only the user may read."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dragoman.core.errors import ConfigError

VARIABLE = "DRAGOMAN_CONFIG_DIR"
CREDENTIALS, TOKENS = "credentials.toml", "tokens.json"
MOST_BYTES = 1024 * 1024


def folder(environ: Mapping[str, str]) -> Path:
    """Returns `DRAGOMAN_CONFIG_DIR`, or `dragoman` in the system's folder for settings."""
    if given := environ.get(VARIABLE):
        return Path(given)
    home = environ.get("XDG_CONFIG_HOME") or environ.get("APPDATA")
    return (Path(home) if home else Path.home() / ".config") / "dragoman"


def read_private(path: Path) -> bytes | None:
    """Returns the file's content, or None if there is no file. Raises `ConfigError` if others may
    read it.

    The open file is checked and not its name, behind which another file could be put in between.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.") from None
    with open(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ConfigError(f"{path} is not a file.")
        if hasattr(os, "geteuid"):
            if about.st_uid != os.geteuid():
                raise ConfigError(f"{path} belongs to someone else.")
            if stat.S_IMODE(about.st_mode) & 0o077:
                raise ConfigError(f"{path} can be read by others. Run: chmod 600 {path}")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path} is larger than {MOST_BYTES} bytes.")
    return content


def write_private(path: Path, content: bytes) -> None:
    """Replaces the file atomically: readers see either the whole old content or the whole new
    one."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as exc:
        raise ConfigError(f"{path} cannot be written: {exc.strerror}.") from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock among all processes of this user while a file is replaced."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows has no flock: the last writer wins
        yield
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise ConfigError(f"{path.parent} cannot be written to: {exc.strerror}.") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
