"""Our client with the servers of others, in every version and binding they have.

`docs/interop-client.md` shows the table; it fails here when it is not what was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from dragoman import connect
from interop.client import matrix
from interop.client.matrix import KNOWN, PAGE, Verdict
from interop.client.operations import OPERATIONS, QUICK
from interop.client.servers import ROWS, SERVERS, Row, Server, Started
from interop.peers import PeerUnavailable

# The first test of a server builds its environment; each row runs every operation.
pytestmark = pytest.mark.slow
Ask = Callable[[Row], dict[str, Verdict]]


@pytest.fixture(scope="module")
def ask(started: Started) -> Ask:
    """Tries every operation of a row, once."""

    @cache
    def ask(row: Row) -> dict[str, Verdict]:
        try:
            return matrix.ask(row, started[row.server].url)
        except PeerUnavailable as exc:
            pytest.skip(str(exc))

    return ask


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
    assert matrix.filled(page, table) == page, (
        "run: .venv/bin/python tests/interop/client/matrix.py"
    )


def test_every_known_weakness_is_of_a_cell() -> None:
    cells = {(row.server.name, row.dialect, name) for row in ROWS for name in OPERATIONS}
    assert set(KNOWN) <= cells


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
async def test_an_address_is_enough(started: Started, server: Server) -> None:
    try:
        url = started[server].url
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    async with connect(url, limits=QUICK) as agent:
        assert agent.dialect == next(row.dialect for row in ROWS if row.server is server)
        assert (await agent.send("hello")).text == "HELLO"
