"""Writes docs/equivalence.md from the tables: `PYTHONPATH=src:tests python -m equivalence.page`.

What it says is what `test_equivalence.py` checks; a test fails when the page is stale.
"""

from __future__ import annotations

from pathlib import Path

from equivalence.callers import BINDINGS, Binding
from equivalence.names import names
from equivalence.rows import errors, formats, hooks, sending, streams
from equivalence.table import SCENARIOS, Scenario, table

PAGE = Path(__file__).parents[2] / "docs" / "equivalence.md"
ROWS = [module.__name__ for module in (sending, streams, formats, errors, hooks)]
"""Importing them fills the table; it is read in this order."""
SCENARIOS.sort(key=lambda row: ROWS.index(row.run.__module__))

INTRO = """\
# Every binding, the same agent

Whatever a caller speaks, it meets the same agent (A2A 0.3 §3.4.1): the same operations, results \
that mean the same, the same errors, the same ways in. This page is the proof, point by point as \
§11.3 asks for it. It is written by `tests/equivalence/page.py`; `make test` asks a served agent \
every question below in every binding, over real sockets, translates what comes back into one set \
of types, and compares.

{rows} scenarios, {bindings} bindings, {cells} cells. A check mark means: what came back was the \
same value as in all others. A number means that the version has no such thing, or no word for \
part of it; what comes instead is said below the table, and is checked like the rest. No cell is \
left open.

To add a scenario, write a function in `tests/equivalence/rows`; to add a binding, a row of \
`BINDINGS` in `tests/equivalence/callers.py`.
"""
NAMES = """
## What it is called

The names that the scenarios use (§3.5.6); over gRPC they are rpcs of `lf.a2a.v1.A2AService` (1.0) \
and `a2a.v1.A2AService` (0.3). Other names that documents give for the same are heard \
too: see [A2A](dialects/a2a.md) and [older versions](dialects/a2a-legacy.md).
"""


def page() -> str:
    """The whole page."""
    notes: dict[str, int] = {}

    def shown(row: Scenario, binding: Binding) -> str:
        why = row.cell(binding).why
        return f"[{notes.setdefault(why, len(notes) + 1)}]" if why else "✓"

    cells = len(SCENARIOS) * len(BINDINGS)
    lines = [INTRO.format(rows=len(SCENARIOS), bindings=len(BINDINGS), cells=cells)]
    lines += [*table(shown, BINDINGS), ""]
    lines += [f"{number}. {_sentence(why)}" for why, number in notes.items()]
    return "\n".join((*lines, NAMES, *names(), ""))


def _sentence(why: str) -> str:
    return why + "." if why.startswith("gRPC") else f"{why[0].upper()}{why[1:]}."


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
