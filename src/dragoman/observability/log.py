"""Structured logs: one `key=value` line per event on stderr, cheap enough to run per task.

A line is put together where it happens and handed to one writer thread in batches, so the event
loop never waits for a terminal or a full pipe. If the reader of the pipe stalls, lines are dropped
and counted, and memory stays flat. Never log message content or secrets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import Any, Protocol

from dragoman.core.log import LogLine, one_line, quoted

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
PAUSE = 0.05
"""The seconds for which lines are collected before they are written."""
MOST_LINES = 20_000
"""The number of lines that are kept for a reader that stalls."""


class CallRecords(Protocol):
    """Takes the record of every call that has ended."""

    records_strangers: bool
    """Whether refused calls of callers that are not known are recorded too."""

    def check(self) -> None:
        """Raises the error with which calls are refused that could not be recorded."""

    def record(self, call: Any) -> None:
        """Adds the record of a call."""


class Log:
    """The log of a server. There is one per process."""

    calls: CallRecords | None = None
    """Where every call is recorded, if this log shows calls."""

    def __init__(self, level: str = "info", fd: int = 2) -> None:
        self.level = LEVELS[level]
        self.dropped = 0
        self._fd = fd
        self._lines: list[str] = []
        self._waiting = 0  # lines given to the writer and not yet written
        self._timer: asyncio.TimerHandle | None = None
        self._second, self._stamp = 0, ""
        self._writes: SimpleQueue[tuple[bytes, int] | threading.Event] = SimpleQueue()
        self._writer: threading.Thread | None = None

    def debug(self, event: str, /, **fields: object) -> None:
        """Logs something that only a developer wants to see."""
        if self.level <= 10:
            self.line("debug", event, fields)

    def details(self, event: str, found: Callable[[], Iterable[Mapping[str, object]]]) -> None:
        """Logs details that are computed only if a developer wants to see them."""
        if self.level <= 10:
            for fields in found():
                self.line("debug", event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Logs that something started or ended as it should."""
        if self.level <= 20:
            self.line("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Logs that something is odd, and that the work goes on."""
        if self.level <= 30:
            self.line("warning", event, fields)

    def error(self, event: str, exc: BaseException | None = None, /, **fields: object) -> None:
        """Logs that something went wrong; `exc` adds its traceback on the same line."""
        if exc is not None:
            fields["exception"] = type(exc).__name__
            fields["traceback"] = self.traceback_of(exc)
        self.line("error", event, fields)

    def traceback_of(self, exc: BaseException) -> str:
        """Returns the traceback of an exception, as a line tells it."""
        return "".join(traceback.format_exception(exc)).strip()

    def line(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        """Formats one line and queues it. This is cheap: nothing is written here."""
        self.put(self.formatted(level, event, fields))

    def formatted(self, level: str, event: str, fields: Mapping[str, object]) -> str:
        """Returns a line."""
        words = [f"{self.timestamp()} {level} {one_line(event)}"]
        words += [
            f"{key}={quoted(value)}" for key, value in fields.items() if value not in ("", None)
        ]
        return " ".join(words)

    def timestamp(self) -> str:
        """Returns the time as a line tells it, in UTC."""
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{int((now - second) * 1000):03d}Z"

    def put(self, line: str) -> None:
        """Queues a line."""
        if self._waiting + len(self._lines) >= MOST_LINES:
            self.dropped += 1
            return
        self._lines.append(line)
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(PAUSE, self.flush)
            except RuntimeError:  # no loop runs here: before the start, or another thread
                self.flush()

    def flush(self) -> None:
        """Hands the collected lines to the writer."""
        self._timer = None
        lines, self._lines = self._lines, []
        if self.dropped:
            lines.append(
                self.formatted("warning", "Log lines were dropped", {"count": self.dropped})
            )
            self.dropped = 0
        if not lines:
            return
        self._waiting += len(lines)
        self._writes.put(("\n".join(lines).encode("utf-8", "replace") + b"\n", len(lines)))
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="dragoman-log", daemon=True)
            self._writer.start()

    def close(self, wait: float = 0.5) -> None:
        """Writes what is left, for at most `wait` seconds."""
        self.flush()
        if self._writer is not None:
            done = threading.Event()
            self._writes.put(done)
            done.wait(wait)

    def _write(self) -> None:
        while True:
            item = self._writes.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            data, count = item
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:  # stderr is gone; there is nobody left to tell
                pass
            self._waiting -= count


class AgentLog(Log):
    """The same log, for one of several agents of a server: its lines name it."""

    def __init__(self, log: Log, agent: str) -> None:
        self.level, self._log, self._agent = log.level, log, agent

    def error(self, event: str, exc: BaseException | None = None, /, **fields: object) -> None:
        """Logs that something went wrong, with the name of the agent."""
        self._log.error(event, exc, agent=self._agent, **fields)

    def line(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        """Queues one line, with the name of the agent."""
        self._log.line(level, event, {"agent": self._agent, **fields})

    def flush(self) -> None:
        """Hands the collected lines to the writer."""
        self._log.flush()

    def close(self, wait: float = 0.5) -> None:
        """Writes what is left, for at most `wait` seconds."""
        self._log.close(wait)


class HostLog(Log):
    """The log of an app inside a program that has logging of its own: lines go to the logger
    `dragoman`, and from there wherever the program sends them. Where it has set up nothing, they
    go to stderr."""

    _logger = logging.getLogger("dragoman")

    def error(self, event: str, exc: BaseException | None = None, /, **fields: object) -> None:
        """Logs that something went wrong; `exc` goes along as `exc_info`."""
        if not self._logger.hasHandlers():
            super().error(event, exc, **fields)
        elif self._logger.isEnabledFor(LEVELS["error"]):
            self._logger.error(LogLine(event, fields), exc_info=exc, stacklevel=2)

    def line(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        """Passes one line on."""
        if not self._logger.hasHandlers():
            super().line(level, event, fields)
        elif self._logger.isEnabledFor(LEVELS[level]):
            self._logger.log(LEVELS[level], LogLine(event, fields), stacklevel=3)


class Bridge(logging.Handler):
    """Brings lines of the standard `logging` module (libraries, user code) into the same log."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.level)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One record becomes one line; `extra={"task": ...}` fields come along."""
        fields = {key: value for key, value in record.__dict__.items() if key not in _RECORD_KEYS}
        ours = record.msg if isinstance(record.msg, LogLine) else None
        if ours is not None:
            fields |= ours.fields
        if record.exc_info and record.exc_info[1] is not None:
            fields["traceback"] = self.log.traceback_of(record.exc_info[1])
        level = "error" if record.levelno >= 40 else record.levelname.lower()
        if ours is not None:
            self.log.line(level, ours.event, fields)
        else:
            message = record.getMessage()
            self.log.line(level, "log", {"logger": record.name, "message": message, **fields})


_RECORD_KEYS = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "message",
    "asctime",
    "taskName",
}


HELD_BACK = ("asyncio", "hpack", "httpcore2", "httpx2", "mcp", "sse_starlette", "websockets")
"""Loggers that only warn. The others spell out addresses, headers and frames as they go over the
wire, with the tokens in them."""


def set_up(level: str, form: str = "text") -> Log:
    """Sets up the log of the process: our lines and those of the standard library, on stderr. A
    program that has set up its own logging keeps it, and finds our lines there."""
    if any(not isinstance(handler, Bridge) for handler in logging.getLogger().handlers):
        return HostLog(level)
    log = _log_for_stderr(level, form)
    logging.basicConfig(handlers=[Bridge(log)], level=log.level, force=True)
    for name in HELD_BACK:
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.stderr.flush()
    return log


def _log_for_stderr(level: str, form: str) -> Log:
    """Returns a log of JSON if that is the form, and otherwise one for a person if stderr is a
    terminal, and one for programs if not."""
    if form == "json":
        from .json_log import JsonLog

        objects = JsonLog(level)
        objects.catch_errors()
        logging.captureWarnings(capture=True)
        return objects
    if not os.isatty(2):
        return Log(level)
    from .terminal_log import TerminalLog

    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return TerminalLog(level, colour=not plain)


def log_error(message: str) -> bool:
    """Writes the error with which a command ends to the log, if that is one of JSON, and returns
    whether it did."""
    from .json_log import JsonLog

    for handler in logging.getLogger().handlers:
        if isinstance(handler, Bridge) and isinstance(handler.log, JsonLog):
            handler.log.error(message)
            handler.log.close()
            return True
    return False
