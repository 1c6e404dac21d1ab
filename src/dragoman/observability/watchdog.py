"""Notices code that blocks the event loop, and says which.

A timer in the loop beats; a thread listens. When the beat is late, the thread still runs and can
see the stack on which the loop hangs: that names the author's line.
"""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from .log import Log

BEAT = 0.5
LATE = 2.0
"""The seconds without a beat after which the loop counts as blocked."""
EXIT_CODE = 70
SHOWN_FRAMES = 4
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_ASYNCIO = str(Path(asyncio.__file__).parent) + os.sep
_LOOP_FUNCTIONS = ("_run", "_run_once", "run_forever", "run_until_complete", "run")


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
                self._tell("The event loop is blocked, so nobody is served", late)
            if self._fatal and late > self._fatal:
                self._tell("The event loop is blocked for too long, so this process ends", late)
                self._log.close()
                os._exit(EXIT_CODE)

    def _tell(self, event: str, seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        task = asyncio.current_task(self._loop)
        self._log.error(
            event,
            seconds=f"{seconds:.1f}",
            run=task.get_name() if task is not None else "",
            at=" < ".join(frames_that_matter(traceback.extract_stack(frame))) if frame else "",
        )


def frames_that_matter(stack: Sequence[traceback.FrameSummary]) -> list[str]:
    """Returns where a loop hangs, the innermost frame first: the frames of the author and of the
    libraries that the author called. What lies above is the way to the event loop and ours, in
    every such stack alike; if nothing lies below, we hang ourselves, and the innermost frames are
    the answer."""
    loop = max((n for n, each in enumerate(stack) if _runs_loop(each)), default=-1)
    inside = stack[loop + 1 :] or stack
    first = next((n for n, each in enumerate(inside) if not _is_machinery(each.filename)), None)
    shown = inside[-SHOWN_FRAMES:] if first is None else inside[first:]
    if len(shown) > SHOWN_FRAMES:  # the author's own line, and what it hangs in
        shown = [shown[0], *shown[-SHOWN_FRAMES + 1 :]]
    return [f"{_short_path(each.filename)}:{each.lineno} {each.name}" for each in reversed(shown)]


def _runs_loop(frame: traceback.FrameSummary) -> bool:
    # asyncio's loop runs a step from `Handle._run`; uvloop's has no frame below the runner.
    return frame.filename.startswith(_ASYNCIO) and frame.name in _LOOP_FUNCTIONS


def _is_machinery(file: str) -> bool:
    """Whether the file belongs to the standard library or to Dragoman."""
    in_library = file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file
    return in_library or file.startswith((_PACKAGE, "<"))


def _short_path(file: str) -> str:
    """Returns the path below the working directory or below the folder of a package."""
    for folder in (str(Path.cwd()), *sys.path, _STANDARD_LIBRARY):
        if folder and file.startswith(f"{folder}{os.sep}"):
            return file[len(folder) + 1 :]
    return file
