"""The tables of the security page: every limit with its default, every attack with its test."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from dragoman.settings import EngineSettings, Limits, Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guide/security.md").read_text("utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of the table under this title."""
    section = re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], flags=re.M)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_limit_of_the_edge_is_told_with_its_default() -> None:
    settings, told = Settings(), set()
    for name, default, what in rows("Limits"):
        section, _, key = name.strip("`").partition(".")
        value = getattr(getattr(settings, section), key)
        assert msgspec.json.encode(value).decode() == default.strip("`"), name
        assert what
        told.add(f"{section}.{key}")
    own = set(Limits.__struct_fields__) - set(EngineSettings.__struct_fields__)
    assert {f"limits.{key}" for key in own} <= told


def test_every_attack_has_a_test() -> None:
    attacks = rows("Attacks")
    assert len(attacks) > 20
    for attack, defence, test in attacks:
        file, _, name = test.strip("`").partition("::")
        assert attack
        assert defence
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.M), test
    names = [attack for attack, _, _ in attacks]
    assert len(names) == len(set(names))
