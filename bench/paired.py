"""`python -m bench.paired`: two of our own servers in alternating runs, and what differs.

    python -m bench.paired --against ../older-checkout --only send,send-sqlite
    python -m bench.paired --without tap --only stream-spaced

One figure of a busy machine says little, and two that were taken an hour apart say less. Here the
two servers take turns, run by run, and the ratio of each pair counts; its median is printed with
the quartiles, so that a reader sees whether a difference stands out from the noise.
"""

import argparse
import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path

from .__main__ import Cell, run_cell
from .measure import choose_cores
from .peers import OURS, ROOT, SUBJECTS, Subject
from .sample import FULL
from .scenarios import SCENARIOS
from .without import OPTIMIZATIONS

PYTHON = ROOT / ".venv/bin/python"


def of_checkout(folder: Path) -> Subject:
    """Our server from another checkout, in this checkout's environment."""
    ours = SUBJECTS[OURS]
    path = {"PYTHONPATH": str(folder.resolve() / "src")}
    command = (PYTHON, "-m", "dragoman", *ours.command[1:])
    return replace(ours, command=command, environment={**ours.environment, **path})


def without(name: str) -> Subject:
    """Our server with one optimization taken out."""
    ours = SUBJECTS[OURS]
    command = (PYTHON, "-m", "bench.without", name, *ours.command[1:])
    return replace(ours, command=command, environment={**ours.environment, "PYTHONPATH": str(ROOT)})


def compare(scenario: str, first: Subject, second: Subject, pairs: int) -> tuple[list[float], ...]:
    """The CPU of both, pair by pair. Which of them begins alternates too."""
    cores = choose_cores()
    if cores.load is not None:
        os.sched_setaffinity(0, {cores.load})
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            subject = (first, second)[which]
            sample = run_cell(Cell(number, SCENARIOS[scenario], subject), FULL, cores)
            found[which].append(sample.cpu_us or 0.0)
        print(f"{scenario} {found[0][-1]:.1f} {found[1][-1]:.1f}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.paired",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--against", type=Path, help="another checkout of Dragoman")
    which.add_argument("--without", choices=OPTIMIZATIONS, help="an optimization to take out")
    parser.add_argument("--only", default="send,send-sqlite", help="scenarios, with commas")
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    other = of_checkout(options.against) if options.against else without(options.without)
    label = "the other checkout" if options.against else f"without {options.without}"
    print(f"| scenario | CPU us, {label} | CPU us, ours | ours / other, median (quartiles) |")
    print("|---|---:|---:|---:|")
    for scenario in options.only.split(","):
        theirs, ours = compare(scenario, other, SUBJECTS[OURS], options.pairs)
        ratios = [mine / their for their, mine in zip(theirs, ours, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"| {scenario} | {statistics.median(theirs):.1f} | {statistics.median(ours):.1f} "
            f"| {middle:.3f} ({low:.3f} to {high:.3f}) |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
