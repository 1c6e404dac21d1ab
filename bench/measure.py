"""What a process and all it started have used, and what machine they ran on.

CPU time comes from `/proc/PID/stat`: the kernel counts every thread there, ended ones too, so it
misses nothing that a server moves to a thread or a child. It ticks in hundredths of a second,
so a measurement should span a second or more.
"""

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
QUIET = 0.1
"""A machine is quiet while less than this share of its cores is busy."""
LOOK = 0.3
"""The seconds over which that is measured."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The few fields of `/proc/PID/stat` that the bench reads."""

    parent: int
    cpu_seconds: float


def read_stat(pid: int) -> ProcessStat | None:
    """The process's parent and CPU time, with that of children it has waited for."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses and may hold anything, so count from its end.
    fields = text[text.rindex(")") + 2 :].split()
    utime, stime, children_utime, children_stime = (int(field) for field in fields[11:15])
    ticks = utime + stime + children_utime + children_stime
    return ProcessStat(parent=int(fields[1]), cpu_seconds=ticks / TICKS_PER_SECOND)


def process_tree(root: int) -> dict[int, ProcessStat]:
    """The process and its descendants that are alive now."""
    alive = dict(_all_processes())
    tree = {root: alive[root]} if root in alive else {}
    # A child may stand before its parent in /proc, so go over the list until nothing is added.
    grown = True
    while grown:
        family = {pid: stat for pid, stat in alive.items() if pid in tree or stat.parent in tree}
        grown = len(family) > len(tree)
        tree = family
    return tree


def _all_processes() -> Iterator[tuple[int, ProcessStat]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := read_stat(int(entry.name))):
            yield int(entry.name), stat


def cpu_seconds(root: int) -> float:
    """CPU time of the process tree so far."""
    return sum(stat.cpu_seconds for stat in process_tree(root).values())


def rss_kib(root: int) -> int:
    """Resident memory of the process tree. The sum of all mappings: `statm` lags behind."""
    return sum(_rss_of(pid) for pid in process_tree(root))


def _rss_of(pid: int) -> int:
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1])
    return 0


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core serves and which one loads; the same one, or none, where there is no choice."""

    server: int | None
    load: int | None

    @property
    def both(self) -> frozenset[int]:
        """For servers of several processes, which share the cores with the load."""
        return frozenset(core for core in (self.server, self.load) if core is not None)

    @property
    def apart(self) -> bool:
        return self.server is not None and self.server != self.load


def choose_cores() -> Cores:
    """The last two cores this process may use: the first one takes most interrupts."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores(server=None, load=None)
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(server=allowed[-1], load=allowed[-2] if len(allowed) > 1 else allowed[-1])


def _busy_and_all_ticks() -> tuple[int, int]:
    user, nice, system, idle, waiting, *others = map(
        int, (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    busy = user + nice + system + sum(others)
    return busy, busy + idle + waiting


def wait_until_quiet(seconds: float) -> float:
    """Wait until the machine has little else to do, but not longer than this. The share of its
    cores that were busy in the end is returned."""
    deadline = time.monotonic() + seconds
    while True:
        busy, ticks = _busy_and_all_ticks()
        time.sleep(LOOK)
        more_busy, more_ticks = _busy_and_all_ticks()
        share = (more_busy - busy) / max(1, more_ticks - ticks)
        if share < QUIET or time.monotonic() > deadline:
            return share


def machine_facts(root: Path) -> dict[str, str | int | float]:
    """What a reader needs to judge the figures by."""
    return {
        "cores": os.cpu_count() or 0,
        "processor": _first_value(PROC / "cpuinfo", "model name"),
        "memory": _first_value(PROC / "meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average_at_start": os.getloadavg()[0],
        "commit": _commit(root),
    }


def _first_value(path: Path, key: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return "unknown"


def _commit(root: Path) -> str:
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} and uncommitted changes" if changed else head


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()
