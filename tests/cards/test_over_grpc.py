"""The card over gRPC, as the stub of a2a-sdk 0.3 reads it in its own environment."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cards.served import desk
from dragoman import Agent
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.settings import Server
from interop.peers import A2A_SDK_0_3
from semantics.ways import served

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("sdk_grpc_0_3.py")
TOKEN = "a-token-of-the-boss-1"


async def ask_sdk(port: int, *token: str) -> Any:
    where = f"127.0.0.1:{port}"
    done = await asyncio.to_thread(A2A_SDK_0_3.run, SCRIPT, where, *token, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_without_an_extended_card_it_is_the_public_one() -> None:
    async with served(desk()) as running:
        port = running.app.ports["grpc"]
        answered = await ask_sdk(port)
        assert (answered["name"], answered["skills"]) == ("Desk", ["look"])
        assert f"127.0.0.1:{port}" in answered["urls"]
        # The other bindings of 0.3 have an error for it (source §7.10).
        call = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
        assert (await running.client.post("/", json=call)).json()["error"]["code"] == -32007
        assert (await running.client.get("/v1/card")).status_code == 404


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("BOSS", TOKEN)
    return desk(auth={"robots": Tokens(callers={"boss": Known(secret=Secret(env="BOSS"))})})


async def test_a_caller_without_credentials_reads_that_it_needs_some(locked: Agent) -> None:
    async with served(locked) as running:
        port = running.app.ports["grpc"]
        refused = await ask_sdk(port)
        assert refused["code"] == "UNAUTHENTICATED"
        assert refused["words"].startswith("Authentication required")
        assert (await ask_sdk(port, TOKEN))["name"] == "Desk"


async def test_whoever_may_not_read_the_public_card_may_not_read_it_here() -> None:
    server = Server(
        store="memory:", grpc=True, grpc_port=0, allow_private=True, card_access="192.0.2.0/24"
    )
    async with served(desk(), server=server) as running:
        assert (await ask_sdk(running.app.ports["grpc"]))["code"] == "UNIMPLEMENTED"
