"""The rows of databases that are exported and imported, which SQLite and PostgreSQL share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..bulkheads import host_of
from ..codec import pack
from ..outbox import MOVING, HookCursor
from .stored_task import Collections, CopyMark, TaskVersion

DROPPED = 2
"""The value of `ended` for a task whose log was dropped."""
HOOK = ("n", "task_id", "hook_id", "tenant", "principal", "agent", "body", "host", *MOVING)
"""The columns of a webhook."""
COLLECTIONS: Mapping[str, tuple[str, ...]] = {
    "session": ("key", "agent", "who", "until", "revoked", "revision", "body"),
    "said": ("key", "until"),
    "registered": ("name", "source", "owner", "until", "removed_at", "revision", "body"),
    "link_key": ("access_key", "added_at", "revoked_at", "body"),
    "link_status": ("side", "agent_id", "server", "host", "reported_at", "body"),
}
"""The tables of what is not a task, and their columns."""


def rows_of(found: Collections) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the rows of `COLLECTIONS`."""
    return {
        "session": [
            (it.key, it.agent, it.who, it.until, it.revoked, it.revision, pack(it))
            for it in found.sessions
        ],
        "said": [(it.key, it.until) for it in found.used_keys],
        "registered": [
            (it.name, str(it.source), it.owner, it.until, it.removed_at, it.revision, pack(it))
            for it in found.agents
        ],
        "link_key": [
            (it.access_key, it.added_at, it.revoked_at, pack(it)) for it in found.link_keys
        ],
        "link_status": [(*it.key, it.reported_at, pack(it)) for it in found.link_status],
    }


def hook_row(cursor: HookCursor) -> tuple[Any, ...]:
    """Returns the columns of `HOOK`."""
    hook, scope = cursor.hook, cursor.scope
    place = (cursor.n, hook.task_id, hook.hook_id, scope.tenant, scope.principal, scope.agent)
    moving = (getattr(cursor, name) for name in MOVING)
    return (*place, pack(hook), host_of(hook.url), *moving)


def version_in(
    found: Sequence[Any], recorded: Mapping[str, int], hooks: Mapping[str, bytes]
) -> TaskVersion:
    """Returns the version of a task, from the columns of its row, the number of its recorded calls
    if it is not finished, and its webhooks."""
    task_id, *columns, runnable = found
    return TaskVersion(
        task_id,
        (*columns, int(runnable), recorded.get(task_id, 0), hooks.get(task_id, b"")),
    )


def mark_in(found: Sequence[Any]) -> CopyMark:
    """Returns the mark of a copy, from its row."""
    source, begun_at, finished_at = found
    return CopyMark(source=source, begun_at=begun_at, finished_at=finished_at)
