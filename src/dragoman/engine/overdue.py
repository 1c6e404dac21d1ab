"""Ends the runs, the waits and the questions that took too long, and the runs that must move."""

from __future__ import annotations

import asyncio

from dragoman.core.errors import DragomanError
from dragoman.core.events import Ask
from dragoman.core.log import Logger
from dragoman.core.model import Message, Role, Text
from dragoman.core.questions import answer_value
from dragoman.store.interface import SILENCE, Input, Row

from .runner import Runner
from .runs.skill_driver import stop
from .runs.stop_reason import StopReason
from .tail import send_on
from .task_ids import new_id

log = Logger("maintenance")


def give_back_all(runner: Runner) -> None:
    """Returns the tasks of an agent whose link another process has now, so that they run there."""
    for run in list(runner.runs.values()):
        if run.stop_reason is None:
            runner.background.spawn(runner.give_back(run))


def end_overdue(runner: Runner) -> None:
    """Ends runs and waits that took too long. A periodic check of all of them is cheaper than
    one timer per run."""
    now = asyncio.get_running_loop().time()
    for run in list(runner.runs.values()):
        if run.deadline and run.deadline < now and run.stop_reason is None and run.task is not None:
            run.stop_reason = StopReason.TIMED_OUT
            stop(run)
    send_on(runner.idle, now)
    for waiter, until in list(runner.waits.items()):
        if until > now:
            break  # all of them wait equally long, so the others are not due yet
        if not waiter.done():
            waiter.set_result(None)


async def expire_questions(runner: Runner, limit: int) -> None:
    """Expires the questions of an agent that nobody has answered in time."""
    failed = 0
    for row in await runner.store.list_expired_tasks(runner.name, limit + runner.overdue):
        try:
            await expire(runner, row)
        except DragomanError as exc:  # its denial cannot be audited; the others still end
            log.warning("A question did not expire", task=row.task_id, reason=exc.reason, why=exc)
            failed += 1
    runner.overdue = failed


async def expire(runner: Runner, row: Row) -> None:
    """Expires a question: an approval counts as denied, any other fails the task (DESIGN §4.1)."""
    if runner.stopping:
        return
    if row.asking is Ask.APPROVAL:
        silence = Message(message_id=new_id(), role=Role.USER, parts=(Text("[no answer]"),))
        said = Input(message=silence, value=answer_value(False), by=SILENCE)
        await runner.add_input(row.scope, row.task_id, said, row.question)
        return
    run = runner.runs.get(row.task_id)
    if run is None and not row.worker:
        taken = await runner.store.seize(runner.worker, row.task_id, row.epoch)
        if taken is None:
            return
        if not taken.resting:
            await runner.resume(taken)  # the answer arrived at the last moment
            return
        run = await runner.adopt(taken)
    if run is not None and run.writer.question.key == row.question:
        runner.expire(run)
