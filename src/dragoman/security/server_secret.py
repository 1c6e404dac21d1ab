"""The key that signs page tokens and the like: stable over restarts, never in the configuration."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dragoman.core.errors import ConfigError

VARIABLE = "DRAGOMAN_SECRET_KEY"
FILE = "dragoman.key"


def secret_for(store: str, environ: Mapping[str, str]) -> bytes:
    """`DRAGOMAN_SECRET_KEY`, else a 0600 file beside the store, made at the first start.

    A store in memory has no such place: its key lives as long as the process. Processes on
    PostgreSQL must be given one.
    """
    given = environ.get(VARIABLE, "")
    if given:
        if len(given) < 16:
            raise ConfigError(f"{VARIABLE} is too short; give at least 16 random characters.")
        return hashlib.sha256(given.encode()).digest()
    if store.startswith(("postgresql:", "postgres:")):
        raise ConfigError(
            f"Processes that share a store need one key: set {VARIABLE} to the same random text "
            "for all of them."
        )
    path = key_file(store)
    if path is None:
        return secrets.token_bytes(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make(path)
        key = path.read_bytes().strip()
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be used: {exc.strerror}. Mend it or set {VARIABLE}."
        ) from None
    if len(key) < 16:
        raise ConfigError(f"{path} holds no key. Remove it to get a new one, or set {VARIABLE}.")
    return hashlib.sha256(key).digest()


def caller_name(store: str, environ: Mapping[str, str], agent: str) -> str:
    """Returns the name under which this server introduces itself to other agents, on behalf of one
    of its own: the same after every restart and in every process on the store. Other agents keep
    tasks and idempotency keys under it. It is made of the key, so two servers never share one."""
    mark = hmac.digest(secret_for(store, environ), b"caller\0" + agent.encode(), "sha256")
    return f"dragoman-{mark[:8].hex()}"


def _make(path: Path) -> None:
    """Writes a new key. It appears whole or not at all, and of two who make one the first counts:
    a key that is half there, or two of them, would sign what the next start cannot read."""
    draft = path.with_name(f"{FILE}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def key_file(store: str) -> Path | None:
    """Returns where the key of a store lies, if the store lies on this machine."""
    folder = folder_of(store)
    return folder / FILE if folder is not None else None


def folder_of(store: str) -> Path | None:
    """Returns the folder of a store, if it lies on this machine."""
    scheme, _, rest = store.partition(":")
    if scheme == "sqlite":
        return Path(rest.removeprefix("///")).parent
    if scheme == "file":
        return Path(rest.removeprefix("//"))
    return None
