"""The table of the tour: callers and agents of every dialect, filled while they talk."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import TracebackType

from msgspec import Struct
from rich.console import Console
from rich.live import Live
from rich.text import Text

SHOWN = 5
"""The number of latest calls that are shown below the table."""
WIDTH = 3
"""The minimum width of a cell in characters."""


class CallRecord(Struct, frozen=True):
    """One message, its answer, and how long it took."""

    caller: str
    agent: str
    said: str
    answer: str
    seconds: float
    error: str = ""

    def __str__(self) -> str:
        what = self.error or f"{self.said} -> {self.answer}"
        return f"{self.caller} asks {self.agent}: {what}   ({self.seconds * 1000:.0f} ms)"


class CallTable:
    """A row for each caller and a column for each agent. On a terminal it fills cell by cell, above
    the last calls; elsewhere each row is a line when it is complete."""

    def __init__(self, console: Console, labels: Sequence[str]) -> None:
        self._console, self._labels = console, labels
        self._rows: dict[str, list[CallRecord]] = {}
        self._last: deque[CallRecord] = deque(maxlen=SHOWN)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._watched = console.is_terminal

    def __enter__(self) -> CallTable:
        if self._watched:
            self._live.start()
        else:
            self._print(self._heading())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._watched:
            self._live.stop()
            self._print("\n".join([self._heading(), *map(self._line, self._rows)]))
        for each in self.failed:
            self._print(f"   {each}")

    def add(self, record: CallRecord) -> None:
        """Fills the next cell of the caller's row."""
        row = self._rows.setdefault(record.caller, [])
        row.append(record)
        self._last.append(record)
        if self._watched:
            lines = [self._heading(), *map(self._line, self._rows), ""]
            lines += [f"   {each}" for each in self._last]
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)
        elif len(row) == len(self._labels):
            self._print(self._line(record.caller))

    @property
    def records(self) -> list[CallRecord]:
        """All calls."""
        return [each for row in self._rows.values() for each in row]

    @property
    def failed(self) -> list[CallRecord]:
        """The calls without the right answer."""
        return [each for each in self.records if each.error]

    def _heading(self) -> str:
        return f"   {'caller':9} " + " ".join(label.rjust(WIDTH) for label in self._labels)

    def _line(self, caller: str) -> str:
        cells = (
            ("failed" if each.error else f"{each.seconds * 1000:.0f}").rjust(max(len(label), WIDTH))
            for each, label in zip(self._rows[caller], self._labels, strict=False)
        )
        return f"   {caller:9} " + " ".join(cells)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)
