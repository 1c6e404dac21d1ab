"""The a2a-sdk of 0.3 hears why its streams over JSON-RPC are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interop.peers import A2A_SDK_0_3, PeerUnavailable
from interop.serving import served

SCRIPT = Path(__file__).parent / "clients" / "a2a_sdk_0_3_refused_streams.py"

# Builds the client's environment if nobody has.
pytestmark = pytest.mark.slow


def test_the_client_of_0_3_hears_why_a_stream_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        try:
            done = A2A_SDK_0_3.run(SCRIPT, url, timeout=300)
        except PeerUnavailable as exc:
            pytest.skip(str(exc))
    told = json.loads(done.stdout)
    for method in ("message/stream", "tasks/resubscribe"):
        assert told[method]["code"] == -32001, told[method]
        assert told[method]["message"].startswith("Task not found"), told[method]
