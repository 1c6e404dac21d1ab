"""How often the tests try something: little in `make test-quick`, all of it in `make test-full`."""

from __future__ import annotations

import os

FULL = os.environ.get("DRAGOMAN_FULL") == "1"
QUICK = os.environ.get("DRAGOMAN_QUICK") == "1" and not FULL


def count(quick: int, usual: int, full: int | None = None) -> int:
    """The count of this run: that of `make test-quick`, `make test` or `make test-full`."""
    if QUICK:
        return quick
    return usual if full is None or not FULL else full
