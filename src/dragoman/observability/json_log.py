"""The log for collectors that read JSON: one object a line, whoever says it.

What would reach stderr without passing the log passes it too: errors that end the process or one of
its threads, and warnings. A collector that meets one line of plain text loses it, or stops.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from .log import Log

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_OWN_KEYS = ("time", "level", "message")


class JsonLog(Log):
    """Writes one JSON object per line: `time`, `level` and `message`, then the fields."""

    def formatted(self, level: str, event: str, fields: Mapping[str, object]) -> str:
        """Returns a line."""
        given = dict(fields)
        if event == "log":  # a line of the standard library's logging
            event = str(given.pop("message", ""))
        line: dict[str, object] = {"time": self.timestamp(), "level": level, "message": event}
        for key, value in given.items():
            if value not in ("", None):
                # A library may have a field of this name; the collector must find ours.
                line[f"{key}_" if key in _OWN_KEYS else key] = _value_out(value)
        # Escapes for all that is not ASCII: some readers take U+2028 for the end of a line.
        return json.dumps(line, separators=(",", ":"))

    def catch_errors(self) -> None:
        """Logs the errors that Python would print on stderr by itself."""
        sys.excepthook = self._on_crash
        threading.excepthook = self._on_thread_crash
        sys.unraisablehook = self._on_unraisable

    def _on_crash(
        self, kind: type[BaseException], exc: BaseException, trace: TracebackType | None
    ) -> None:
        self.error("The process ends with an error", exc)
        self.close()

    def _on_thread_crash(self, found: threading.ExceptHookArgs) -> None:
        name = found.thread.name if found.thread is not None else ""
        self.error("A thread crashed", found.exc_value, thread=name)

    def _on_unraisable(self, found: UnraisableHookArgs) -> None:
        where = getattr(found.object, "__qualname__", None) or type(found.object).__qualname__
        self.error("An error could not be raised", found.exc_value, where=where)


def _value_out(value: object) -> object:
    """Returns the value as JSON has it; what JSON has no form for, as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, (str, bool, int)) else str(value)
