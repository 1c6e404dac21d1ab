"""Official clients follow the card of one of several agents, in every binding it names."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.settings import HostedAgent
from interop.agent import agent as desk
from interop.peers import A2A_JS, A2A_SDK, A2A_SDK_0_3, Peer, PeerUnavailable
from interop.serving import AGENT, served
from server.two_agents import desk as greeter
from server.two_agents import serving

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


LOOK = """
import { DefaultAgentCardResolver } from "@a2a-js/sdk/client";
const card = await new DefaultAgentCardResolver().resolve(process.argv[2]);
console.log(JSON.stringify({ url: card.supportedInterfaces[0].url, name: card.name }));
"""


def test_a2a_js_finds_the_card_at_every_address_that_we_publish(
    server: str, tmp_path: Path
) -> None:
    """It resolves `.well-known/agent-card.json` against what it is given, so the last word of an
    address without a slash is lost."""
    script = tmp_path / "look.mjs"
    script.write_text(LOOK)
    with urllib.request.urlopen(f"{server}/agents", timeout=60) as reply:
        (listed,) = [each["url"] for each in json.load(reply)["agents"] if each["name"] == "beta"]
    try:
        for _ in range(2):
            done = A2A_JS.run(script, listed, timeout=300)
            assert done.returncode == 0, done.stderr
            listed = json.loads(done.stdout)["url"]  # on the card
            assert listed.startswith(f"{server}/agents/beta")
    except PeerUnavailable as exc:
        pytest.skip(str(exc))


@pytest.mark.parametrize("path", ["/agents/.well-known/agent-card.json", "/.well-known/agent.json"])
def test_whoever_looks_for_one_card_is_told_which_there_are(server: str, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{server}{path}", timeout=60)
    assert refused.value.code == 404
    told = json.load(refused.value)
    assert [each["name"] for each in told["agents"]] == ["alpha", "beta"]
    with urllib.request.urlopen(told["agents"][1]["cardUrl"], timeout=60) as reply:
        assert json.load(reply)["name"] == "Interop desk"


async def test_a_client_of_0_3_reaches_one_of_several_over_grpc_at_its_own_port() -> None:
    """0.3 has no word for the agent, so only a port can name it (ADR 0015)."""
    agents = {"beta": HostedAgent(file="x", grpc_port=0)}
    async with serving({"alpha": greeter("alpha"), "beta": desk}, agents=agents) as two:
        script = CLIENTS / "a2a_sdk_0_3_grpc_client.py"
        address = f"{two.url}/agents/beta"
        done = await asyncio.to_thread(A2A_SDK_0_3.run, script, address, timeout=300)
        found = {line["scenario"]: line for line in map(json.loads, done.stdout.splitlines())}
        for scenario in SCENARIOS:
            assert scenario in found, done.stderr
            assert found[scenario]["ok"], found[scenario]["detail"]
        await two.app.replace_agent("beta", greeter("gamma"))  # the port changes hands
        assert two.app.mounts["beta"].agent.description == "Says gamma."
