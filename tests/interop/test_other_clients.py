"""Clients of other makers, in their own environments, against a real `dragoman serve`.

fasta2a speaks the hybrid (0.3's methods, 1.0's shapes), python-a2a 0.1 in a manner of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from interop.peers import FASTA2A, PYTHON_A2A, Peer, PeerUnavailable
from interop.serving import served

CLIENTS = Path(__file__).parent / "clients"
SCRIPTS = {
    FASTA2A: CLIENTS / "fasta2a_client.py",
    PYTHON_A2A: CLIENTS / "python_a2a_client.py",
}
SCENARIOS = {
    FASTA2A: (
        *("card", "send", "send_without_waiting", "stream", "get", "multi_turn", "files"),
        *("unknown_task", "bad_params"),
    ),
    PYTHON_A2A: (
        *("card", "ask", "ask_in_googles_format", "send", "send_in_parts", "get", "cancel"),
        *("multi_turn", "unknown_task", "stream_task", "stream_response"),
    ),
}
CASES = [
    pytest.param(peer, scenario, id=f"{peer.name}-{scenario}")
    for peer, scenarios in SCENARIOS.items()
    for scenario in scenarios
]
Verdicts = dict[str, dict[str, object]]

# The first test of a client builds its environment and runs the whole script.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("others")) as url:
        yield url


@pytest.fixture(scope="module")
def ask(server: str) -> Callable[[Peer], tuple[Verdicts, str]]:
    """Runs the script of a client, once."""

    @cache
    def ask(peer: Peer) -> tuple[Verdicts, str]:
        done = peer.run(SCRIPTS[peer], server, timeout=300)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {line["scenario"]: line for line in lines}, done.stderr

    return ask


@pytest.mark.parametrize(("peer", "scenario"), CASES)
def test_client(ask: Callable[[Peer], tuple[Verdicts, str]], peer: Peer, scenario: str) -> None:
    try:
        verdicts, stderr = ask(peer)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    verdict = verdicts.get(scenario)
    assert verdict is not None, f"the client never got to it:\n{stderr}"
    assert verdict["ok"], verdict["detail"]


@pytest.mark.parametrize("peer", SCRIPTS, ids=lambda peer: peer.name)
def test_every_scenario_of_a_script_is_asked_for(peer: Peer) -> None:
    listed = re.search(r"^SCENARIOS = \[(.*?)\]", SCRIPTS[peer].read_text(), re.S | re.M)
    assert listed is not None
    assert re.findall(r"\w+", listed[1]) == list(SCENARIOS[peer])
