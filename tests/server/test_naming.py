"""An agent of several is reached by its host and by its tenant too."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import ConfigError, Forbidden
from dragoman.core.model import Message, Role, Text
from dragoman.core.operations import SendMessage
from dragoman.dialects.a2a.grpc.caller import GrpcCaller
from dragoman.server.agent_names import Naming
from dragoman.settings import HostedAgent
from semantics.ways import Way
from server.two_agents import TwoAgents, desk, serving

V1 = {"A2A-Version": "1.0"}
JSON = {"content-type": "application/json"}
HOSTS = {
    "alpha": HostedAgent(file="-", host="alpha.example"),
    "beta": HostedAgent(file="-"),
}
TENANTS = {
    "alpha": HostedAgent(file="-", tenant="acme"),
    "beta": HostedAgent(file="-", tenant="umbrella"),
}


def body(text: str = "hi", **params: Any) -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    params = {"message": message, **params}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}


def text_in(reply: httpx2.Response) -> str:
    task = reply.json().get("result", reply.json())["task"]
    return str(task["artifacts"][0]["parts"][0]["text"])


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ann is of both tenants, Bob of none."""
    for name in ("ann", "bob"):
        monkeypatch.setenv(f"T_{name}", f"{name}-token-of-sixteen")
    ann = Known(secret=Secret(env="T_ann"), tenants=("acme", "umbrella"))
    return {"all": Tokens(callers={"ann": ann, "bob": Known(secret=Secret(env="T_bob"))})}


def as_(name: str) -> dict[str, str]:
    return {**V1, "authorization": f"Bearer {name}-token-of-sixteen"}


# Hosts


