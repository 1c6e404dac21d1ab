"""Every client in every binding it has, behind a token, with a webhook that really listens.

`docs/interop.md` shows the table; it fails here when it is not what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from interop import matrix
from interop.matrix import OPERATIONS, PAGE, ROWS, Row, Verdict
from interop.peers import PeerUnavailable

# The first test of a client builds its environment; each row runs a whole script.
pytestmark = pytest.mark.slow
Ask = Callable[[Row], dict[str, Verdict]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Runs the script of a row, once."""
    with matrix.server(tmp_path_factory.mktemp("matrix")) as url:

        @cache
        def ask(row: Row) -> dict[str, Verdict]:
            try:
                return matrix.ask(row, url)
            except PeerUnavailable as exc:
                pytest.skip(str(exc))

        yield ask


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_cell(ask: Ask, row: Row, operation: str) -> None:
    verdict = ask(row)[operation]
    assert verdict.ok, verdict.detail


def test_what_the_page_shows_is_what_was_seen(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    table = {row: ask(row) for row in ROWS}
    with capsys.disabled():
        print("\n" + matrix.shown(table))
    page = PAGE.read_text("utf-8")
    assert matrix.filled(page, matrix.shown(table)) == page, (
        "run: .venv/bin/python tests/interop/matrix.py"
    )


@pytest.mark.parametrize("script", sorted({row.script for row in ROWS if not row.peer.sources}))
def test_nothing_is_unable_without_a_look(script: str) -> None:
    """A script may say `Cannot` only with what it saw (`verdicts.py`), never out of hand."""
    text = Path(matrix.CLIENTS / script).read_text("utf-8")
    for line in text.splitlines():
        if "Cannot(" in line:
            assert "only_json_rpc(" in line or "sends nothing" in line, line
