"""The logger of our modules. A line is an event in plain words, followed by its fields:

    log = Logger("store")
    log.error("A file is damaged", file=path, why=reason)

Lines go through the standard library's `logging`, so a program that uses only the client finds them
wherever its own logs go. A server writes them as `key=value` lines (`observability.log`). Fields
may hold ids, names and texts from outside. They are quoted, so that nobody can forge a field or a
line. Never log secrets or the content of messages.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")  # printable, without space, quote, = and backslash


def quoted(value: object) -> str:
    """Returns the value unchanged if it is one plain word, and otherwise in quotes with escapes."""
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return '"' + one_line(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def one_line(text: str) -> str:
    """Returns the text without line ends and without control characters that a terminal would
    execute."""
    if text.isprintable():
        return text
    escaped = text.replace("\n", "\\n")
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped)


class LogLine:
    """An event and its fields, which are formatted only if a handler writes the line."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event, self.fields = event, fields

    def __str__(self) -> str:
        given = (item for item in self.fields.items() if item[1] not in ("", None))
        return " ".join((one_line(self.event), *(f"{key}={quoted(value)}" for key, value in given)))


class Logger:
    """Logs what one part of Dragoman does, under `dragoman.NAME`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"dragoman.{name}")

    def debug(self, event: str, exc: BaseException | None = None, /, **fields: object) -> None:
        """Logs something that only a developer wants to see."""
        self._log(logging.DEBUG, event, exc, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Logs that something started or ended as it should."""
        self._log(logging.INFO, event, None, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Logs that something is odd, and that the work goes on."""
        self._log(logging.WARNING, event, None, fields)

    def error(self, event: str, exc: BaseException | None = None, /, **fields: object) -> None:
        """Logs that something went wrong; `exc` adds its traceback."""
        self._log(logging.ERROR, event, exc, fields)

    def _log(
        self, level: int, event: str, exc: BaseException | None, fields: Mapping[str, object]
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, LogLine(event, fields), exc_info=exc, stacklevel=3)


def quiet(library: str) -> None:
    """Lets a library log warnings and errors alone: below that, chat libraries log what others
    say."""
    logging.getLogger(library).setLevel(logging.WARNING)
