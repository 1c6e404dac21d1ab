"""Several agents on one gRPC port: by the tenant on the card, or by metadata (ADR 0015)."""

from __future__ import annotations

from typing import Any

import grpc
import httpx2
import pytest

from counts import count
from dragoman.client import connect
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import BadParams, Forbidden, TaskNotFound, TooMany, Unauthenticated
from dragoman.core.model import Message, Role, Text
from dragoman.core.operations import GetTask, SendMessage
from dragoman.dialects.a2a.grpc.caller import GrpcCaller
from dragoman.security.authentication import Authenticator
from dragoman.settings import Rates
from semantics.ways import Way
from server.two_agents import desk, serving


def named(tenant: str) -> Way:
    """A plain client of 1.0 that names this tenant, as its card says."""
    return Way("gRPC 1.0", lambda uris: GrpcCaller("1.0", uris, tenant))


def say(text: str) -> SendMessage:
    return SendMessage(message=Message(message_id="m", role=Role.USER, parts=(Text(text),)))


async def test_the_tenant_on_the_card_leads_to_the_agent() -> None:
    async with serving() as two, two.open_server("alpha") as running:
        for name in ("alpha", "beta"):
            heard = await named(name).ask(running, say("hi"))
            assert heard.answer.text == f"{name} hi"
            streamed = await named(name).ask(running, say("hi"), stream=True)
            assert streamed.error is None
            assert streamed.entries
            metrics = two.app.mounts[name].server.metrics
            assert metrics.events == len(streamed.entries)
        lost = await named("beta").ask(
            running, GetTask(task_id=(await named("alpha").ask(running, say("hi"))).answer.id)
        )
        assert isinstance(lost.error, TaskNotFound)


@pytest.mark.parametrize("dialect", ["a2a-1.0-grpc", "a2a-0.3-grpc"])
async def test_the_path_of_an_address_that_is_typed_names_the_agent(dialect: str) -> None:
    async with serving() as two:
        for name in ("alpha", "beta"):
            where = f"a2a+grpc://127.0.0.1:{two.app.ports['grpc']}/agents/{name}"
            async with connect(where, dialect=dialect) as agent:
                assert (await agent.send("hi")).text == f"{name} hi"


async def test_a_call_that_names_no_agent_is_told_how_to() -> None:
    async with serving() as two, two.open_server("alpha") as running:
        for way, headers in (
            (named(""), {}),
            (named(""), {"dragoman-agent": "nobody"}),
            (named(""), {"dragoman-agent": ""}),
            (Way("gRPC 0.3", lambda uris: GrpcCaller("0.3", uris)), {}),
        ):
            for stream in (False, True):
                heard = await way.ask(running, say("hi"), headers=headers, stream=stream)
                assert isinstance(heard.error, BadParams)
                assert "dragoman-agent" in heard.error.message
        heard = await named("nobody").ask(running, say("hi"))
        assert isinstance(heard.error, Forbidden)
        channel = running.channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await channel(b"\xff\xff", timeout=60)
        assert broken.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_with_metadata_the_tenant_is_a_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_ANN", "ann-token-of-sixteen")
    known = Known(secret=Secret(env="T_ANN"), tenants=("acme", "beta"))
    auth = {"all": Tokens(callers={"ann": known})}
    async with serving(auth=auth) as two, two.open_server("alpha") as running:
        ann = {"authorization": "Bearer ann-token-of-sixteen", "dragoman-agent": "alpha"}
        in_beta = await named("beta").ask(running, say("hi"), headers=ann)
        assert in_beta.answer.text == "alpha hi"
        lost = await named("acme").ask(running, GetTask(task_id=in_beta.answer.id), headers=ann)
        assert isinstance(lost.error, TaskNotFound)
        assert isinstance((await named("alpha").ask(running, say("hi"))).error, Unauthenticated)


async def test_each_agent_asks_for_its_own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_BOB", "bob-token-of-sixteen")
    bob = Tokens(callers={"bob": Known(secret=Secret(env="T_BOB"))})
    agents = {"alpha": desk("alpha"), "beta": desk("beta", auth={"own": bob})}
    async with serving(agents) as two, two.open_server("alpha") as running:
        assert (await named("alpha").ask(running, say("hi"))).error is None
        assert isinstance((await named("beta").ask(running, say("hi"))).error, Unauthenticated)
        shown = {"authorization": "Bearer bob-token-of-sixteen"}
        assert (await named("beta").ask(running, say("hi"), headers=shown)).error is None


