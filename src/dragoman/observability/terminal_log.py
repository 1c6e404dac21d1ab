"""The log as a person reads it on a terminal: short lines in colour, one for every call, and
tracebacks over several lines that begin with the author's own code."""

from __future__ import annotations

import os
import sysconfig
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from dragoman.core.log import one_line, quoted

from .audit_log import OK, AuditedCall
from .log import Log

PLAIN, DIM, BOLD, RED, GREEN, YELLOW, CYAN = "0", "2", "1", "31", "32", "33", "36"
LEVEL_COLOURS = {"debug": DIM, "info": BOLD, "warning": YELLOW, "error": RED}
STATE_COLOURS = {
    "completed": GREEN,
    "working": CYAN,
    "submitted": CYAN,
    "input-required": YELLOW,
    "auth-required": YELLOW,
}
"""The colours of the states; all others are red."""
_OUR_FOLDER = os.path.join(str(Path(__file__).parents[1]), "")
_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")


class TerminalLog(Log):
    """Writes for a person instead of a program."""

    records_strangers = True
    """A developer wants to see every call, also of callers that are not known."""

    def __init__(self, level: str = "info", fd: int = 2, *, colour: bool = True) -> None:
        super().__init__(level, fd)
        self._colour = colour
        self.calls = self if self.level <= 20 else None

    def traceback_of(self, exc: BaseException) -> str:
        """Returns the traceback without the frames that lead from our code to the author's."""
        shown = traceback.TracebackException.from_exception(exc)
        _trim(shown)
        return "".join(shown.format()).strip()

    def check(self) -> None:
        """Does nothing: calls are answered whether or not their line can be written."""

    def record(self, call: AuditedCall) -> None:
        """Writes the line of a call that has ended."""
        ended = call.state or call.outcome
        if call.outcome != OK:
            ended = call.outcome
        colour = GREEN if ended == OK else STATE_COLOURS.get(ended, RED)
        words = (
            self._in(DIM, call.dialect or "-"),
            call.operation,
            self._in(BOLD, one_line(call.skill)) if call.skill else "",
            self._in(colour, ended),
            f"{call.ms} ms",
            self._in(DIM, one_line(call.task)) if call.task else "",  # long, so it comes last
        )
        self.put(f"{self._clock()} {'  '.join(filter(None, words))}")

    def formatted(self, level: str, event: str, fields: Mapping[str, object]) -> str:
        """Returns a line, with the traceback in `fields` below it."""
        told = dict(fields)
        trace = told.pop("traceback", None)
        if trace is not None:
            told.pop("exception", None)  # the traceback names it
        words = [self._clock()]
        if level != "info":
            words.append(self._in(LEVEL_COLOURS[level], level))
        if event == "log":  # a line of the standard library's logging
            event = str(told.pop("message", ""))
        words.append(self._in(LEVEL_COLOURS[level], one_line(event)))
        words += [
            f"{self._in(DIM, f'{key}=')}{quoted(value)}"
            for key, value in told.items()
            if value not in ("", None)
        ]
        line = " ".join(words)
        if trace is None:
            return line
        below = "\n".join(f"    {one_line(each)}" for each in str(trace).splitlines())
        return f"{line}\n{self._in(RED, below) if self._colour else below}"

    def _clock(self) -> str:
        return self._in(DIM, time.strftime("%H:%M:%S"))

    def _in(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[{PLAIN}m" if self._colour else text


def _trim(shown: traceback.TracebackException) -> None:
    """Removes the first frames up to the author's code, here and in what caused the exception. A
    traceback without a line of the author's stays whole."""
    frames = list(shown.stack)
    first = next((n for n, each in enumerate(frames) if _is_authors(each.filename)), 0)
    shown.stack[:] = frames[first:]
    for cause in (shown.__cause__, shown.__context__):
        if cause is not None:
            _trim(cause)


def _is_authors(file: str) -> bool:
    return not file.startswith((_OUR_FOLDER, _LIBRARY, "<frozen"))
