"""Code blocks in a text."""

from __future__ import annotations

import re


def split_blocks(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> list[str]:
    """Returns a text in pieces: what stands outside of blocks and what stands in them, in turn. The
    first and the last piece stand outside. A block that is not closed is text."""
    pieces: list[str] = []
    start = 0
    while begin := opening.search(text, start):
        end = closing.search(text, begin.end())
        if end is None:
            # Nor is any later one closed. To look for the end of each takes the square of the text.
            break
        pieces += (text[start : begin.start()], text[begin.end() : end.start()])
        start = end.end()
    return [*pieces, text[start:]]
