"""What the tests of IAT share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is away here comes back at once, and is not a host that all its agents dial anew."""
    monkeypatch.setattr("dragoman.iat.registration.FIRST", 0.05)
    monkeypatch.setattr("dragoman.iat.registration.MOST", 0.5)
