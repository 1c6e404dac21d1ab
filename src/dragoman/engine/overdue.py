"""Ends the runs and the waits that took too long, and the runs that must move."""

from __future__ import annotations

import asyncio

from .runner import Runner
from .runs.skill_driver import TOO_LONG
from .runs.stop_reason import StopReason
from .tail import send_on


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
            run.task.cancel()
            # Code that ignores the cancel keeps running, but its task ends without it.
            asyncio.get_running_loop().call_later(
                run.skill.cancel_grace, run.fail, TOO_LONG, "agent_timed_out"
            )
    send_on(runner.idle, now)
    for waiter, until in list(runner.waits.items()):
        if until > now:
            break  # all of them wait equally long, so the others are not due yet
        if not waiter.done():
            waiter.set_result(None)
