"""The tables in `docs/guide/durability.md`: every fault and every row of the programme, and its
tests."""

from __future__ import annotations

import re

import pytest

from pages import DOCS, all_tests, named_tests

FAULTS = [*map(str, range(1, 12)), "11b", *map(str, range(12, 23))]
PROGRAMME = [f"R{n}" for n in range(1, 17)]


def rows() -> dict[str, str]:
    """The last cell of each row."""
    page = (DOCS / "guide" / "durability.md").read_text("utf-8")
    section = page.partition("## What fails, and which test proves")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (R?\d+b?) \|.* \| (.+?) \|$", section, re.M))


def test_every_fault_and_every_row_of_the_programme_has_a_row() -> None:
    assert list(rows()) == [*FAULTS, *PROGRAMME]


@pytest.mark.parametrize("row", [*FAULTS, *PROGRAMME])
def test_every_row_of_the_tables_names_tests_that_exist(row: str) -> None:
    named = named_tests(rows()[row])
    assert named
    assert [name for name in named if name not in all_tests()] == []
