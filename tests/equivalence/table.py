"""The table of scenarios: what each gives in every binding, and where a binding stands apart.

A scenario is a small function over a `Caller`. What it gives is plain data that holds nothing of
the binding, so one expectation fits all of them. Where a version has no such thing, or loses part
of it, the cell says what comes instead and why; that is checked like everything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, NamedTuple

from equivalence.callers import Binding, Caller


class Point(StrEnum):
    """What of A2A 0.3 §11.3 a scenario is about; all of them are about §3.4.1."""

    TRANSPORT = "transport interoperability"
    MAPPING = "method mapping"
    ERRORS = "error handling"
    FORMATS = "data formats"
    CONSISTENCY = "consistency"


class Apart(NamedTuple):
    """What a binding gives instead, and why."""

    gives: Any
    why: str


class Scenario(NamedTuple):
    """One row."""

    name: str
    point: Point
    run: Callable[[Caller], Awaitable[Any]]
    gives: Any
    apart: dict[str, Apart]

    def cell(self, binding: Binding) -> Apart:
        """What this binding gives; the reason is empty where it is as everywhere."""
        found = self.apart.get(binding.name) or self.apart.get(binding.version)
        return found or Apart(self.gives, "")


SCENARIOS: list[Scenario] = []


def scenario(
    point: Point, gives: Any, **apart: tuple[Any, str]
) -> Callable[[Callable[[Caller], Awaitable[Any]]], Callable[[Caller], Awaitable[Any]]]:
    """Adds a function to the table; its name, with spaces, names the row.

    `apart` is by version (`v0_1`) or binding (`grpc_0_3`).
    """

    def add(run: Callable[[Caller], Awaitable[Any]]) -> Callable[[Caller], Awaitable[Any]]:
        cells = {_NAMES[key]: Apart(*cell) for key, cell in apart.items()}
        SCENARIOS.append(Scenario(run.__name__.replace("_", " "), point, run, gives, cells))
        return run

    return add


_NAMES = {
    "v1_0": "1.0",
    "v0_3": "0.3",
    "v0_1": "0.1",
    "rpc_0_3": "JSON-RPC 0.3",
    "rest_1_0": "REST 1.0",
    "rest_0_3": "REST 0.3",
    "grpc_1_0": "gRPC 1.0",
    "grpc_0_3": "gRPC 0.3",
}


def table(shown: Callable[[Scenario, Binding], str], bindings: tuple[Binding, ...]) -> list[str]:
    """The table as lines of Markdown."""
    lines = ["| scenario | " + " | ".join(binding.name for binding in bindings) + " |"]
    lines.append("|---" * (len(bindings) + 1) + "|")
    for point in Point:
        lines.append(f"| **{point.value}** |" + " |" * len(bindings))
        lines += [
            f"| {row.name} | " + " | ".join(shown(row, binding) for binding in bindings) + " |"
            for row in SCENARIOS
            if row.point is point
        ]
    return lines
