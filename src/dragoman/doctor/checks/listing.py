"""Checks ListTasks of 1.0."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..check import HTTP, V1, Level, check, given, need
from ..expected_errors import BAD_PARAMS
from ..subject import Case

listing = partial(check, versions=V1)
"""Registers a check of 1.0; 0.3 has no list of tasks."""


def page(it: Case, **args: Any) -> dict[str, Any]:
    """Returns one page."""
    found = it.accepted(it.ask("list", **args))
    need(
        isinstance(found, dict) and isinstance(found.get("tasks"), list), "there is no tasks array"
    )
    return dict(found)


def here(it: Case, **args: Any) -> dict[str, Any]:
    """Returns a page of the finished task's context."""
    given(it.done.get("contextId"), "the task has no context")
    return page(it, contextId=it.done["contextId"], **args)


@listing("list.members", "1.0 §3.1.4")
def members(it: Case) -> None:
    """tasks, nextPageToken, pageSize and totalSize are always present."""
    found = page(it)
    for member, kind in (("nextPageToken", str), ("pageSize", int), ("totalSize", int)):
        need(isinstance(found.get(member), kind), f"{member} is {found.get(member)!r}")


@listing("list.shape", "1.0 §3.1.4")
def shape(it: Case) -> None:
    """The listed tasks have the structure of tasks."""
    for task in here(it)["tasks"]:
        it.shaped("Task", task)


@listing("list.finds", "1.0 §3.1.4")
def finds(it: Case) -> None:
    """A created task is listed in its context."""
    ids = [task.get("id") for task in here(it)["tasks"]]
    need(it.done["id"] in ids, f"{len(ids)} tasks, but not this one")


@listing("list.context", "1.0 §3.1.4")
def context(it: Case) -> None:
    """contextId filters by context."""
    it.task(it.send())  # this one has another context
    for task in here(it)["tasks"]:
        need(task.get("contextId") == it.done["contextId"], "a task of another context is listed")


@listing("list.status", "1.0 §3.1.4")
def status(it: Case) -> None:
    """status filters by state."""
    wanted = it.state(it.done)
    for task in page(it, status=wanted, pageSize=20)["tasks"]:
        need(it.state(task) == wanted, f"one is {it.state(task)!r}")
    other = here(it, status="TASK_STATE_AUTH_REQUIRED")["tasks"]
    need(not other, "a finished task is listed as one that waits")


@listing("list.page-size", "1.0 §3.1.4")
def page_size(it: Case) -> None:
    """A page holds no more than pageSize."""
    it.task(it.send())
    found = page(it, pageSize=1)
    need(len(found["tasks"]) <= 1, f"{len(found['tasks'])} tasks")


@listing("list.pages", "1.0 §3.1.4")
def pages(it: Case) -> None:
    """The pages list every task once, and the last page has no token."""
    done = it.done
    given(done.get("contextId"), "the task has no context")
    made = {done["id"], *(it.task(it.send(contextId=done["contextId"]))["id"] for _ in range(2))}
    seen: list[str] = []
    token = ""
    for _ in range(20):
        more = {"pageToken": token} if token else {}
        found = here(it, pageSize=1, **more)
        seen += [task.get("id") for task in found["tasks"]]
        token = found.get("nextPageToken") or ""
        if not token:
            break
    need(not token, "there is always one more page")
    need(len(seen) == len(set(seen)), "a task came twice")
    need(made <= set(seen), f"{len(made - set(seen))} tasks never came")


@listing("list.total", "1.0 §3.1.4")
def total(it: Case) -> None:
    """totalSize counts all matching tasks, not those of the page."""
    it.task(it.send(contextId=it.done.get("contextId")))
    found = here(it, pageSize=1)
    need(found.get("totalSize", 0) >= 2, f"totalSize is {found.get('totalSize')!r} with 2 tasks")


@listing("list.order", "1.0 §3.1.4")
def order(it: Case) -> None:
    """The task with the latest change comes first."""
    it.task(it.send(contextId=it.done.get("contextId")))
    stamps = [str((task.get("status") or {}).get("timestamp", "")) for task in here(it)["tasks"]]
    given(len(stamps) > 1 and all(stamps), "the tasks have no timestamps")
    need(stamps == sorted(stamps, reverse=True), f"they stand as {stamps[:3]}")


@listing("list.no-artifacts", "1.0 §3.1.4")
def no_artifacts(it: Case) -> None:
    """Artifacts are omitted by default."""
    given(it.done.get("artifacts"), "the task has no artifacts")
    need(not any(task.get("artifacts") for task in here(it)["tasks"]), "they came")


@listing("list.artifacts", "1.0 §3.1.4")
def with_artifacts(it: Case) -> None:
    """includeArtifacts includes the artifacts."""
    given(it.done.get("artifacts"), "the task has no artifacts")
    tasks = here(it, includeArtifacts=True)["tasks"]
    own = [task for task in tasks if task.get("id") == it.done["id"]]
    need(own and own[0].get("artifacts"), "they did not come")


@listing("list.history", "1.0 §3.2.4")
def history(it: Case) -> None:
    """historyLength 0 omits histories."""
    need(not any(t.get("history") for t in here(it, historyLength=0)["tasks"]), "they came")


@listing("list.since", "1.0 §3.1.4", bindings=HTTP)
def since(it: Case) -> None:
    """statusTimestampAfter omits older tasks."""
    found = here(it, statusTimestampAfter="2999-01-01T00:00:00.000Z")
    need(not found["tasks"], f"{len(found['tasks'])} tasks from the future")


@listing("list.size-zero", "1.0 §3.1.4", Level.SHOULD)
def size_zero(it: Case) -> None:
    """pageSize 0 is refused."""
    it.refused(it.ask("list", pageSize=0), BAD_PARAMS)


@listing("list.size-large", "1.0 §3.1.4", Level.SHOULD)
def size_large(it: Case) -> None:
    """pageSize 101 is refused."""
    it.refused(it.ask("list", pageSize=101), BAD_PARAMS)


@listing("list.token", "1.0 §3.1.4")
def token(it: Case) -> None:
    """An unknown pageToken is refused."""
    it.refused(it.ask("list", pageToken="doctor!made!this!up"), BAD_PARAMS)


@listing("list.bad-status", "1.0 §3.1.4", bindings=HTTP)
def bad_status(it: Case) -> None:
    """An unknown status is refused."""
    it.refused(it.ask("list", status="TASK_STATE_DOCTORED"), BAD_PARAMS)
