"""Writes the parts of the docs that come from tables in the code: `python docs/generate.py`.

Each part stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`. `tests/test_docs.py` fails
when a page and the code disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dragoman.core import errors
from dragoman.core.lifecycle import FINAL, NEXT
from dragoman.core.model import State
from dragoman.dialects import DIALECTS
from dragoman.dialects.a2a.errors import SPELLINGS, SPELLINGS_0_3, spelling_of
from dragoman.dialects.losses import (
    FEATURES,
    OPERATIONS,
    lost_between,
    lost_by,
    missing_operations,
)

DOCS = Path(__file__).parent
Kind = type[errors.DragomanError]


def tree(kind: Kind = errors.DragomanError) -> Iterator[tuple[int, Kind]]:
    """Every error below this one, with its depth, in the order of the source."""

    def walk(one: Kind, depth: int) -> Iterator[tuple[int, Kind]]:
        yield depth, one
        for below in one.__subclasses__():
            if below.__module__ == errors.__name__:
                yield from walk(below, depth + 1)

    return walk(kind, 0)


def error_tree() -> str:
    """The classes, indented below their bases."""
    lines = [f"{'  ' * depth}{kind.__name__}" for depth, kind in tree()]
    return "\n".join(("```text", *lines, "```"))


def error_table() -> str:
    """How each error is told: one row for each class."""
    rows = [
        "| error | reason | A2A 1.0 | its word in 1.0 | A2A 0.3 | HTTP "
        "| REST 1.0 | REST 0.3 | meaning |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for _, kind in tree():
        error = kind()
        new, old = spelling_of(error, SPELLINGS), spelling_of(error, SPELLINGS_0_3)
        rows.append(
            f"| `{kind.__name__}` | `{error.reason}` | {new.code} | `{new.reason}` | {old.code} "
            f"| {new.rpc} | {new.http} `{new.grpc}` | {old.http} | {error.message} |"
        )
    return "\n".join(rows)


def state_diagram() -> str:
    """`lifecycle.NEXT` as a picture. What every open state may do is drawn once, for all."""
    going = [state for state in NEXT if state not in FINAL and state is not State.UNKNOWN]
    ends = [state for state in NEXT if state in FINAL]
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> open", "    state open {"]
    lines.append(f"        [*] --> {_id(State.SUBMITTED)}")
    lines += [
        f'        state "{state.value}" as {_id(state)}'
        for state in going
        if _id(state) != state.value
    ]
    for state in going:
        lines += [f"        {_id(state)} --> {_id(to)}" for to in going if to in NEXT[state]]
    lines.append("    }")
    for end in ends:
        if all(end in NEXT[state] for state in going):
            lines.append(f"    open --> {_id(end)}")
        else:
            lines += [f"    {_id(state)} --> {_id(end)}" for state in going if end in NEXT[state]]
    lines += [f"    {_id(end)} --> [*]" for end in ends]
    return "\n".join((*lines, "```"))


def _id(state: State) -> str:
    return state.value.replace("-", "_")


def loss_table() -> str:
    """What each dialect carries: one row for each feature that some dialect loses."""
    columns = list(DIALECTS.values())
    lost = {each.name: set(lost_by(each)) for each in columns}
    missing = {
        each.name: set(missing_operations(each)) for each in columns if each.callee is not None
    }
    rows = [f"| | {' | '.join(lost)} |", f"|---|{':---:|' * len(lost)}"]
    for feature in FEATURES:
        marks = ["no" if feature.name in lost[name] else "yes" for name in lost]
        rows.append(f"| {feature.name} | {' | '.join(marks)} |")
    for operation in OPERATIONS:
        marks = [
            "" if name not in missing else "no" if operation in missing[name] else "yes"
            for name in lost
        ]
        rows.append(f"| callers can {operation} | {' | '.join(marks)} |")
    return "\n".join(rows)


def pair_table() -> str:
    """What a pair of dialects loses: one row for the caller's dialect, one column for the
    agent's, and in each cell the numbers of the features in the list above the table."""
    numbers = {each.name: number for number, each in enumerate(FEATURES, 1)}
    callers = [each for each in DIALECTS.values() if each.callee is not None]
    agents = list(DIALECTS.values())
    lines = [f"{number}. {name}" for name, number in numbers.items()]
    lines += ["", f"| caller | {' | '.join(each.name for each in agents)} |"]
    lines.append(f"|---|{'---|' * len(agents)}")
    for caller in callers:
        cells = [
            ", ".join(str(numbers[name]) for name in lost_between(caller, agent))
            for agent in agents
        ]
        lines.append(f"| {caller.name} | {' | '.join(cell or 'nothing' for cell in cells)} |")
    return "\n".join(lines)


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "errors.md": {"tree": error_tree, "table": error_table},
    "architecture.md": {"states": state_diagram},
    "losses.md": {"dialects": loss_table, "pairs": pair_table},
}


def filled(page: str, text: str) -> str:
    """The page's text with its parts as the code has them now."""
    for name, make in PARTS[page].items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(f"{page} needs {begin} and {end}, once each")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    for page in PARTS:
        path = DOCS / page
        path.write_text(filled(page, path.read_text("utf-8")), "utf-8")
