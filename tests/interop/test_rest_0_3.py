"""The a2a-sdk of 0.3, mostly over REST, in its own environment, against `dragoman serve`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interop.peers import A2A_SDK_0_3, PeerUnavailable
from interop.serving import served

SCRIPT = Path(__file__).parent / "clients" / "a2a_sdk_0_3_rest_client.py"
SCENARIOS = (
    *("send", "stream", "cancel_and_resubscribe"),
    *("resubscribe_in_silence", "resubscribe_in_silence_json_rpc"),
    *("webhooks", "multi_turn", "refusals", "parts"),
)

# The first test builds the client's environment and runs the whole script.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    with served(tmp_path_factory.mktemp("rest")) as url:
        try:
            done = A2A_SDK_0_3.run(SCRIPT, url, timeout=500)
        except PeerUnavailable as exc:
            pytest.skip(str(exc))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["scenario"] for line in lines] == list(SCENARIOS), done.stderr
    return {line["scenario"]: line for line in lines}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_of_0_3(verdicts: dict[str, dict[str, object]], scenario: str) -> None:
    assert verdicts[scenario]["ok"], verdicts[scenario]["detail"]