async def test_an_agent_is_at_the_root_of_its_host() -> None:
    async with (
        serving(agents=HOSTS) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        port = two.url.rpartition(":")[2]
        for host in ("alpha.example", f"alpha.example:{port}", "ALPHA.example"):
            reply = await client.post("/", json=body(), headers={**V1, "host": host})
            assert text_in(reply) == "alpha hi", host
            reply = await client.post(
                "/message:send", json=body()["params"], headers={"host": host}
            )
            assert text_in(reply) == "alpha hi", host
        card = await client.get("/.well-known/agent-card.json", headers={"host": "alpha.example"})
        assert card.json()["url"] == "http://alpha.example"
        # At the other addresses of the server everything is as ever.
        assert (await client.post("/", json=body(), headers=V1)).status_code == 404
        card = await client.get("/agents/alpha/.well-known/agent-card.json")
        assert card.json()["url"] == f"{two.url}/agents/alpha/"
        for path in ("/healthz", "/readyz", "/metrics"):
            reply = await client.get(path, headers={"host": "alpha.example"})
            assert reply.status_code == 200, path
        reply = await client.get("/agents", headers={"host": "alpha.example"})
        assert reply.status_code == 404


async def test_only_the_hosts_of_agents_are_allowed_and_only_while_they_are_there() -> None:
    async with serving() as two, httpx2.AsyncClient(base_url=two.url, timeout=60) as client:

        async def status() -> int:
            return (await client.post("/", json=body(), headers={"host": "g.example"})).status_code

        assert await status() == 421
        await two.app.add_agent("gamma", desk("gamma"), naming=Naming(host="g.example"))
        assert await status() == 200
        await two.app.replace_agent("gamma", desk("more"), naming=Naming(host="h.example"))
        assert await status() == 421
        await two.app.remove_agent("gamma")
        assert await status() == 421


async def test_a_browser_page_of_another_host_is_refused_at_the_host_of_an_agent() -> None:
    async with (
        serving(agents=HOSTS) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        headers = {**V1, "host": "alpha.example", "origin": "https://evil.example"}
        assert (await client.post("/", json=body(), headers=headers)).status_code == 403


# Tenants


async def test_a_tenant_leads_to_its_agent(people: dict[str, Any]) -> None:
    async with (
        serving(agents=TENANTS, auth=people) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        for name, tenant in (("alpha", "acme"), ("beta", "umbrella")):
            reply = await client.post("/", json=body(tenant=tenant), headers=as_("ann"))
            assert text_in(reply) == f"{name} hi"
            params = body()["params"]
            reply = await client.post(f"/{tenant}/message:send", json=params, headers=as_("ann"))
            assert text_in(reply) == f"{name} hi"
            listed = await client.get(f"/{tenant}/tasks", headers=as_("ann"))
            assert len(listed.json()["tasks"]) == 2
            heard = await asked_over_grpc(two, tenant, "ann")
            assert heard.answer.text == f"{name} hi"


async def asked_over_grpc(two: TwoAgents, tenant: str, who: str) -> Any:
    way = Way("gRPC 1.0", lambda uris: GrpcCaller("1.0", uris, tenant))
    op = SendMessage(message=Message(message_id="m", role=Role.USER, parts=(Text("hi"),)))
    async with two.open_server("alpha") as running:
        return await way.ask(
            running, op, headers={"authorization": f"Bearer {who}-token-of-sixteen"}
        )


async def test_a_tenant_needs_the_right_to_it(people: dict[str, Any]) -> None:
    async with (
        serving(agents=TENANTS, auth=people) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        refused = await client.post("/", json=body(tenant="acme"), headers=as_("bob"))
        assert "no such tenant" in refused.text
        params = body()["params"]
        refused = await client.post("/acme/message:send", json=params, headers=as_("bob"))
        assert refused.status_code == 403
        assert isinstance((await asked_over_grpc(two, "acme", "bob")).error, Forbidden)
        for headers in (V1, as_("eve")):
            refused = await client.post("/", json=body(tenant="acme"), headers=headers)
            assert refused.status_code == 401


async def test_a_call_to_the_root_that_names_no_tenant_is_told_so(people: dict[str, Any]) -> None:
    async with (
        serving(agents=TENANTS, auth=people) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        for wrong in (body(), body(tenant="nobody"), body(tenant=3), {"params": []}):
            reply = await client.post("/", json=wrong, headers=as_("ann"))
            assert reply.json()["error"]["code"] in (-32600, -32602, -31403), wrong
        reply = await client.post("/", content=b"{", headers=as_("ann") | JSON)
        assert reply.json()["error"]["code"] == -32700


@pytest.mark.parametrize(
    ("naming", "said"),
    [
        (Naming(host="alpha.example"), "already belongs to alpha"),
        (Naming(host="A.example:80"), "without a port"),
        (Naming(tenant="acme"), "leads to alpha already"),
        (Naming(tenant="beta"), "the name of another agent"),
        *((Naming(tenant=each), "path of this server") for each in ("mcp", "files", "agents")),
        (Naming(tenant="openapi.json"), "path of this server"),
        (Naming(tenant="healthz"), "path of this server"),
    ],
)
async def test_hosts_and_tenants_are_taken_once_and_our_paths_are_none(
    naming: Naming, said: str
) -> None:
    taken = {
        "alpha": HostedAgent(file="-", host="alpha.example", tenant="acme"),
        "beta": HostedAgent(file="-"),
    }
    async with serving(agents=taken) as two:
        with pytest.raises(ConfigError, match=said):
            await two.app.add_agent("gamma", desk("gamma"), naming=naming)
        with pytest.raises(ConfigError, match="a tenant of this name leads to alpha"):
            await two.app.add_agent("acme", desk("gamma"))


async def test_a_proxy_of_ours_tells_the_host_of_a_grpc_call() -> None:
    op = SendMessage(message=Message(message_id="m", role=Role.USER, parts=(Text("hi"),)))
    way = Way("gRPC 1.0", lambda uris: GrpcCaller("1.0", uris))
    headers = {"x-forwarded-host": "alpha.example"}
    for ranges, told in ((("127.0.0.0/8",), True), ((), False)):
        server = {"trusted_proxies": ranges, "grpc_url": "grpc.example:443"}
        async with serving(server=server, agents=HOSTS) as two, two.open_server("alpha") as running:
            heard = await way.ask(running, op, headers=headers)
            assert (heard.answer is not None) is told
