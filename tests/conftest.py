"""What all tests share: `make test` tries the same cases each time, `make test-full` new ones."""

from __future__ import annotations

import gc
import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
if not os.environ.get("DRAGOMAN_FULL"):
    settings.load_profile("steady")


def pytest_collection_finish() -> None:
    """Seven thousand tests are no garbage: a server that stops looks for some, and would look at
    all of them each time."""
    gc.collect()
    gc.freeze()
