"""What all tests share: `make test` tries the same cases each time, `make test-full` new ones."""

from __future__ import annotations

import functools
import gc
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from hypothesis import HealthCheck, settings

import warm_start
from counts import FULL, QUICK, count

# A loaded machine is no fault of an example: nothing is said of how long one may take.
settings.register_profile(
    "ours",
    derandomize=not FULL,
    max_examples=count(10, 40, 100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ours")

httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)
"""A client of httpx2 reads all CAs of the system, which takes longer than most tests do."""

if not FULL:
    warm_start.install()

gc.disable()  # until all tests are collected: nothing that is made before then is garbage

LONG = (
    "tests/hostile/test_edge.py",
    "tests/crash/",
    "tests/gateway/test_kill",
    "tests/install/",
    "tests/cli/",
    "tests/interop/",
    "tests/iat/",
)
"""What takes longest begins first, what waits most before what works most; then all other files
with slow tests; last the quick ones, so that no worker is alone with a long file at the end."""


BINDINGS = {"binding", "dialect", "way"}
"""Parameters of tests that are run in every binding."""
PURE = ("tests/contract/", "tests/dialects/", "tests/fuzz/")
"""Folders whose tests start no server, and run in every binding always."""
SOME = 2
"""In how many bindings `make test-quick` runs a test of the other folders."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the order of everything else."""
    if QUICK:
        left_out = _other_bindings(items)
        items[:] = [item for item in items if item not in left_out]
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> int:
        for number, start in enumerate(LONG):
            if item.nodeid.startswith(start):
                return number
        return len(LONG) + (item.path not in slow)

    items.sort(key=place)


def _other_bindings(items: list[pytest.Item]) -> set[pytest.Item]:
    """Returns what `make test-quick` leaves out: it runs a test in about two bindings, and the
    next test in others."""
    tests: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        call = getattr(item, "callspec", None)
        if call and BINDINGS & call.params.keys() and not item.nodeid.startswith(PURE):
            tests[item.nodeid.partition("[")[0]].append(item)
    left_out = set()
    for number, same in enumerate(tests.values()):
        step = math.ceil(len(same) / SOME)
        left_out |= set(same) - set(same[number % step :: step])
    return left_out


TOGETHER = ("tests/interop/client/",)
"""Folders whose files share servers that take long to start: one worker runs all of a folder."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives a worker one file after another, or one of these folders."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folders = [folder for folder in TOGETHER if nodeid.startswith(folder)]
            return folders[0] if folders else str(super()._split_scope(nodeid))

    return Files(config, log)


def pytest_collection_finish() -> None:
    """Ten thousand tests are no garbage: a server that stops looks for some, and would look at all
    of them each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _no_garbage() -> Iterator[None]:
    """Nor is what is left when all tests of a file are done: modules that were imported, caches."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_imports() -> Iterator[None]:
    """A test that loads the file of an agent makes the folder of the file importable, as `dragoman
    serve` does. The next test finds neither the folder nor the module, else it could import
    `desk.py` of another test, or `dragoman/mcp` in place of the package `mcp`."""
    before = [*sys.path]
    yield
    if folders := {*sys.path}.difference(before):
        sys.path[:] = before
        for name, module in [*sys.modules.items()]:
            file = Path(getattr(module, "__file__", None) or "")
            if file.stem == name and str(file.parent) in folders:
                del sys.modules[name]
