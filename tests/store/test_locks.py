"""The locks of workers: who counts as alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.store.local import worker_locks
from dragoman.store.local.worker_locks import WorkerLocks

pytestmark = pytest.mark.skipif(worker_locks.fcntl is None, reason="this system knows no flock")


def test_a_held_lock_counts_whatever_start_of_the_machine_its_holder_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process may read the id of the start, and another one in its sandbox may not."""
    one, two = (WorkerLocks(tmp_path / "locks", lambda: 5_000) for _ in range(2))
    monkeypatch.setattr(worker_locks, "boot_id", lambda: "unknown")
    one.take("w1", 1_000)
    monkeypatch.setattr(worker_locks, "boot_id", lambda: "7c1f")
    two.take("w2", 1_000)
    assert two.alive("w1")
    assert two.alive("w2")
    monkeypatch.setattr(worker_locks, "boot_id", lambda: "unknown")
    assert one.alive("w2")
    # Once nobody holds it, it is that of a dead process.
    two.let_go()
    assert not one.alive("w2")
    one.let_go()
