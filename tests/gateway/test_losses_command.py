"""`dragoman gateway losses`: the table on the terminal and as JSON."""

import json
from pathlib import Path

import pytest

from cli.run import dragoman
from dragoman.dialects import DIALECTS
from dragoman.dialects.losses import lost_between


@pytest.mark.slow
def test_every_pair_is_shown_as_the_dialects_declare_it(tmp_path: Path) -> None:
    done = dragoman("gateway", "losses", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pairs = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(pair["from"], pair["to"]) for pair in pairs} == {
        (caller, agent)
        for caller, record in DIALECTS.items()
        if record.callee is not None
        for agent in DIALECTS
    }
    for pair in pairs:
        expected = lost_between(DIALECTS[pair["from"]], DIALECTS[pair["to"]])
        assert tuple(pair["lost"]) == expected


@pytest.mark.slow
def test_one_pair_is_one_line_and_an_unknown_dialect_names_the_known_ones(tmp_path: Path) -> None:
    done = dragoman("gateway", "losses", "--from", "iat", "--to", "iat-ws", cwd=tmp_path)
    assert done.stdout.split() == ["iat", "->", "iat-ws", "nothing"]
    done = dragoman("gateway", "losses", "--to", "latin", cwd=tmp_path)
    assert done.returncode == 2
    assert "a2a-0.3-rest" in done.stderr
