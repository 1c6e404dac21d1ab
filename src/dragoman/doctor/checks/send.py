"""Checks the sending of a message and its answer."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from ..check import EVERY, HTTP, RPC, V1, Level, check, given, need
from ..expected_errors import ANY, BAD_PARAMS, NO_TYPE, NOT_FOUND, UNSUPPORTED
from ..subject import NO_TASK, Case

FREE = "0.3's protobuf form does not require it"


@check("send.answer", "1.0 §3.1.1; 0.3 §7.1", versions=EVERY)
def answer(it: Case) -> None:
    """A message is answered with a Task or a Message."""
    it.told(it.sent)


@check("send.shape", "1.0 §4.1; 0.3 §6", versions=EVERY)
def shape(it: Case) -> None:
    """The answer has every required member, with the right types."""
    kind, value = it.told(it.sent)
    it.shaped(kind, value)


@check("send.state", "1.0 §4.1.3; 0.3 §6.3", versions=EVERY)
def state(it: Case) -> None:
    """The state is one of the specification."""
    found = it.state(it.task(it.sent))
    need(found in it.form.states, f"the state is {found!r}")


@check("send.timestamp", "1.0 §5.6.1; 0.3 §6.2", Level.SHOULD, versions=EVERY)
def timestamp(it: Case) -> None:
    """The status has a timestamp in UTC with Z (0.3: ISO 8601)."""
    status = it.task(it.sent).get("status") or {}
    need(isinstance(status, dict) and status.get("timestamp"), "the status has no timestamp")
    it.shaped("Status", status)


@check("send.context", "1.0 §3.4.1; 0.3 §6.1")
def context(it: Case) -> None:
    """A task has a context id."""
    _, value = it.told(it.sent)
    need(value.get("contextId"), "contextId is missing")


@check("send.task-ids", "1.0 §3.4.2; 0.3 §6.1", versions=EVERY)
def task_ids(it: Case) -> None:
    """Every new task has a new id."""
    first, second = it.task(it.sent), it.task(it.send())
    need(first.get("id") != second.get("id"), f"both are {first.get('id')!r}")


@check("send.keeps-context", "1.0 §3.4.1; 0.3 §6.4")
def keeps_context(it: Case) -> None:
    """The caller's contextId is kept or refused, but never replaced."""
    wanted = str(uuid4())
    reply = it.send(contextId=wanted)
    if reply.refusal is not None:
        it.refused(reply, BAD_PARAMS, NOT_FOUND)
        return
    _, value = it.told(reply)
    need(value.get("contextId") == wanted, f"it became {value.get('contextId')!r}")


@check("send.same-context", "1.0 §3.4.1; 0.3 §6.4")
def same_context(it: Case) -> None:
    """A second message in a context creates a new task in it."""
    done = it.done
    given(done.get("contextId"), "the task has no context")
    second = it.task(it.send(contextId=done["contextId"]))
    need(second.get("contextId") == done["contextId"], "the context is another")
    need(second.get("id") != done.get("id"), "it is the same task")


@check("send.waits", "1.0 §3.2.2; 0.3 §7.1.1")
def waits(it: Case) -> None:
    """A send waits until the task has ended or needs input."""
    found = it.state(it.task(it.sent))
    need(it.form.resting(found), f"it was answered while {found!r}")


@check("send.at-once", "1.0 §3.2.2; 0.3 §7.1.1", Level.SHOULD)
def at_once(it: Case) -> None:
    """A caller that does not wait gets the task at once."""
    slow, began = it.slow, time.monotonic()
    reply = it.send(slow, {"returnImmediately": True})
    spent = time.monotonic() - began
    task = it.task(reply)
    found = it.state(task)
    need(not it.form.final(found), f"it was answered after {spent:.1f} s, {found}")
    it.ask("cancel", id=task.get("id"))


@check("send.history-none", "1.0 §3.2.4", versions=V1)
def history_none(it: Case) -> None:
    """historyLength 0 omits the history."""
    task = it.task(it.send(configuration={"historyLength": 0}))
    need(not task.get("history"), f"{len(task.get('history', ()))} messages came")


@check("send.history-some", "1.0 §3.2.4; 0.3 §7.1.1")
def history_some(it: Case) -> None:
    """historyLength 1 returns at most one message."""
    task = it.task(it.send(configuration={"historyLength": 1}))
    came = len(task.get("history") or ())
    need(came <= 1, f"{came} messages came")


@check("send.history-negative", "1.0 §3.2.4", Level.SHOULD, versions=V1)
def history_negative(it: Case) -> None:
    """A negative historyLength is refused."""
    it.refused(it.send(configuration={"historyLength": -1}), BAD_PARAMS)


@check("send.no-message", "1.0 §3.1.1; 0.3 §7.1.1")
def no_message(it: Case) -> None:
    """A send without a message is refused."""
    it.refused(it.ask("send"), BAD_PARAMS)


