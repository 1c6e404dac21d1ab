"""The scheduling policy of the server's threads."""

from __future__ import annotations

import os
from contextlib import suppress


def finish_first() -> None:
    """From here on a thread of ours that wakes another goes on until it has to wait itself.

    Otherwise the kernel may hand the core to the thread just woken, which then waits for what its
    waker still holds (Python's lock), and both pay for the switches: a fifth of the CPU of a
    stream. Threads begun later inherit it. A policy that an operator chose for the process is kept.
    """
    with suppress(AttributeError, OSError):  # only Linux knows this policy, and may forbid it
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
