"""`python -m bench`: measure every server in turn, then say how they compare."""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import uvloop

from . import load, peers, report, scenarios
from .goal import Results
from .measure import Cores, choose_cores, machine_facts
from .peers import BARE, OURS, SUBJECTS, Subject
from .sample import FULL, QUICK, Pace, Sample
from .scenario import Scenario
from .scenarios import SCENARIOS
from .wire import ECHO_TEXT, sample_answer

# A cell that takes longer than this is run in the first round only: its figure is no close call.
SLOW_CELL = 20.0
RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Cell:
    """One server in one scenario, once."""

    repetition: int
    scenario: Scenario
    subject: Subject

    @property
    def label(self) -> str:
        return f"{self.scenario.name} on {self.subject.name}"


class Progress:
    """Says on stderr what is running, how far the whole is, and about how long is left."""

    def __init__(self, cells: list[Cell]) -> None:
        self._cells = cells
        self._durations: dict[str, list[float]] = {}
        self._started = 0.0

    def is_slow(self, index: int) -> bool:
        """Whether this cell took too long before to be run again."""
        return max(self._durations.get(self._cells[index].label, [0.0])) > SLOW_CELL

    def begin(self, index: int) -> None:
        self._started = time.perf_counter()
        if sys.stderr.isatty():
            self._say(f"{self._where(index)} ...", end="\r")

    def end(self, index: int, result: str) -> None:
        spent = time.perf_counter() - self._started
        self._durations.setdefault(self._cells[index].label, []).append(spent)
        self._say(f"{self._where(index)}: {result}{self._left(index + 1)}", end="\n")

    def _where(self, index: int) -> str:
        cell = self._cells[index]
        return f"[{index + 1:>3}/{len(self._cells)}] round {cell.repetition + 1}, {cell.label}"

    def _left(self, index: int) -> str:
        """A cell seen before takes as long again, another one as long as the average."""
        usual = statistics.mean(spent for seen in self._durations.values() for spent in seen)
        left = sum(
            statistics.mean(self._durations.get(cell.label, [usual]))
            for cell in self._cells[index:]
        )
        return f"  (about {left / 60:.0f} min left)" if left > 90 else f"  ({left:.0f} s left)"

    def _say(self, line: str, *, end: str) -> None:
        clear = "\x1b[K" if sys.stderr.isatty() else ""
        print(f"{line}{clear}", end=end, file=sys.stderr, flush=True)


def plan(chosen: list[Scenario], subjects: list[Subject], repetitions: int) -> list[Cell]:
    """Every cell in running order: what is compared runs close together, and takes turns first."""
    return [
        Cell(repetition, scenario, subject)
        for repetition in range(repetitions)
        for scenario in chosen
        for subject in _rotated(subjects, repetition)
        if subject.name in scenario.subjects and repetition < scenario.rounds
    ]


def _rotated(subjects: list[Subject], by: int) -> Iterator[Subject]:
    for index in range(len(subjects)):
        yield subjects[(index + by) % len(subjects)]


def run_cell(cell: Cell, pace: Pace, cores: Cores) -> Sample:
    """Start the server, measure, stop it."""
    with (
        peers.running(
            SUBJECTS[OURS] if cell.scenario.clients else cell.subject,
            cell.scenario.store,
            core=cores.both if cell.scenario.spread else cores.server,
            grpc=cell.scenario.grpc,
            behind_core=cores.load,
        ) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(scenarios.measured(server, cell.scenario, pace, cell.subject.name))


def run_all(cells: list[Cell], pace: Pace, cores: Cores) -> Results:
    """Every cell; one that fails is noted and the others go on."""
    results, progress = Results(), Progress(cells)
    for index, cell in enumerate(cells):
        if progress.is_slow(index):
            continue
        progress.begin(index)
        try:
            sample = run_cell(cell, pace, cores)
        except KeyboardInterrupt:
            results.failures.append(f"interrupted in {cell.label}")
            break
        except Exception as exc:
            # Any failure of one server must not cost the figures of the others.
            reason = _first_cause(exc)
            results.failures.append(f"{cell.label}: {reason}")
            progress.end(index, f"FAILED: {reason}")
        else:
            results.add(cell.scenario.name, cell.subject.name, sample)
            progress.end(index, _in_words(sample, cell.scenario.unit))
    return results


def _first_cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:1000]