@check("send.no-parts", "1.0 §4.1.4; 0.3 §6.4", Level.SHOULD)
def no_parts(it: Case) -> None:
    """A message without parts is refused."""
    given(it.version == "1.0" or it.binding == "jsonrpc", FREE)
    it.refused(it.send(parts=[]), BAD_PARAMS)


@check("send.no-id", "1.0 §4.1.4; 0.3 §6.4")
def no_id(it: Case) -> None:
    """A message without messageId is refused."""
    given(it.version == "1.0" or it.binding == "jsonrpc", FREE)
    it.refused(it.send(messageId=None), BAD_PARAMS)


@check("send.role", "1.0 §4.1.5; 0.3 §6.4", bindings=HTTP)
def role(it: Case) -> None:
    """An unknown role is refused."""
    it.refused(it.send(role="doctor"), BAD_PARAMS)


@check("send.part-type", "1.0 §4.1.6; 0.3 §6.5.1", bindings=HTTP)
def part_type(it: Case) -> None:
    """A part whose text is not a string is refused."""
    it.refused(it.send(parts=[{"text": {"no": "string"}}]), BAD_PARAMS)


@check("send.part-oneof", "1.0 §4.1.6", Level.SHOULD, bindings=HTTP, versions=V1)
def part_oneof(it: Case) -> None:
    """A part with two contents is refused."""
    it.refused(it.send(parts=[{"text": "a", "url": "https://example.com/"}]), BAD_PARAMS)


@check("send.data", "1.0 §4.1.6; 0.3 §6.5.3", bindings=RPC)
def data(it: Case) -> None:
    """A data part is accepted, or refused as a content type."""
    reply = it.send(parts=[{"text": it.agent.text}, {"data": {"doctor": [1, None, "é"]}}])
    if reply.refusal is not None:
        it.refused(reply, NO_TYPE, BAD_PARAMS)


@check("send.unicode", "1.0 §5.5; 0.3 §3.1", bindings=HTTP)
def unicode(it: Case) -> None:
    """Any Unicode text is accepted."""
    it.told(it.send(f"{it.agent.text} – 你好 👋\u0000\u2028 é"))


@check("send.metadata", "1.0 §4.1.4; 0.3 §6.4")
def metadata(it: Case) -> None:
    """A message may have metadata."""
    it.told(it.send(metadata={"https://example.com/doctor": {"a": [1, True, None]}}))


@check("send.unknown-members", "1.0 §5.7; 0.3 §3.4", Level.SHOULD, bindings=HTTP)
def unknown_members(it: Case) -> None:
    """Unknown members are ignored."""
    it.accepted(it.send(doctorAsks={"to": "ignore this"}))


@check("send.unknown-task", "1.0 §3.4.2; 0.3 §8.2")
def unknown_task(it: Case) -> None:
    """A message to an unknown task is refused."""
    it.refused(it.send(taskId=NO_TASK), NOT_FOUND)


@check("send.finished-task", "1.0 §3.1.1; 0.3 §7.1")
def finished_task(it: Case) -> None:
    """A message to a finished task is refused."""
    reply = it.send(taskId=it.done["id"], contextId=it.done.get("contextId"))
    it.refused(reply, UNSUPPORTED if it.version == "1.0" else ANY)


@check("send.other-context", "1.0 §3.4.3; 0.3 §6.4")
def other_context(it: Case) -> None:
    """A message whose contextId is not that of its task is refused."""
    it.refused(it.send(taskId=it.done["id"], contextId=str(uuid4())), ANY)


@check("send.artifacts", "1.0 §4.1.7; 0.3 §6.7")
def artifacts(it: Case) -> None:
    """Artifacts have parts and ids, which are unique within the task."""
    held: list[Any] = it.done.get("artifacts") or []
    given(held, "the task has no artifacts")
    ids = [artifact.get("artifactId") for artifact in held]
    need(len(ids) == len(set(ids)), f"the ids are {ids}")
    for artifact in held:
        need(artifact.get("parts"), f"artifact {artifact.get('artifactId')!r} has no parts")


@check("send.history", "1.0 §4.1.4; 0.3 §6.4", Level.SHOULD)
def history(it: Case) -> None:
    """Every message in a task's history names its task and context."""
    held: list[Any] = it.done.get("history") or []
    given(held, "the task has no history")
    for message in held:
        own = message.get("taskId", it.done["id"]), message.get("contextId", "")
        need(own[0] == it.done["id"], f"a message names task {own[0]!r}")
        right = not own[1] or own[1] == it.done.get("contextId")
        need(right, f"a message names context {own[1]!r}")


@check("send.same-message", "1.0 §3.3.1; 0.3 §6.4", Level.SHOULD)
def same_message(it: Case) -> None:
    """The same messageId sent twice is answered both times."""
    name = str(uuid4())
    for _ in range(2):
        it.told(it.send(messageId=name))
