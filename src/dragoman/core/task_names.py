"""Names that callers give their tasks (A2A 0.1 lets them), as ids of ours.

An id is unique among all callers, a name only among those of its owner. So the id of a named task
is the name and a digest of name and owner: two callers may use one name, neither can find out that
the other did, and the name can be read from the id, in any process and without a look-up. Ids we
make ourselves never look like this, so the id also tells who chose it.
"""

from __future__ import annotations

import hashlib

MARK = "~"
DIGITS = 16
"""The number of characters of the digest. It is no secret: every look-up checks the owner of what
it finds."""
LONGEST = 200
"""The number of characters that a name may have."""

_HEX = frozenset("0123456789abcdef")


def task_id_of(name: str, *owner: str) -> str:
    """The id of the task that its owner calls so: a caller, and the agent it calls if several share
    a store."""
    # repr: no choice of these can be read as another one, whatever they contain.
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
    return 0 < len(name) <= LONGEST and name.isprintable()