def _in_words(sample: Sample, unit: str) -> str:
    if sample.cpu_us is not None:
        return f"{sample.cpu_us:,.1f} us per {unit}, {sample.per_second:,.0f}/s"
    if sample.cancel_ms is not None:
        return f"event {sample.p50_ms:.1f} ms, cancel {sample.cancel_ms:.1f} ms"
    if sample.start_seconds is not None:
        return f"{sample.start_cpu_seconds:.2f} s CPU, {sample.start_seconds:.2f} s"
    return f"{sample.kib:.1f} KiB"


def write_bare_answer(subjects: list[Subject], cores: Cores) -> None:
    """Give the bare handler one of our own answers, so that both write the same bytes."""
    ours = next((subject for subject in subjects if subject.name == OURS), None)
    answer = sample_answer()
    if ours is not None:
        with (
            peers.running(ours, "memory", core=cores.server) as server,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            answer = runner.run(_one_answer(server))
    peers.BARE_ANSWER.parent.mkdir(exist_ok=True)
    peers.BARE_ANSWER.write_bytes(answer)


async def _one_answer(server: peers.Server) -> bytes:
    async with load.connections(server.port, 1) as (connection,):
        return await connection.start(server.requests.send(1, ECHO_TEXT))


def facts_of(
    subjects: list[Subject], cores: Cores, *, repetitions: int, partial: bool
) -> dict[str, Any]:
    ours = ("dragoman", "granian", "msgspec", "uvloop")
    installed = {
        distribution.name: distribution.version for distribution in metadata.distributions()
    }
    return {
        **machine_facts(peers.ROOT),
        "taken": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores_apart": cores.apart,
        "repetitions": repetitions,
        "partial": partial,
        "packages": {
            OURS: {name: installed[name] for name in ours if name in installed},
            **{s.name: s.packages.versions() for s in subjects if s.packages is not None},
        },
    }


def _names(known: dict[str, Any]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {name!r}; there are {', '.join(known)}")
        return names

    return parse


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, for a look")
    parser.add_argument("--repetitions", type=int, help="rounds (5, or 1 with --quick)")
    parser.add_argument(
        "--only", type=_names(SCENARIOS), default=list(SCENARIOS), help="scenarios, with commas"
    )
    parser.add_argument(
        "--subjects", type=_names(SUBJECTS), default=list(SUBJECTS), help="servers, with commas"
    )
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    # Ended from outside, leave as on Ctrl-C: through the code that stops the server.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pace = QUICK if options.quick else FULL
    repetitions = options.repetitions or (1 if options.quick else 5)
    chosen = [SCENARIOS[name] for name in SCENARIOS if name in options.only]
    wanted = {name for scenario in chosen for name in scenario.subjects} & set(options.subjects)
    subjects = [SUBJECTS[name] for name in SUBJECTS if name in wanted]

    try:
        peers.install(subjects)
        absent = {s.name: reason for s in subjects if (reason := s.missing())}
        subjects = [subject for subject in subjects if subject.name not in absent]
        cores = choose_cores()
        if BARE in wanted:
            write_bare_answer(subjects, cores)
    except peers.SetupFailed as exc:
        print(exc, file=sys.stderr)
        return 1

    partial = (
        options.quick
        or repetitions < 5
        or len(options.only) < len(SCENARIOS)
        or any(each not in subjects for each in SUBJECTS.values() if not each.optional)
    )
    facts = facts_of(subjects, cores, repetitions=repetitions, partial=partial)
    if cores.load is not None:
        os.sched_setaffinity(0, {cores.load})
    results = run_all(plan(chosen, subjects, repetitions), pace, cores)
    for name, reason in absent.items():
        left_out = results.notes if SUBJECTS[name].optional else results.failures
        left_out.append(f"{name} left out: {reason}")
    # What is interrupted or failed must not replace the figures of a whole run.
    facts["partial"] = partial or bool(results.failures)
    path = report.write(results, facts, RESULTS, "partial" if facts["partial"] else "latest")
    print(path.read_text())
    print(f"Written to {path.relative_to(peers.ROOT)} and .json beside it.", file=sys.stderr)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
