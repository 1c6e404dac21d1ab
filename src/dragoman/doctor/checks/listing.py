"""ListTasks of 1.0."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..check import HTTP, V1, Level, check, given, need
from ..expected_errors import BAD_PARAMS
from ..subject import Case

listing = partial(check, versions=V1)
"""0.3 has no list of tasks."""


def page(it: Case, **args: Any) -> dict[str, Any]:
    """One page."""
    found = it.accepted(it.ask("list", **args))
    need(
        isinstance(found, dict) and isinstance(found.get("tasks"), list), "there is no tasks array"
    )
    return dict(found)


def here(it: Case, **args: Any) -> dict[str, Any]:
    """A page of the finished task's context."""
    given(it.done.get("contextId"), "the task has no context")
    return page(it, contextId=it.done["contextId"], **args)


@listing(
    "list.members",
    "tasks, nextPageToken, pageSize and totalSize are always there.",
    "1.0 §3.1.4",
)
def members(it: Case) -> None:
    found = page(it)
    for member, kind in (("nextPageToken", str), ("pageSize", int), ("totalSize", int)):
        need(isinstance(found.get(member), kind), f"{member} is {found.get(member)!r}")


@listing("list.shape", "What is listed is shaped as tasks.", "1.0 §3.1.4")
def shape(it: Case) -> None:
    for task in here(it)["tasks"]:
        it.shaped("Task", task)


@listing("list.finds", "A task that was made is listed in its context.", "1.0 §3.1.4")
def finds(it: Case) -> None:
    ids = [task.get("id") for task in here(it)["tasks"]]
    need(it.done["id"] in ids, f"{len(ids)} tasks, but not this one")


@listing("list.context", "contextId keeps other contexts out.", "1.0 §3.1.4")
def context(it: Case) -> None:
    it.task(it.send())  # in a context of its own
    for task in here(it)["tasks"]:
        need(task.get("contextId") == it.done["contextId"], "a task of another context is listed")


@listing("list.status", "status keeps other states out.", "1.0 §3.1.4")
def status(it: Case) -> None:
    wanted = it.state(it.done)
    for task in page(it, status=wanted, pageSize=20)["tasks"]:
        need(it.state(task) == wanted, f"one is {it.state(task)!r}")
    other = here(it, status="TASK_STATE_AUTH_REQUIRED")["tasks"]
    need(not other, "a finished task is listed as one that waits")


@listing("list.page-size", "A page holds no more than pageSize.", "1.0 §3.1.4")
def page_size(it: Case) -> None:
    it.task(it.send())
    found = page(it, pageSize=1)
    need(len(found["tasks"]) <= 1, f"{len(found['tasks'])} tasks")


@listing(
    "list.pages",
    "Page after page, every task comes once; the last page has no token.",
    "1.0 §3.1.4",
)
def pages(it: Case) -> None:
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


@listing("list.total", "totalSize counts all that match, not the page.", "1.0 §3.1.4")
def total(it: Case) -> None:
    it.task(it.send(contextId=it.done.get("contextId")))
    found = here(it, pageSize=1)
    need(found.get("totalSize", 0) >= 2, f"totalSize is {found.get('totalSize')!r} with 2 tasks")


@listing("list.order", "The latest change comes first.", "1.0 §3.1.4")
def order(it: Case) -> None:
    it.task(it.send(contextId=it.done.get("contextId")))
    stamps = [str((task.get("status") or {}).get("timestamp", "")) for task in here(it)["tasks"]]
    given(len(stamps) > 1 and all(stamps), "the tasks have no timestamps")
    need(stamps == sorted(stamps, reverse=True), f"they stand as {stamps[:3]}")


@listing("list.no-artifacts", "Artifacts are left out unless asked for.", "1.0 §3.1.4")
def no_artifacts(it: Case) -> None:
    given(it.done.get("artifacts"), "the task has no artifacts")
    need(not any(task.get("artifacts") for task in here(it)["tasks"]), "they came")


@listing("list.artifacts", "includeArtifacts brings them.", "1.0 §3.1.4")
def with_artifacts(it: Case) -> None:
    given(it.done.get("artifacts"), "the task has no artifacts")
    tasks = here(it, includeArtifacts=True)["tasks"]
    own = [task for task in tasks if task.get("id") == it.done["id"]]
    need(own and own[0].get("artifacts"), "they did not come")


@listing("list.history", "historyLength 0 leaves histories out.", "1.0 §3.2.4")
def history(it: Case) -> None:
    need(not any(t.get("history") for t in here(it, historyLength=0)["tasks"]), "they came")


@listing(
    "list.since",
    "statusTimestampAfter leaves out what is older.",
    "1.0 §3.1.4",
    bindings=HTTP,
)
def since(it: Case) -> None:
    found = here(it, statusTimestampAfter="2999-01-01T00:00:00.000Z")
    need(not found["tasks"], f"{len(found['tasks'])} tasks from the future")


@listing("list.size-zero", "pageSize 0 is refused.", "1.0 §3.1.4", Level.SHOULD)
def size_zero(it: Case) -> None:
    it.refused(it.ask("list", pageSize=0), BAD_PARAMS)


@listing("list.size-large", "pageSize 101 is refused.", "1.0 §3.1.4", Level.SHOULD)
def size_large(it: Case) -> None:
    it.refused(it.ask("list", pageSize=101), BAD_PARAMS)


@listing("list.token", "A pageToken that nobody gave is refused.", "1.0 §3.1.4")
def token(it: Case) -> None:
    it.refused(it.ask("list", pageToken="doctor!made!this!up"), BAD_PARAMS)


@listing(
    "list.bad-status",
    "A status that nobody knows is refused.",
    "1.0 §3.1.4",
    bindings=HTTP,
)
def bad_status(it: Case) -> None:
    it.refused(it.ask("list", status="TASK_STATE_DOCTORED"), BAD_PARAMS)
