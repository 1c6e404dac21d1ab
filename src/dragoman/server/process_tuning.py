"""What `serve` asks of the operating system and of Python for the whole process.

Two more optimizations live where they work: live events that pass a reader (`core.peer.Tap`) and
messages that a WebSocket asks for ahead (`net.websocket.reader`). ADR 0016 lists all four with the
CPU that each of them saves; `python -m bench.paired --without NAME` measures it again.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress


def use_batch_scheduling() -> None:
    """From here on a thread of ours that wakes another goes on until it has to wait itself.

    Otherwise the kernel may hand the core to the thread just woken, which then waits for what its
    waker still holds (Python's lock), and both pay for the switches. Threads that are started later
    inherit the policy. A policy that an operator chose for the process is kept.
    """
    with suppress(AttributeError, OSError):  # only Linux has this policy, and may forbid it
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def collect_less_often() -> None:
    """Lets the garbage collector ignore what is loaded by now, and look less often.

    A few dozen requests under way are more than its default of 700 objects, so it would look for
    garbage all the time, where reference counts have freed almost all of ours already.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
