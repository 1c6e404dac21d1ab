"""Official clients follow the card of one of several agents, in every binding it names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.peers import A2A_JS, A2A_SDK, Peer, PeerUnavailable
from interop.serving import AGENT, served

CLIENTS = Path(__file__).parent / "clients"
SDK, JS, GRPC = (
    CLIENTS / name for name in ("a2a_sdk_client.py", "a2a_js_client.mjs", "a2a_sdk_grpc_client.py")
)
RUNS = [
    *(
        pytest.param(peer, script, (version,), id=f"{peer.name}-{version}")
        for peer, script in ((A2A_SDK, SDK), (A2A_JS, JS))
        for version in ("1.0", "0.3", "1.0-rest")
    ),
    pytest.param(A2A_SDK, GRPC, ("1.0", str(SDK)), id="a2a-sdk-1.0-grpc"),
]
SCENARIOS = ("send", "stream", "get", "cancel", "resubscribe", "multi_turn", "unknown_task")

pytestmark = pytest.mark.slow  # runs whole clients


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("several"), f"alpha={AGENT}", f"beta={AGENT}") as url:
        yield url


@pytest.mark.parametrize(("peer", "script", "args"), RUNS)
def test_official_client(server: str, peer: Peer, script: Path, args: tuple[str, ...]) -> None:
    try:
        done = peer.run(script, f"{server}/agents/beta", *args, timeout=300)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    found = {line["scenario"]: line for line in map(json.loads, done.stdout.splitlines())}
    for scenario in SCENARIOS:
        assert scenario in found, done.stderr
        assert found[scenario]["ok"], found[scenario]["detail"]
