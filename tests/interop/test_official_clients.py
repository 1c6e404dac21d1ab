"""The official clients, in their own environments, against a real `dragoman serve`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from interop.peers import A2A_JS, A2A_SDK, Peer, PeerUnavailable
from interop.serving import served

HERE = Path(__file__).parent
SCRIPTS = {
    A2A_SDK: HERE / "clients" / "a2a_sdk_client.py",
    A2A_JS: HERE / "clients" / "a2a_js_client.mjs",
}
SCENARIOS = (
    "card",
    "send",
    "send_without_waiting",
    "stream",
    "get",
    "list_tasks",
    "cancel",
    "resubscribe",
    "resubscribe_until_canceled",
    "multi_turn",
    "multi_turn_stream",
    "unknown_task",
    "finished_task",
    "parts",
)
VERSIONS = ("1.0", "0.3", "1.0-rest", "0.3-rest")
NOT_IN_0_3 = {"list_tasks"}  # 0.3 has no such method in JSON-RPC
QUIRKS = {
    # Its legacy REST client loses `append` and reads base64 once where the other SDKs write it
    # twice; to return at once it leaves `blocking` out, which here means to wait.
    (A2A_JS, "0.3-rest"): {
        *("stream", "parts", "send_without_waiting", "cancel", "resubscribe_until_canceled"),
    },
}


def expected(peer: Peer, version: str) -> list[str]:
    """What a client can do in a version."""
    without = NOT_IN_0_3 if version.startswith("0.3") else set()
    without = without | QUIRKS.get((peer, version), set())
    return [scenario for scenario in SCENARIOS if scenario not in without]


CASES = [
    pytest.param(peer, version, scenario, id=f"{peer.name}-{version}-{scenario}")
    for peer in SCRIPTS
    for version in VERSIONS
    for scenario in expected(peer, version)
]

# The first test of a client builds its environment and runs the whole script.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a served agent."""
    with served(tmp_path_factory.mktemp("interop")) as url:
        yield url


@dataclass(frozen=True)
class Verdicts:
    """What one client says of one version."""

    scenarios: dict[str, dict[str, object]]
    stderr: str


@pytest.fixture(scope="module")
def ask(server: str) -> Callable[[Peer, str], Verdicts]:
    """Runs the script of a client, once for each version."""

    @cache
    def ask(peer: Peer, version: str) -> Verdicts:
        done = peer.run(SCRIPTS[peer], server, version, *expected(peer, version), timeout=300)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return Verdicts({line["scenario"]: line for line in lines}, done.stderr)

    return ask


@pytest.mark.parametrize(("peer", "version", "scenario"), CASES)
def test_official_client(
    ask: Callable[[Peer, str], Verdicts], peer: Peer, version: str, scenario: str
) -> None:
    try:
        verdicts = ask(peer, version)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    verdict = verdicts.scenarios.get(scenario)
    assert verdict is not None, f"the client never got to it:\n{verdicts.stderr}"
    assert verdict["ok"], verdict["detail"]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=lambda script: script.name)
def test_every_scenario_of_a_script_is_asked_for(script: Path) -> None:
    listed = re.search(r"^(?:const )?SCENARIOS[^=]*= \[(.*?)\]", script.read_text(), re.S | re.M)
    assert listed is not None
    assert re.findall(r"\w+", listed[1]) == list(SCENARIOS)
