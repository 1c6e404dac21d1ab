"""A server with several agents: each is at its own mount point, in every dialect, over one store,
and what belongs to one does not exist for another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman import Agent
from dragoman.app import create_app
from dragoman.client import connect
from dragoman.core.errors import ConfigError, TaskNotFound
from dragoman.core.model import Hook, Message, Role, State, Text
from dragoman.core.operations import (
    CancelTask,
    GetTask,
    ListHooks,
    ListTasks,
    SendMessage,
    SetHook,
    Watch,
)
from dragoman.settings import Server, Settings
from semantics.ways import WAYS
from server.two_agents import TwoAgents, desk, serving

NAMES = ("alpha", "beta")
HOOK = "http://127.0.0.1:9/x"


@pytest.fixture
async def two() -> AsyncIterator[TwoAgents]:
    async with serving() as found:
        yield found


def say(text: str, *, wait: bool = True, **about: Any) -> SendMessage:
    message = Message(message_id="m", role=Role.USER, parts=(Text(text),), **about)
    return SendMessage(message=message, wait=wait)


def told_to(name: str, **headers: str) -> dict[str, str]:
    """What names the agent over gRPC; over HTTP its address does."""
    return {"dragoman-agent": name, **headers}


@pytest.mark.parametrize("way", WAYS)
async def test_each_agent_answers_at_its_own_address(two: TwoAgents, way: str) -> None:
    for name in NAMES:
        async with two.open_server(name) as running:
            heard = await WAYS[way].ask(running, say("hello"), headers=told_to(name))
            assert heard.error is None
            assert heard.answer.text == f"{name} hello"


@pytest.mark.parametrize("way", WAYS)
async def test_the_task_of_one_agent_does_not_exist_for_the_other(two: TwoAgents, way: str) -> None:
    ask = WAYS[way].ask
    async with two.open_server("alpha") as alpha, two.open_server("beta") as beta:
        task = (await ask(alpha, say("ask"), headers=told_to("alpha"))).answer
        for op, stream in (
            (GetTask(task_id=task.id), False),
            (CancelTask(task_id=task.id), False),
            (Watch(task_id=task.id), True),
            (SetHook(Hook(hook_id="h", task_id=task.id, url=HOOK)), False),
            (say("more", task_id=task.id), False),
        ):
            heard = await ask(beta, op, stream=stream, headers=told_to("beta"))
            if way == "JSON-RPC 0.1" and isinstance(op, SendMessage):
                # There the caller names its tasks: this is one of beta's, of the same name.
                assert heard.answer.text == "beta more"
            elif not heard.unasked:
                assert isinstance(heard.error, TaskNotFound), op
        heard = await ask(alpha, GetTask(task_id=task.id), headers=told_to("alpha"))
        assert heard.answer.state is State.INPUT_REQUIRED


@pytest.mark.parametrize("way", WAYS)
async def test_lists_keys_contexts_and_webhooks_are_of_one_agent(two: TwoAgents, way: str) -> None:
    ask = WAYS[way].ask
    found = {}
    for name in NAMES:
        async with two.open_server(name) as running:
            keyed = told_to(name, **{"idempotency-key": "k"})
            first = await ask(running, say("one", context_id="c"), headers=keyed)
            again = await ask(running, say("one", context_id="c"), headers=keyed)
            assert again.answer.id == first.answer.id  # the key of this agent, not of the other
            assert first.answer.text == f"{name} one"
            found[name] = first.answer.id
            if way != "JSON-RPC 0.1":  # where a name is that of one task
                past = await ask(running, say("past", context_id="c"), headers=told_to(name))
                assert past.answer.text.count(" one") == 0
                assert past.answer.text.count("one") == 1
            set_ = SetHook(Hook(hook_id="h", task_id=first.answer.id, url=HOOK))
            if not (await ask(running, set_, headers=told_to(name))).unasked:
                listed = await ask(
                    running, ListHooks(task_id=first.answer.id), headers=told_to(name)
                )
                assert listed.unasked or len(listed.answer.hooks) == 1
    if way == "JSON-RPC 0.1":  # which has no list, and the caller chose the same name twice
        return
    for name in NAMES:
        async with two.open_server(name) as running:
            heard = await ask(running, ListTasks(), headers=told_to(name))
            if not heard.unasked:
                assert {task.id for task in heard.answer.tasks} >= {found[name]}
                other = next(each for each in NAMES if each != name)
                assert found[other] not in {task.id for task in heard.answer.tasks}


@pytest.mark.parametrize(
    "dialect",
    ["a2a-1.0", "a2a-1.0-rest", "a2a-1.0-grpc", "a2a-0.3", "a2a-0.3-rest", "a2a-0.1", "a2a-go"],
)
async def test_our_client_follows_the_card_to_the_agent(two: TwoAgents, dialect: str) -> None:
    for name in NAMES:
        where = f"{two.url}/agents/{name}"
        async with connect(where, dialect=dialect, allow_private=True) as agent:
            assert (await agent.send("hello")).text == f"{name} hello"


@pytest.mark.parametrize("scheme", ["iat+http", "iat+ws"])
async def test_iat_is_spoken_below_the_mount_point(scheme: str) -> None:
    async with serving(server={"insecure": True}) as two:
        for name in NAMES:
            where = f"{two.url}/agents/{name}".replace("http://", f"{scheme}://")
            async with connect(where, allow_private=True) as agent:
                assert (await agent.send("hello")).text == f"{name} hello"


async def test_the_card_names_addresses_below_the_mount_point(two: TwoAgents) -> None:
    base = f"{two.url}/agents/beta"
    async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
        assert card["description"] == "Says beta."
        assert card["url"] == f"{base}/"
        urls = {
            (each["protocolBinding"], each["protocolVersion"]): (each["url"], each.get("tenant"))
            for each in card["supportedInterfaces"]
        }
        assert urls["JSONRPC", "1.0"] == (f"{base}/", None)
        assert urls["HTTP+JSON", "0.3"] == (base, None)  # clients append to it
        assert (await client.get(f"{card['url']}/v1/tasks/nobody")).json()["code"] == -32001
        assert urls["GRPC", "1.0"] == (f"127.0.0.1:{two.app.ports['grpc']}", "beta")
        assert ("GRPC", "0.3") not in urls  # it has no word for the agent
        (ours,) = [
            each
            for each in card["capabilities"]["extensions"]
            if each["uri"] == "urn:dragoman:dialects:1"
        ]
        assert {each["url"] for each in ours["params"]["addresses"]} == {
            f"{base}/",
            f"{base}/a2a-go",
            f"{base}/iat",
            f"{base}/iat/ws",
        }
        go = (await client.get("/a2a-go/.well-known/agent.json")).json()
        assert go["url"] == f"{base}/a2a-go"
        assert (await client.get("/manifest")).json()["agent_id"] == "beta"


async def test_the_extended_card_is_at_the_mount_point() -> None:
    async with serving() as two, httpx2.AsyncClient(timeout=60) as client:
        for path in ("/extendedAgentCard", "/v1/card", "/agent/authenticatedExtendedCard"):
            reply = await client.get(f"{two.url}/agents/alpha{path}")
            assert reply.status_code in (400, 404), path
            assert b"not_found" not in reply.content  # the dialect refuses, not the router


async def test_what_is_not_there_is_not_found(two: TwoAgents) -> None:
    async with httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
        for path in ("/agents/nobody", "/agents/nobody/tasks/1", "/agents/alpha/nothing", "/x"):
            reply = await client.get(path)
            assert reply.status_code == 404
            assert reply.json() == {"error": "not_found", "path": path}
        assert (await client.get("/.well-known/agent-card.json")).status_code == 404
        assert (await client.post("/", json={})).status_code == 404


async def test_ids_are_read_as_they_were_sent(two: TwoAgents) -> None:
    async with httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
        for name in ("alpha", "%61lpha"):
            reply = await client.get(f"/agents/{name}/tasks/a%2Fb")
            assert reply.status_code == 404
            assert "a/b" in reply.text


async def test_agents_are_no_tenants() -> None:
    async with serving({"": desk("only")}) as one, httpx2.AsyncClient(timeout=60) as client:
        for path in ("/agents/tasks", "/agents/alpha/tasks", "/mcp/tasks", "/files/tasks"):
            assert (await client.get(one.url + path)).json()["error"] == "not_found", path


# The list


async def test_the_agents_are_listed(two: TwoAgents) -> None:
    async with httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
        listed = (await client.get("/agents")).json()
        assert [each["name"] for each in listed["agents"]] == ["alpha", "beta"]
        assert listed["agents"][0] == {
            "name": "alpha",
            "title": "Desk",
            "description": "Says alpha.",
            "version": desk("x").version,
            "url": f"{two.url}/agents/alpha/",
            "cardUrl": f"{two.url}/agents/alpha/.well-known/agent-card.json",
        }
        assert "nextPageToken" not in listed
        card = await client.get(listed["agents"][1]["cardUrl"])
        assert card.json()["description"] == "Says beta."
        first = (await client.get("/agents?pageSize=1")).json()
        assert first["nextPageToken"] == "alpha"
        rest = (await client.get("/agents?pageSize=1&pageToken=alpha")).json()
        assert [each["name"] for each in rest["agents"]] == ["beta"]
        assert "nextPageToken" not in rest
        for wrong in ("0", "-1", "x", "9" * 30):
            assert (await client.get(f"/agents?pageSize={wrong}")).status_code == 400
        assert (await client.post("/agents")).status_code == 405


async def test_the_only_agent_is_at_the_root_and_not_listed() -> None:
    async with serving({"alpha": desk("only")}) as one, httpx2.AsyncClient(timeout=60) as client:
        card = (await client.get(f"{one.url}/.well-known/agent-card.json")).json()
        assert card["url"] == one.url
        assert (await client.get(f"{one.url}/agents")).status_code == 404
        assert one.app.mounts["alpha"].peer.name == "alpha"  # type: ignore[attr-defined]


# Names


def memory() -> Settings:
    return Settings(server=Server(store="memory:"))


def test_a_name_is_made_of_what_the_agent_calls_itself() -> None:
    first, second = desk("a"), desk("b")
    first.name, second.name = "Café & Bar (2nd)", "x" * 80
    assert list(create_app([first, second], memory()).mounts) == ["cafe-bar-2nd", "x" * 63]


def test_two_agents_of_one_name_stop_the_start() -> None:
    with pytest.raises(ConfigError, match=r"/agents/desk.*NAME=file\.py"):
        create_app([desk("a"), desk("b")], memory())


def test_a_name_that_cannot_stand_in_an_address_stops_the_start() -> None:
    chinese, other = desk("a"), desk("b")
    chinese.name = "天气"
    with pytest.raises(ConfigError, match=r"'天气' needs a name.*a-z, 0-9"):
        create_app([chinese, other], memory())
    assert list(create_app({"weather": chinese, "b": other}, memory()).mounts) == ["weather", "b"]
    for wrong in ("Alpha", "a b", "a/b", "", "-", "x" * 64, "ä"):
        with pytest.raises(ConfigError, match="cannot be the name of an agent"):
            create_app({wrong: desk("a"), "other": desk("b")}, memory())


def test_a_list_of_one_is_served_at_the_root() -> None:
    app = create_app([desk("a")], memory())
    assert app.mounts[""].mount_point.path == ""


def test_no_agent_at_all_stops_the_start() -> None:
    nobody: list[Agent] = []
    with pytest.raises(ConfigError, match="no agent"):
        create_app(nobody, memory())


def test_one_iat_name_for_several_agents_stops_the_start() -> None:
    from dragoman.settings import Iat

    settings = Settings(server=Server(store="memory:"), iat=Iat(agent_id="x"))
    with pytest.raises(ConfigError, match=r"iat\.agent_id"):
        create_app([desk("a"), Agent("Other")], settings)


# Restart


async def test_after_a_restart_each_agent_finds_its_own_tasks(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    ask = WAYS["JSON-RPC 1.0"].ask
    asked = {}
    async with serving(store=store) as two:
        for name in NAMES:
            async with two.open_server(name) as running:
                asked[name] = (await ask(running, say("ask"))).answer
                assert asked[name].state is State.INPUT_REQUIRED
    async with serving(store=store) as two:
        for name in NAMES:
            async with two.open_server(name) as running:
                other = asked["beta" if name == "alpha" else "alpha"]
                lost = await ask(running, say("Ann", task_id=other.id))
                assert isinstance(lost.error, TaskNotFound)
                found = (await ask(running, say("Ann", task_id=asked[name].id))).answer
                assert found.text == f"{name} Ann"