async def test_a_call_by_tenant_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_ANN", "ann-token-of-sixteen")
    auth = {"all": Tokens(callers={"ann": Known(secret=Secret(env="T_ANN"))})}
    ann = {"authorization": "Bearer ann-token-of-sixteen"}
    async with (
        serving(auth=auth, rates=Rates(calls_per_minute=4)) as two,
        two.open_server("alpha") as running,
    ):
        for name in ("alpha", "beta") * 2:
            assert (await named(name).ask(running, say("hi"), headers=ann)).error is None
        heard = [
            (await named(name).ask(running, say("hi"), headers=ann)).error
            for name in ("alpha", "beta") * 2
        ]
        assert isinstance(heard[-1], TooMany)


MANY = count(100, 200, 1000)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Authenticator]:
    """The authenticators that were asked whether they know a caller."""
    seen: list[Authenticator] = []
    recognizes = Authenticator.recognizes

    async def noted(self: Authenticator, *shown: Any) -> bool:
        seen.append(self)
        return await recognizes(self, *shown)

    monkeypatch.setattr(Authenticator, "recognizes", noted)
    return seen


@pytest.mark.slow
async def test_many_agents_with_the_same_schemes_are_asked_once(
    monkeypatch: pytest.MonkeyPatch, asked: list[Authenticator]
) -> None:
    monkeypatch.setenv("T_ANN", "ann-token-of-sixteen")
    monkeypatch.setenv("T_BOB", "bob-token-of-sixteen")
    ann, bob = (
        Tokens(callers={n: Known(secret=Secret(env=f"T_{n.upper()}"))}) for n in ("ann", "bob")
    )
    agents = {f"a{n}": desk(f"a{n}") for n in range(MANY)}
    agents["last"] = desk("last", auth={"own": bob})
    async with serving(agents, auth={"all": ann}) as two, two.open_server("a1") as running:
        for headers, name, error, times in (
            ({}, "a1", Unauthenticated, 2),
            ({"authorization": "Bearer of-nobody-at-all"}, "a1", Unauthenticated, 2),
            ({"authorization": "Bearer ann-token-of-sixteen"}, f"a{MANY - 1}", None, 1),
            ({"authorization": "Bearer bob-token-of-sixteen"}, "last", None, 2),
            ({"authorization": "Bearer bob-token-of-sixteen"}, "a7", Unauthenticated, 2),
        ):
            asked.clear()
            heard = await named(name).ask(running, say("hi"), headers=headers)
            assert (type(heard.error) if heard.error else None, len(asked)) == (error, times)
            asked.clear()
            # Metadata that name the agent leave nothing to find out.
            await named("").ask(running, say("hi"), headers={**headers, "dragoman-agent": name})
            assert not asked


@pytest.mark.slow
async def test_one_agent_for_everyone_spares_asking_all_others(
    monkeypatch: pytest.MonkeyPatch, asked: list[Authenticator]
) -> None:
    agents = {}
    for n in range(MANY):
        monkeypatch.setenv(f"T_{n}", f"token-of-sixteen-{n}")
        own = Tokens(callers={"it": Known(secret=Secret(env=f"T_{n}"))})
        agents[f"a{n}"] = desk(f"a{n}", auth={"own": own})
    async with serving(agents) as two, two.open_server("a1") as running:
        last = {"authorization": f"Bearer token-of-sixteen-{MANY - 1}"}
        heard = await named(f"a{MANY - 1}").ask(running, say("hi"), headers=last)
        assert heard.error is None
        assert len(asked) == MANY
        heard = await named("a1").ask(running, say("hi"))
        assert isinstance(heard.error, Unauthenticated)
    async with serving({**agents, "open": desk("open")}) as two, two.open_server("a1") as running:
        asked.clear()
        assert (await named("open").ask(running, say("hi"))).error is None
        assert isinstance((await named("a1").ask(running, say("hi"))).error, Unauthenticated)
        assert not asked


async def test_the_only_agent_has_no_tenant_on_its_card() -> None:
    async with serving({"alpha": desk("only")}) as one, httpx2.AsyncClient(timeout=60) as client:
        card = (await client.get(f"{one.url}/.well-known/agent-card.json")).json()
        listed = [e for e in card["supportedInterfaces"] if e["protocolBinding"] == "GRPC"]
        assert {e["protocolVersion"] for e in listed} == {"1.0", "0.3"}
        assert not any("tenant" in each for each in listed)
        async with connect(one.url, dialect="a2a-1.0-grpc", allow_private=True) as agent:
            assert (await agent.send("hi")).text == "only hi"
