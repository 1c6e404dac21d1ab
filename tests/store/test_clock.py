"""Clocks that jump: what is measured as a duration does not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # starts processes

JUMPS = Path(__file__).with_name("jumps.py")
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed (make test does it)")
@pytest.mark.parametrize("url", ["sqlite:///{}/tasks.db", "file://{}/tasks", "memory:"])
def test_a_wall_clock_that_jumps_takes_no_task_from_anyone(tmp_path: Path, url: str) -> None:
    faked = tmp_path / "time"
    faked.write_text("+0\n")
    environ = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(faked),
        "FAKETIME_NO_CACHE": "1",
        # Only the wall clock is set; both names, the library changed it.
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    done = subprocess.run(
        [sys.executable, str(JUMPS), url.format(tmp_path)],
        env=os.environ | environ,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    expected = {
        "reaped after +120 s": [],
        "beats after +120 s": True,
        "holder after +120 s": "w1",
        "reaped after -3600 s": [],
        "claimed after -3600 s": ["free"],
    }
    if url != "memory:":
        expected["taken after a restart at -7200 s"] = ["free", "running"]
    found = json.loads(done.stdout)
    assert {key: found[key] for key in expected} == expected
