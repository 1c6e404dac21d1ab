"""`dragoman data copy`: copies a store to another one."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

import msgspec
from cyclopts import Parameter

from dragoman.core.errors import ConfigError, StoreError
from dragoman.security.server_secret import FILE, VARIABLE, folder_of
from dragoman.store import Store, open_store
from dragoman.store.approvals import audit_of
from dragoman.store.clock import wall_clock
from dragoman.store.transfer.copy import Progress, StoreCopy

from ..store_access import AsJson, check_place

PAUSE = 1.0
"""The seconds between two passes over a source that is in use."""


def copy(
    *,
    source: Annotated[
        str, Parameter(name="--from", help="The store to copy, such as sqlite:///dragoman.db.")
    ],
    target: Annotated[
        str, Parameter(name="--to", help="An empty store, or one into which a copy was begun.")
    ],
    follow: Annotated[
        bool,
        Parameter(
            help="The source is in use: copy what changes until its servers have been stopped."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy everything in a store to another one: tasks, logs, webhooks, keys, sessions, agents.

    A copy that was interrupted goes on where it was when the same command is run again. A task that
    the target cannot hold is named and skipped; the exit code is then 1.
    """
    origin = where(source)
    if origin == where(target):
        raise ConfigError("The source and the target are the same store.")
    for each in (source, target):
        check_place(each, create=each == target)
    key = _check_keys(source, target)

    async def main() -> tuple[dict[str, tuple[int, int]], int]:
        async with _opened(source) as theirs, _opened(target) as ours:
            work = StoreCopy(theirs, ours, origin, wall_clock, on_skip=_print_skipped)
            return await _copied(work, follow=follow), await work.count_skipped()

    compared, skipped = asyncio.run(main())
    differ = [name for name, (theirs, ours) in compared.items() if theirs != ours]
    _print(compared, as_json=as_json)
    if differ:
        raise SystemExit(f"dragoman: The counts of {', '.join(differ)} differ; the copy is open.")
    for line in _beside(source, target, key):
        print(line, file=sys.stderr)
    if skipped:
        tasks = "1 task was" if skipped == 1 else f"{skipped} tasks were"
        raise SystemExit(
            f"dragoman: {tasks} skipped, and the source still has them. The copy is complete "
            "otherwise."
        )


def _print_skipped(task_id: str, error: StoreError) -> None:
    # The id may contain control characters; `repr` shows them without sending them to a terminal.
    print(f"Skipped the task {task_id!r}: {error.message}", file=sys.stderr, flush=True)


async def _copied(work: StoreCopy, *, follow: bool) -> dict[str, tuple[int, int]]:
    """Copies until nothing is left to be copied, and compares."""
    servers = await work.servers()
    if servers and not follow:
        raise ConfigError(
            f"Servers use the source ({servers} processes). Stop them, or add --follow to copy now "
            "and stop them later. One that was killed counts until its lease has run out."
        )
    if await work.begin():
        print("The copy that was begun is continued.", file=sys.stderr)
    with _bar(await work.count_tasks()) as progress:
        told = False
        while follow and await work.servers():
            await work.run_pass(progress)
            if not told:
                told = True
                print(
                    "Everything is copied, and changes are followed. Stop the servers of the "
                    "source; the copy is then completed.",
                    file=sys.stderr,
                    flush=True,
                )
            await asyncio.sleep(PAUSE)
        return await work.finish(progress)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def _bar(total: int) -> Iterator[Progress]:
    """Shows how much is copied, if a person is looking."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Copying tasks", total=total)
        yield lambda done: bar.update(task, completed=done, total=max(total, done))


def _print(compared: dict[str, tuple[int, int]], *, as_json: bool) -> None:
    if as_json:
        found = {name: {"from": a, "to": b} for name, (a, b) in compared.items()}
        print(msgspec.json.encode(found).decode())
        return
    for name, (theirs, ours) in compared.items():
        agree = f"{ours}" if ours == theirs else f"{ours}, but the source has {theirs}"
        print(f"{name:20}{agree}")


def where(url: str) -> str:
    """Returns the URL of a store in one form, without secrets."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return f"sqlite:///{Path(rest.removeprefix('///')).resolve()}"
    if scheme == "file":
        return f"file://{Path(rest.removeprefix('//')).resolve()}"
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    # Only what names a store: other parameters say how it is reached, and may hold a password.
    kept = [each for each in parts.query.split("&") if each.startswith(("host=", "schema="))]
    scheme = "postgresql" if scheme == "postgres" else scheme
    return urlunsplit((scheme, host, parts.path, "&".join(sorted(kept)), ""))


# What lies beside a store on this machine.


def _check_keys(source: str, target: str) -> Path | None:
    """Returns the file with the key of the source, unless the key is given in the environment.
    Raises `ConfigError` if the target has another key."""
    folder, place = folder_of(source), folder_of(target)
    key = folder / FILE if folder is not None else None
    if os.environ.get(VARIABLE) or key is None or not key.is_file():
        return None
    theirs = place / FILE if place is not None else None
    if theirs is not None and theirs.is_file() and theirs.read_bytes() != key.read_bytes():
        raise ConfigError(
            f"{theirs} is another key than {key}, with which the secrets of the source are sealed. "
            "Remove it, or choose another folder for the target."
        )
    return key


def _beside(source: str, target: str, key: Path | None) -> Iterator[str]:
    """Copies the key and the audit log if the target is on this machine too. Yields what is left to
    do by hand."""
    place = folder_of(target)
    if key is not None and place is None:
        yield f"Its servers need the key of the source: set {VARIABLE} to the text in {key}."
    elif key is not None and place is not None and not (place / FILE).exists():
        shutil.copy2(key, place / FILE)
    audit, theirs = audit_of(source).path, audit_of(target).path
    if audit is not None and audit.is_file():
        if theirs is None:
            yield f"The audit log of approvals stays where it is: {audit}."
        else:
            shutil.copy2(audit, theirs)
    if files := _files_of(source):
        yield f"Files of tasks stay where they are: {files}. Set [files] folder to it, or move it."


def _files_of(url: str) -> Path | None:
    folder = folder_of(url)
    if folder is None:
        return None
    name = f"{Path(url).name}.files" if url.startswith("sqlite:") else "files"
    return folder / name if (folder / name).is_dir() else None
