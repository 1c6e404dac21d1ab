"""Returns free memory to the operating system after a burst of work.

glibc returns memory only from the end of each heap. One small block that lives on there keeps
everything below it, and after the first large block that was freed glibc puts large ones into the
heap as well (the dynamic `M_MMAP_THRESHOLD`). So fifty answers of a megabyte each left fifty
megabytes behind, all of them free and none of them returned, until the next burst as large.
`malloc_trim` returns free pages wherever they are. A fixed threshold would return large blocks
only, and would cost every large message its page faults; this costs nothing while we are busy.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

PAUSE = 20.0
"""Seconds between two trims. A trim takes about a millisecond for every four megabytes that it
returns, during which other threads wait for memory, and a tenth of a millisecond if there is
nothing to return."""


class HeapTrimmer:
    """Trims the heaps of this process periodically, in a thread of its own."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        # Only glibc has this function. ctypes releases Python's lock during the call.
        trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            run = threading.Thread(target=self._run, args=(trim,), name="dragoman-heap")
            run.daemon = True
            run.start()

    def stop(self) -> None:
        """Stops trimming."""
        self._stopped.set()

    def _run(self, trim: Callable[[int], int]) -> None:
        stopped = False
        while not stopped:
            trim(0)  # the first time, what the start has left behind
            stopped = self._stopped.wait(PAUSE)
