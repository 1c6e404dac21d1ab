"""What all tests share: `make test` tries the same cases each time, `make test-full` new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
if not os.environ.get("DRAGOMAN_FULL"):
    settings.load_profile("steady")
