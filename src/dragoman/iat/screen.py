"""Prints what the sub-agents of a host do, in rows that each name their sub-agent.

The text of an agent never begins a row: we break the rows, not the terminal, so an agent cannot pad
its text to look like a question of ours. On a terminal, text grows in its row as it arrives, and an
answer is typed after its question. Through a pipe, every row is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.cells import cell_len, chop_cells

STYLES = {"…": "2", "·": "2", "?": "1;33", "✓": "32", "!": "31", "+": "36", "-": "36"}
"""The colours by the mark of a row: a thought, a note, a question, an end, a failure, a connected
and a disconnected sub-agent."""
TEXT = "|"
LEAST = 20
"""The minimum number of columns for text, however long a name is."""
_WORD = re.compile(r"\n|[^\S\n]*[^\s]+|[^\S\n]+")


class Screen:
    """Prints rows; at most the last one is unfinished."""

    def __init__(
        self, write: Callable[[str], object], *, columns: int = 0, colors: bool = False
    ) -> None:
        self._write, self._columns, self._colors = write, columns, colors
        self.live = columns > 0
        """Whether the output is a terminal. If not, rows may be as long as their text."""
        self._open = ""
        """The beginning of the unfinished row."""
        self._left = 0
        """The number of columns left in the unfinished row."""

    def row(self, whose: str, mark: str, words: str) -> None:
        """Prints one item, on as many rows as it needs."""
        self._begin(whose, mark)
        self._say(whose, mark, words)
        self.finish()

    def piece(self, whose: str, words: str) -> None:
        """Prints more of a text, in the same row if that is still the last one."""
        if self._open != _head(whose, TEXT):
            words = words.lstrip()
            if not words:
                return
            self._begin(whose, TEXT)
        self._say(whose, TEXT, words)
        if not self.live:
            self.finish()

    def ask(self, whose: str, words: str) -> None:
        """Prints a question, after which the answer is typed."""
        self._begin(whose, "?")
        self._say(whose, "?", f"{words} " if self.live else words)
        if not self.live:
            self.finish()

    def asks(self) -> bool:
        """Returns whether a question is the last row."""
        return self._open.endswith("? ")

    def typed(self) -> None:
        """Notes that the person has ended the row."""
        self._open = ""

    def finish(self) -> None:
        """Ends the unfinished row, so that the next item begins a new one."""
        if self._open:
            self._write("\n")
            self._open = ""

    def _begin(self, whose: str, mark: str) -> None:
        self.finish()
        self._open = _head(whose, mark)
        style = STYLES.get(mark, "") if self._colors else ""
        self._write(f"\x1b[{style}m{self._open}\x1b[0m" if style else self._open)
        self._left = max(LEAST, self._columns - cell_len(self._open))

    def _say(self, whose: str, mark: str, words: str) -> None:
        if not self.live:
            self._write(words)
            return
        for word in _WORD.findall(words):
            if word == "\n" or cell_len(word) > self._left:
                self._begin(whose, mark)
                word = word.lstrip()
            first, *others = chop_cells(word, self._left) or [""]
            self._put(first)
            for rest in others:  # one word that is longer than a row
                self._begin(whose, mark)
                self._put(rest)

    def _put(self, text: str) -> None:
        self._write(text)
        self._left -= cell_len(text)


def _head(whose: str, mark: str) -> str:
    return f"{whose} {mark} " if whose else f"{mark} "
