"""Tunes the scheduling and the garbage collection of the whole process, for `serve`.

Two more optimizations are in the modules that they concern: live events that bypass a waiting
reader (`core.peer.Tap`), and messages that a WebSocket requests in advance
(`net.websocket.reader`). ADR 0016 lists all four with the CPU time that each of them saves;
`python -m bench.paired --without NAME` measures it again.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress


def use_batch_scheduling() -> None:
    """Lets a thread that wakes another thread continue until it has to wait itself.

    Otherwise the kernel may give the core to the thread that was just woken, which then waits for
    Python's lock, because the first thread still holds it, and both pay for the switches. Threads
    that are started later inherit the policy. A policy that an operator has chosen for the process
    is kept.
    """
    with suppress(AttributeError, OSError):  # only Linux has this policy, and it may forbid it
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def postpone_collection() -> None:
    """Lets the garbage collector run only once while a command starts: almost all that is imported
    and made then stays, and to look through it again and again took a quarter of the time."""
    gc.set_threshold(40_000, 10, 10)


def collect_less_often() -> None:
    """Lets the garbage collector ignore the objects that exist by now, and run less often. Called
    when a server has started; the few hundred objects that are garbage by then are not worth the
    time to find them.

    A few dozen running requests are more than its default threshold of 700 objects, so it would run
    all the time, although reference counts have already freed almost all of our garbage.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
