"""The official Python clients over gRPC, in their own environments, against `dragoman serve`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from interop.peers import A2A_SDK, A2A_SDK_0_3, Peer, PeerUnavailable
from interop.serving import served

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
Run = tuple[Peer, Path, tuple[str, ...]]
RUNS: dict[str, Run] = {
    "1.3.0-1.0": (
        A2A_SDK,
        CLIENTS / "a2a_sdk_grpc_client.py",
        ("1.0", str(CLIENTS / "a2a_sdk_client.py")),
    ),
    "1.3.0-0.3": (
        A2A_SDK,
        CLIENTS / "a2a_sdk_grpc_client.py",
        ("0.3", str(CLIENTS / "a2a_sdk_client.py")),
    ),
    "0.3.26": (A2A_SDK_0_3, CLIENTS / "a2a_sdk_0_3_grpc_client.py", ()),
}
EVERYWHERE = (
    *("send", "send_without_waiting", "stream", "get", "cancel", "resubscribe"),
    *("multi_turn", "unknown_task", "finished_task", "parts"),
)
CASES = [
    *((run, scenario) for run in RUNS for scenario in EVERYWHERE),
    *(("1.3.0-1.0", scenario) for scenario in ("list_tasks", "multi_turn_stream")),
    *(("1.3.0-0.3", scenario) for scenario in ("multi_turn_stream",)),
    *((run, "resubscribe_until_canceled") for run in ("1.3.0-1.0", "1.3.0-0.3")),
]

# The first test of a client builds its environment and runs the whole script.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The HTTP address of a served agent, whose card says where gRPC is."""
    with served(tmp_path_factory.mktemp("grpc")) as url:
        yield url


@pytest.fixture(scope="module")
def ask(server: str) -> Callable[[str], dict[str, dict[str, object]]]:
    """Runs the script of a client, once; its verdicts by scenario."""

    @cache
    def ask(name: str) -> dict[str, dict[str, object]]:
        peer, script, args = RUNS[name]
        done = peer.run(script, server, *args, timeout=300)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        found = {line["scenario"]: line for line in lines}
        return found or {"": {"ok": False, "detail": done.stderr}}

    return ask


@pytest.mark.parametrize(("run", "scenario"), CASES)
def test_official_grpc_client(
    ask: Callable[[str], dict[str, dict[str, object]]], run: str, scenario: str
) -> None:
    try:
        verdicts = ask(run)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    verdict = verdicts.get(scenario) or verdicts.get("")
    assert verdict is not None, f"the client never got to {scenario}"
    assert verdict["ok"], verdict["detail"]
