"""Our protos are the official ones, field by field; and the generated file is made from them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from dragoman.dialects.a2a.proto import POOL, descriptors
from interop.peers import A2A_SDK, A2A_SDK_0_3, Peer, PeerUnavailable

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests/interop/clients/descriptors.py"
dump = runpy.run_path(str(SCRIPT))["dump"]


def ours(file: str) -> dict[str, Any]:
    found: dict[str, Any] = dump(POOL.FindFileByName(file))
    return found


def theirs(peer: Peer, module: str) -> dict[str, Any]:
    try:
        done = peer.run(SCRIPT, module, timeout=60)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    assert not done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "peer", "module"),
    [
        ("a2a_v1_0.proto", A2A_SDK, "a2a.types.a2a_pb2"),
        ("a2a_v0_3.proto", A2A_SDK, "a2a.compat.v0_3.a2a_v0_3_pb2"),
        ("a2a_v0_3.proto", A2A_SDK_0_3, "a2a.grpc.a2a_pb2"),
    ],
    ids=["1.0", "0.3 beside 1.0", "0.3"],
)
def test_our_descriptors_are_the_official_ones(file: str, peer: Peer, module: str) -> None:
    mine, official = ours(file), theirs(peer, module)
    # a2a-go's field, which the Python SDKs of 0.3 do not know: one more than they have.
    if (
        file == "a2a_v0_3.proto"
        and "reference_task_ids" not in official["messages"]["Message"]["fields"]
    ):
        extra = mine["messages"]["Message"]["fields"].pop("reference_task_ids")
        assert extra["number"] == 8
    assert len(official["messages"]) > 30
    for name, message in official["messages"].items():
        assert mine["messages"].get(name) == message, name
    assert mine == official


def test_the_generated_file_is_made_from_the_sources() -> None:
    pytest.importorskip("grpc_tools")
    generated = runpy.run_path(str(ROOT / "proto/generate.py"))["generated"]()
    assert Path(descriptors.__file__).read_text("utf-8") == generated, "run `make proto`"
