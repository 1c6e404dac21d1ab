"""The samples of a run, and what was promised about them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from .sample import Sample


@dataclass(slots=True)
class Results:
    """All samples, by scenario and subject, in the order they were taken."""

    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, scenario: str, subject: str, sample: Sample) -> None:
        self.samples.setdefault(scenario, {}).setdefault(subject, []).append(sample)

    def median(self, scenario: str, subject: str, what: str = "cpu_us") -> float | None:
        """The median over the repetitions, if it was measured at all."""
        taken = self.samples.get(scenario, {}).get(subject, [])
        values = [value for sample in taken if (value := getattr(sample, what)) is not None]
        return statistics.median(values) if values else None

    def ratio(self, over: tuple[str, ...], under: tuple[str, ...]) -> float | None:
        """One median divided by another."""
        top, bottom = self.median(*over), self.median(*under)
        return top / bottom if top is not None and bottom else None


@dataclass(frozen=True, slots=True)
class Goal:
    """A promise about speed, and how to read it off the results."""

    text: str
    bound: float
    measure: Callable[[Results], float | None]
    at_least: bool = True

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound
