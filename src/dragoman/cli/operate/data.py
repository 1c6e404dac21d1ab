"""`dragoman data`: exports, erases or copies what is stored."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from msgspec.structs import replace

from dragoman.core.errors import ConfigError, StoreError
from dragoman.core.questions import yes_or_no
from dragoman.files import delete_files
from dragoman.store.codec import deeply
from dragoman.store.interface import AdminFilter, Row, Store

from ..store_access import StoreUrl, opened, settings_of
from .data_copy import copy

data = App(name="data", help="Export or erase stored tasks, or copy a store.")
data.command(copy)

PAGE = 500
"""The number of tasks that are looked up at a time."""
EVENTS = 1000


class TracesRemain(StoreError):
    """What was deleted is still in a file."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Selection:
    """The tasks that a command is about."""

    principal: Annotated[str | None, Parameter(help="All tasks of this caller.")] = None
    context_id: Annotated[
        str | None, Parameter(name="--context", help="All tasks of this context.")
    ] = None
    task_id: Annotated[str | None, Parameter(name="--task", help="This task.")] = None
    agent: Annotated[str | None, Parameter(help="All tasks of this agent.")] = None
    tenant: Annotated[str | None, Parameter(help="All tasks of this tenant.")] = None

    def filter(self) -> AdminFilter:
        """Returns the filter for the store. Raises `ConfigError` if nothing is selected."""
        if not set(asdict(self).values()) - {None}:
            raise ConfigError(
                "Whose data? Give --principal, --tenant, --context, --task or --agent."
            )
        return AdminFilter(**asdict(self))


@data.command
def export(*, selection: Selection = Selection(), store: StoreUrl = None) -> None:  # noqa: B008  frozen
    """Write stored tasks as JSON, one per line: task, log and webhooks (secrets masked)."""
    which = selection.filter()

    async def work(found: Store) -> None:
        async for row in _rows(found, which):
            line = deeply(msgspec.json.encode, await told(found, row))
            sys.stdout.buffer.write(line + b"\n")

    opened(store, work)


@data.command
def erase(
    *,
    selection: Selection = Selection(),  # noqa: B008  frozen
    store: StoreUrl = None,
    yes: Annotated[bool, Parameter(help="Do not ask for confirmation.")] = False,
    wait: Annotated[
        float, Parameter(help="How many seconds to wait for other processes that read the store.")
    ] = 20.0,
) -> None:
    """Delete tasks with their messages, artifacts, files, log, webhooks and pending deliveries.

    Running tasks are deleted too; their code ends when it sends its next event.
    """
    which = selection.filter()

    async def work(found: Store) -> None:
        ids = [row.task_id async for row in _rows(found, which)]
        if ids and not yes and not _agreed(len(ids)):
            print("Nothing was erased.")
            return
        erased = await found.erase(ids)
        delete_files(settings_of(store), ids)
        if not await found.remove_traces(0.0):
            print(
                f"Another process reads the store. Waiting up to {wait:g} s for it to finish ...",
                file=sys.stderr,
            )
            if not await found.remove_traces(wait):
                raise TracesRemain(
                    f"{erased} tasks were deleted, but their content is still in the file, because "
                    "another process is reading it. Stop that process and run this command again."
                )
        print(f"Erased {erased} tasks.")

    opened(store, work)


async def told(store: Store, row: Row) -> dict[str, Any]:
    """Returns everything that is stored about one task."""
    _, task = await store.load(row.scope, row.task_id)
    log: list[Any] = []
    while True:
        page = await store.read(row.scope, row.task_id, len(log), EVENTS)
        log += page.entries
        if len(page.entries) < EVENTS:
            break
    hooks = await store.hooks(row.scope, row.task_id)
    return {
        "task": task,
        "tenant": row.tenant,
        "principal": row.principal,
        "agent": row.agent,
        "skill": row.skill,
        "created_at": row.created_at,
        "log": log,
        "webhooks": [
            replace(hook, token=_masked(hook.token), credentials=_masked(hook.credentials))
            for hook in hooks
        ],
    }


async def _rows(store: Store, which: AdminFilter) -> AsyncGenerator[Row, None]:
    limit, seen = PAGE, 0
    while True:
        found = await store.find_in_all_scopes(which, limit)
        for row in found[seen:]:
            yield row
        if len(found) < limit:
            return
        seen, limit = len(found), limit * 2


def _agreed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(f"{count} tasks would be erased for good. Add --yes if you mean it.")
    return yes_or_no(input(f"Erase {count} tasks for good? [y/N] ")) is True


def _masked(secret: str) -> str:
    return "****" if secret else ""
