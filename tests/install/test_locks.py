"""The locked requirements, with and without hashes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_hashed_file_has_every_pin_with_hashes_and_nothing_else() -> None:
    pins = set((ROOT / "requirements.lock").read_text().split())
    hashed = (ROOT / "requirements-hashed.lock").read_text()
    entries = re.split(r"\n(?=\S)", hashed.strip().replace("\\\n", " "))
    found = {}
    for entry in entries:
        pin, *hashes = entry.split()
        assert hashes, pin
        for each in hashes:
            assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each), entry
        found[_normal(pin)] = hashes
    assert set(found) == {_normal(pin) for pin in pins}


def _normal(pin: str) -> str:
    """Returns a pin with the name as PEP 503 spells it."""
    name, _, version = pin.partition("==")
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version}"
