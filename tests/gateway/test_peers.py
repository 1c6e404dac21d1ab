"""Clients and servers of others meet through a gateway: neither of them is ours."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.behind import SECRET, gateway, settings
from gateway.test_sub_agents import appears
from gateway.test_sub_agents import gateway as registering
from iat.test_foreign import node
from interop.client.servers import SERVERS, SUFFIX, running
from interop.peers import A2A_JS, A2A_SDK, A2A_SDK_0_3, Peer, PeerUnavailable
from ports import own_port

pytestmark = pytest.mark.slow  # starts processes
HERE = Path(__file__).parent / "peers"
PAIRS = [
    pytest.param(A2A_SDK_0_3, "sdk_0_3.py", "a2a-sdk 1.3.0", "1.0", id="0.3.26 to 1.3.0"),
    pytest.param(A2A_SDK, "sdk_1_0.py", "a2a-sdk 0.3.26", "0.3", id="1.3.0 to 0.3.26"),
]


@pytest.mark.parametrize(("client", "script", "name", "version"), PAIRS)
async def test_a_client_of_others_reaches_a_server_of_others(
    tmp_path: Path, client: Peer, script: str, name: str, version: str
) -> None:
    server = next(each for each in SERVERS if each.name == name)
    try:
        client.ready()
        far = running(server, tmp_path)
        listening = await asyncio.to_thread(far.__enter__)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    try:
        origins = [f"http://127.0.0.1:{port}" for port in listening.ports.values()]
        for binding, suffix in SUFFIX.items():
            own = settings(tmp_path, grpc_port=own_port())
            interfaces = ("JSONRPC", "HTTP+JSON", "GRPC")
            own = replace(own, server=replace(own.server, interfaces=interfaces))
            section = {"url": listening.url, "dialect": f"a2a-{version}{suffix}"}
            async with gateway({"desk": {**section, "origins": origins}}, own) as door:
                assert door.upstream("desk").dialect == section["dialect"]
                done = await asyncio.to_thread(
                    client.run, HERE / script, door.at("desk"), binding, timeout=240.0
                )
            assert done.returncode == 0, f"{binding}: {done.stderr[-3000:]}"
            found = json.loads(done.stdout.splitlines()[-1])
            assert found.pop("name").startswith("Desk on ")
            assert found == {
                "send": ["completed", "HELLO"],
                "stream": ["completed", "0 1 2 "],
                "asked": ["input-required", "Which city?"],
                "answered": ["completed", "A trip to Rome"],
            }, binding
    finally:
        far.__exit__(None, None, None)


async def test_a_javascript_client_reaches_a_sub_agent_in_nodejs(tmp_path: Path) -> None:
    try:
        A2A_JS.ready()
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    async with asyncio.timeout(240), registering(tmp_path) as door:
        command = node(door.url)
        environ = {"IAT_SECRET": SECRET, "IAT_AGENT": "foreign", "IAT_HOST_NAME": "host"}
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **environ})
        try:
            await appears(door.url, "foreign")
            done = await asyncio.to_thread(
                A2A_JS.run, HERE / "js_client.mjs", f"{door.url}/agents/foreign", timeout=120.0
            )
        finally:
            process.kill()
            await process.wait()
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    waits = "TASK_STATE_INPUT_REQUIRED"
    assert found["asked"] == [[waits, "tool"], [waits, "approval"]]
    assert found["state"] == "TASK_STATE_COMPLETED"
    assert found["text"] == "b.txt has 5 bytes, deleted"
