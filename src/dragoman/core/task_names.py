"""Task ids for the names that callers give their tasks, as A2A 0.1 allows.

An id is unique among all callers, but a name only among the tasks of its owner. Therefore the id of
a named task consists of the name and a digest of name and owner: two callers may use the same name,
neither can find out that the other did, and any process can read the name from the id without a
look-up. The ids that we choose never have this form, so the id also shows who chose it.
"""

from __future__ import annotations

import hashlib

from .ids import is_id

MARK = "~"
DIGITS = 16
"""The number of characters of the digest. The digest is not a secret: every look-up checks the
owner of the task that it finds."""
LONGEST = 200
"""The maximum number of characters of a name. It is shorter than other ids (`core.ids`),
since the id of the task consists of the name and the digest."""

_HEX = frozenset("0123456789abcdef")


def task_id_of(name: str, *owner: str) -> str:
    """Returns the id of the task that `owner` calls `name`. The owner is a caller, together with
    the agent that it calls if several agents share a store."""
    # `repr` is unambiguous: no two different tuples have the same one, whatever they contain.
    owned = repr((*owner, name)).encode()
    return f"{name}{MARK}{hashlib.sha256(owned).hexdigest()[:DIGITS]}"


def name_of(task_id: str) -> str:
    """Returns the name that the caller gave the task, or an empty text if we made the id."""
    name, digits = task_id[: -DIGITS - 1], task_id[-DIGITS:]
    marked = bool(name) and task_id[-DIGITS - 1] == MARK and _HEX.issuperset(digits)
    return name if marked else ""


def called(task_id: str) -> str:
    """Returns the id by which its caller knows the task: the caller's own name for it, or our
    id."""
    return name_of(task_id) or task_id


def fit(name: str) -> bool:
    """Returns whether a caller may give a task this name."""
    return is_id(name, LONGEST)
