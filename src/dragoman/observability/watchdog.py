"""Notices code that blocks the event loop, and says which.

A timer in the loop beats; a thread listens. When the beat is late, the thread still runs and can
see the stack on which the loop hangs: that names the author's line.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback

from .log import Log

BEAT = 0.5
LATE = 2.0
"""The seconds without a beat after which the loop counts as blocked."""
EXIT_CODE = 70
SHOWN_FRAMES = 8


class Watchdog:
    """Logs a blocked loop with its stack, and ends the process if it is blocked for `fatal`
    seconds."""

    def __init__(self, log: Log, fatal: float = 0.0) -> None:
        self.blocked = 0
        """The number of times that the loop was blocked so far."""
        self._log, self._fatal = log, fatal
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._beat = time.monotonic()
        self._stopped = threading.Event()
        self._timer = self._loop.call_later(BEAT, self._on_beat)
        threading.Thread(target=self._listen, name="dragoman-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stops the thread that listens."""
        self._timer.cancel()
        self._stopped.set()

    def _on_beat(self) -> None:
        self._beat = time.monotonic()
        self._timer = self._loop.call_later(BEAT, self._on_beat)

    def _listen(self) -> None:
        told = 0.0  # the beat we last complained about
        while not self._stopped.wait(BEAT):
            beat = self._beat
            late = time.monotonic() - beat
            if late > LATE and told != beat:
                told = beat
                self.blocked += 1
                self._tell("loop_blocked", late)
            if self._fatal and late > self._fatal:
                self._tell("watchdog_exit", late)
                self._log.close()
                os._exit(EXIT_CODE)

    def _tell(self, event: str, seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        stack = traceback.extract_stack(frame)[-SHOWN_FRAMES:] if frame is not None else []
        task = asyncio.current_task(self._loop)
        self._log.error(
            event,
            seconds=f"{seconds:.1f}",
            run=task.get_name() if task is not None else "",
            stack=" < ".join(f"{f.filename}:{f.lineno} {f.name}" for f in reversed(stack)),
        )
