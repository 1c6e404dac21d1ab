"""What is left out of the text of others before people see it: characters that show nothing, that
act on a terminal, that turn the text around them, and marks that pile up."""

from __future__ import annotations

import re
import unicodedata

HIDDEN_CHARACTERS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
"""Characters that show nothing, or that change the direction of those around them, as a regular
expression spells them between brackets."""
MOST_MARKS_ON_A_LETTER = 4
MOST_MARKS_IN_ONE_PLACE = 2
"""Marks of the same combining class stand above one another. Two do in Vietnamese and in Greek."""

_hidden = re.compile(f"[{HIDDEN_CHARACTERS}]")
# Escape sequences could overwrite the output, and bidirectional overrides could reverse it.
_control = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def remove_controls(text: str) -> str:
    """Returns the text without characters that a terminal would execute, and without those that
    override the direction of what follows."""
    return _control.sub("", text.replace("\r\n", "\n"))


def remove_hidden(text: str) -> str:
    """Returns the text without the characters that nobody sees. Joiners of emoji are among them."""
    return _hidden.sub("", text)


def limit_marks(text: str) -> str:
    """Returns the text with only so many marks on a letter as languages use, since more of them
    cover the lines above and below."""
    if text.isascii():
        return text
    kept, marks = list[str](), list[int]()
    for char in text:
        category = unicodedata.category(char)
        if category in ("Mn", "Me"):
            place = unicodedata.combining(char)
            most = MOST_MARKS_IN_ONE_PLACE if place else MOST_MARKS_ON_A_LETTER
            if len(marks) >= MOST_MARKS_ON_A_LETTER or marks.count(place) >= most:
                continue
            marks.append(place)
        elif category != "Cf":  # what shows nothing does not separate a mark from its letter
            marks.clear()
        kept.append(char)
    return "".join(kept)
