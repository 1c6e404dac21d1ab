"""Bold and coloured words for the few lines that a server prints. A server does without `rich`,
which would stay in its memory as long as it runs."""

from __future__ import annotations

import os
import sys

BOLD, CYAN = "1", "36"


def bold(text: str) -> str:
    """Returns the text in bold, if standard output is a terminal with styles."""
    return _styled(text, BOLD)


def cyan(text: str) -> str:
    """Returns the text in cyan, if standard output is a terminal with styles."""
    return _styled(text, CYAN)


def say(line: str) -> None:
    """Prints a line at once, also into a pipe."""
    print(line, flush=True)


def _styled(text: str, code: str) -> str:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not sys.stdout.isatty() else f"\x1b[{code}m{text}\x1b[0m"
