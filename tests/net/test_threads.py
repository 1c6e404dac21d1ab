"""The policy of a server's threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TOLD = """
import os, threading
from dragoman.server.process.tuning import use_batch_scheduling
{before}
use_batch_scheduling()
print(os.sched_getscheduler(0))
later = threading.Thread(target=lambda: print(os.sched_getscheduler(0)))
later.start()
later.join()
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has this policy")
@pytest.mark.parametrize(("before", "after"), [("", "SCHED_BATCH"), ("SCHED_IDLE", "SCHED_IDLE")])
@pytest.mark.slow  # starts processes
def test_a_server_lets_its_threads_finish_unless_it_was_told_otherwise(
    before: str, after: str
) -> None:
    chosen = f"os.sched_setscheduler(0, os.{before}, os.sched_param(0))" if before else ""
    code = TOLD.format(before=chosen)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(getattr(os, after))] * 2
