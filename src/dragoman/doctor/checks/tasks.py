"""Checks reading and cancelling tasks, and that every interface shows the same task."""

from __future__ import annotations

from typing import Any

from ..check import EVERY, V1, Body, Broken, Level, Unknowable, check, given, need
from ..expected_errors import ANY, BAD_PARAMS, NOT_CANCELABLE, NOT_FOUND
from ..shapes import plain_state
from ..subject import NO_TASK, AgentUnderTest, Case

TWO = "needs two interfaces to compare"


@check("get.shape", "1.0 §3.1.3; 0.3 §7.3", versions=EVERY)
def shape(it: Case) -> None:
    """A task that is read has the structure of a task."""
    it.shaped("Task", it.accepted(it.ask("get", id=it.done["id"])))


@check("get.same", "1.0 §3.1.3; 0.3 §7.3")
def same(it: Case) -> None:
    """A task that is read is the one that was created."""
    task = it.accepted(it.ask("get", id=it.done["id"]))
    for member in ("id", "contextId"):
        need(task.get(member) == it.done.get(member), f"{member} is {task.get(member)!r}")
    need(it.state(task) == it.state(it.done), f"the state is {it.state(task)!r}")


@check("get.artifacts", "1.0 §3.1.3; 0.3 §7.3")
def artifacts(it: Case) -> None:
    """A task that is read has its artifacts."""
    given(it.done.get("artifacts"), "the task has no artifacts")
    task = it.accepted(it.ask("get", id=it.done["id"]))
    need(text_of(task) == text_of(it.done), "they are not those of the send")


@check("get.unknown", "1.0 §3.1.3; 0.3 §8.2", versions=EVERY)
def unknown(it: Case) -> None:
    """An unknown task is not found."""
    it.refused(it.ask("get", id=NO_TASK), NOT_FOUND)


def no_id(verb: str) -> Body:
    """Sends a request without an id, which must be refused."""

    def run(it: Case) -> None:
        given(it.binding != "rest", "over REST the path has the id")
        kinds = (BAD_PARAMS,) if it.binding == "jsonrpc" else (BAD_PARAMS, NOT_FOUND)
        it.refused(it.ask(verb), *kinds)

    return run


check("get.no-id", "1.0 §3.1.3; 0.3 §7.3.1", says="Without an id, nothing is read.")(no_id("get"))
check(
    "cancel.no-id",
    "1.0 §3.1.5; 0.3 §7.4.1",
    Level.SHOULD,
    says="Without an id, nothing is cancelled.",
)(no_id("cancel"))


@check("get.history-none", "1.0 §3.2.4", versions=V1)
def history_none(it: Case) -> None:
    """historyLength 0 omits the history."""
    task = it.accepted(it.ask("get", id=it.done["id"], historyLength=0))
    need(not task.get("history"), f"{len(task.get('history') or ())} messages came")


@check("get.history-some", "1.0 §3.2.4; 0.3 §7.3.1")
def history_some(it: Case) -> None:
    """historyLength 1 returns at most one message."""
    task = it.accepted(it.ask("get", id=it.done["id"], historyLength=1))
    came = len(task.get("history") or ())
    need(came <= 1, f"{came} messages came")


@check("get.history-negative", "1.0 §3.2.4", Level.SHOULD, versions=V1)
def history_negative(it: Case) -> None:
    """A negative historyLength is refused."""
    it.refused(it.ask("get", id=it.done["id"], historyLength=-1), BAD_PARAMS)


@check("cancel.unknown", "1.0 §3.1.5; 0.3 §8.2", versions=EVERY)
def cancel_unknown(it: Case) -> None:
    """An unknown task cannot be cancelled: it is not found."""
    it.refused(it.ask("cancel", id=NO_TASK), NOT_FOUND)


@check("cancel.finished", "1.0 §3.1.5; 0.3 §8.2", versions=EVERY)
def cancel_finished(it: Case) -> None:
    """A finished task is refused as not cancelable."""
    it.refused(it.ask("cancel", id=it.done["id"]), NOT_CANCELABLE)


@check("cancel.running", "1.0 §3.1.5; 0.3 §7.4")
def cancel_running(it: Case) -> None:
    """A running task is cancelled, and stays cancelled."""
    task = it.running()
    told = it.accepted(it.ask("cancel", id=task["id"]))
    it.shaped("Task", told)
    need(told.get("id") == task["id"], f"the answer is task {told.get('id')!r}")
    ended = it.ended(told)
    need(plain_state(it.state(ended)) == "canceled", f"it ended {it.state(ended)!r}")


@check("cancel.immutable", "1.0 §3.1.5; 0.3 §6.3")
def immutable(it: Case) -> None:
    """A refused cancel leaves the finished task unchanged."""
    it.refused(it.ask("cancel", id=it.done["id"]), ANY)
    task = it.accepted(it.ask("get", id=it.done["id"]))
    need(it.state(task) == it.state(it.done), f"it became {it.state(task)!r}")


@check("across.task", "1.0 §5.1; 0.3 §3.4.1", once=True)
def across_task(it: AgentUnderTest) -> None:
    """A task that was created through one interface reads the same through every other."""
    cases = [case for case in it.cases if case.version != "0.1"]
    given(len(cases) > 1, TWO)
    made = cases[0].done
    for case in cases[1:]:
        try:
            read = case.accepted(case.ask("get", id=made["id"]))
        except Broken as exc:
            raise Broken(f"{case.name}: {exc}") from None
        if not isinstance(read, dict):
            raise Broken(f"{case.name} answers no task")
        states = plain_state(case.state(read)), plain_state(cases[0].state(made))
        need(states[0] == states[1], f"{case.name} says {states[0]}, not {states[1]}")
        need(read.get("contextId") == made.get("contextId"), f"{case.name} has another context")
        need(text_of(read) == text_of(made), f"{case.name} has other artifacts")


@check("across.methods", "1.0 §5.1; 0.3 §3.4.1", once=True)
def across_methods(it: AgentUnderTest) -> None:
    """Every interface answers a message."""
    given(len(it.cases) > 1, TWO)
    for case in it.cases:
        try:
            case.told(case.sent)
        except Unknowable:
            continue
        except Broken as exc:
            raise Broken(f"{case.name}: {exc}") from None


def text_of(task: Any) -> str:
    """Returns the text of all artifacts, which is the same in every form."""
    return "".join(
        part["text"]
        for artifact in task.get("artifacts") or ()
        for part in artifact.get("parts") or ()
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
