from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _over_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Authlib refuses plain http unless it is told; here it is on this machine."""
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
