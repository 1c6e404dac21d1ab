"""Checks the answers to a question of the agent: they belong to its task and to its context.

They need a text that leads to a question (`--ask-text`), and answer it with the ordinary text. How
many questions follow is the agent's own affair; at most `MAX_ANSWERS` are answered.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from ..check import Broken, Level, check, given, need
from ..expected_errors import ANY
from ..subject import Case

MAX_ANSWERS = 3


def asked(it: Case) -> dict[str, Any]:
    """Returns a new task that waits for an answer."""
    text = it.agent.words.ask
    given(text, "needs a text that leads to a question (--ask-text)")
    task = it.rested(it.task(it.send(text)))
    given(isinstance(task.get("id"), str), "the task has no id")
    given(it.form.asks(it.state(task)), f"{text!r} asks no question: {it.state(task)!r}")
    return task


def answer(it: Case, task: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Answers the question of a task, and returns the task at its next rest."""
    reply = it.send(taskId=task["id"], **members)
    if reply.refusal is not None:
        raise Broken(f"refused: {reply.refusal}")
    found = it.rested(it.task(reply))
    need(found.get("id") == task["id"], f"the answer went to task {found.get('id')!r}")
    _in_context(found, task.get("contextId"), "the task")
    status = found.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    if isinstance(message, dict) and message.get("contextId"):
        _in_context(message, task.get("contextId"), "its message")
    return found


def _in_context(holder: dict[str, Any], wanted: Any, what: str) -> None:
    came = holder.get("contextId")
    need(came == wanted, f"the contextId of {what} became {came!r}, not {wanted!r}")


def answered_to_the_end(it: Case, *, named: bool) -> None:
    """Answers every question; each answer names the task, and the context if `named`."""
    task = asked(it)
    members = {"contextId": task.get("contextId")} if named else {}
    for number in range(1, MAX_ANSWERS + 1):
        try:
            task = answer(it, task, **members)
        except Broken as exc:
            raise Broken(f"answer {number}: {exc}") from None
        if not it.form.asks(it.state(task)):
            return


@check("ask.message", "1.0 §3.4.3; 0.3 §6.2", Level.SHOULD)
def message(it: Case) -> None:
    """A task that waits for input has a message that says what is asked."""
    status = asked(it).get("status") or {}
    need(isinstance(status, dict) and status.get("message"), "the status has no message")


@check("ask.answer", "1.0 §3.4.3; 0.3 §6.4")
def answer_in_context(it: Case) -> None:
    """An answer that names the task and its context continues that task."""
    answered_to_the_end(it, named=True)


@check("ask.task-only", "1.0 §3.4.3; 0.3 §6.4")
def answer_to_task(it: Case) -> None:
    """An answer that names only the task continues it in its own context."""
    answered_to_the_end(it, named=False)


@check("ask.other-context", "1.0 §3.4.3; 0.3 §6.4")
def other_context(it: Case) -> None:
    """An answer whose contextId is not that of its task is refused, and the question stays open."""
    task = asked(it)
    it.refused(it.send(taskId=task["id"], contextId=str(uuid4())), ANY)
    found = it.accepted(it.ask("get", id=task["id"]))
    need(it.form.asks(it.state(found)), f"the task became {it.state(found)!r}")
