"""Agents that dial in over XiaoYi links are agents of the gateway, in every dialect."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from dragoman import State, Task
from dragoman.client import connect
from dragoman.core.errors import DragomanError, PeerUnreachable
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.server.services.links import LinkService
from server.two_agents import desk, serving
from waiting import forever, until
from xiaoyi.links import AGENT, Gateway, StandIn, dialled_in, echo, gateway

ASKED = "resubscribe"


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-rest", "a2a-0.3", "a2a-0.1"])
async def test_an_agent_that_dialled_in_is_called_in_every_dialect(dialect: str) -> None:
    async with (
        asyncio.timeout(240),
        gateway() as door,
        dialled_in(door),
        connect(f"{door.url}/agents/{AGENT}", dialect=dialect) as agent,
    ):
        task = await agent.send("hello")
        assert isinstance(task, Task)
        assert (task.state, task.text) == (State.COMPLETED, "hello!")


async def test_an_answer_is_streamed_piece_by_piece() -> None:
    gate = asyncio.Event()

    async def slowly(agent: StandIn, request: dict[str, Any]) -> None:
        await agent.text(request, "one ")
        await gate.wait()
        await agent.text(request, "two", append=True)
        await agent.text(request, "one two", final=True)

    async with (
        asyncio.timeout(240),
        gateway() as door,
        dialled_in(door, slowly),
        connect(f"{door.url}/agents/{AGENT}") as agent,
    ):
        pieces = []
        async for event in agent.stream("go"):
            if isinstance(event, Stamped) and isinstance(event.event, ArtifactChunk):
                pieces.append(event.event.artifact.text)
                gate.set()
        assert pieces == ["one ", "two"]


async def test_a_request_names_session_and_task_in_every_place() -> None:
    async with asyncio.timeout(240), gateway() as door, dialled_in(door) as stand_in:
        async with connect(f"{door.url}/agents/{AGENT}") as agent:
            first = await agent.send("one")
            await agent.send("two", context_id=first.context_id)
        one, two = stand_in.requests
        assert one["sessionId"] == one["params"]["sessionId"] == two["sessionId"]
        assert one["taskId"] == one["params"]["id"] != two["taskId"]
        assert one["agentId"] == AGENT
        assert isinstance(one["id"], str)
        assert one["deviceId"]
        assert one["conversationId"]
        assert one["params"]["agentLoginSessionId"]


async def test_a_question_is_answered_by_the_next_message_of_the_session() -> None:
    async def asks(agent: StandIn, request: dict[str, Any]) -> None:
        said = request["params"]["message"]["parts"][0]["text"]
        if said == "book":
            await agent.status(request, "input-required", "Which city?", final=True)
        else:
            await agent.text(request, f"booked {said}", final=True)

    async with asyncio.timeout(240), gateway() as door, dialled_in(door, asks) as stand_in:
        async with connect(f"{door.url}/agents/{AGENT}") as agent:
            task = await agent.send("book")
            assert task.state is State.INPUT_REQUIRED
            task = await agent.send("Kyoto", task=task)
            assert (task.state, task.text) == (State.COMPLETED, "booked Kyoto")
        one, two = stand_in.requests
        assert one["sessionId"] == two["sessionId"]


async def test_cancel_reaches_the_agent() -> None:
    started = asyncio.Event()

    async def long(agent: StandIn, request: dict[str, Any]) -> None:
        await agent.text(request, "begun")
        started.set()
        await forever()

    async with asyncio.timeout(240), gateway() as door, dialled_in(door, long) as stand_in:
        async with connect(f"{door.url}/agents/{AGENT}") as agent:
            task = await agent.send("go", wait=False)
            await started.wait()
            ended = await agent.cancel(task)
            assert ended.state is State.CANCELED
        await until(lambda: any(each["method"] == "tasks/cancel" for each in stand_in.requests))
        asked = next(each for each in stand_in.requests if each["method"] == "tasks/cancel")
        assert asked["taskId"] == stand_in.requests[0]["taskId"]
        assert asked["sessionId"] == stand_in.requests[0]["sessionId"]


async def test_a_context_is_cleared_for_its_own_caller() -> None:
    async with asyncio.timeout(240), gateway() as door, dialled_in(door) as stand_in:
        async with connect(f"{door.url}/agents/{AGENT}") as agent:
            task = await agent.send("hello")
            answer = await agent.invoke("xiaoyi.link/clearContext", contextId=task.context_id)
            assert answer == {"status": {"state": "cleared"}}
        sent, cleared = stand_in.requests
        assert cleared["method"] == "clearContext"
        assert cleared["sessionId"] == cleared["params"]["sessionId"] == sent["sessionId"]


@pytest.mark.slow  # takes several seconds
async def test_an_agent_that_left_is_listed_as_offline_and_calls_may_be_repeated() -> None:
    async with asyncio.timeout(240), gateway() as door:
        async with dialled_in(door):
            pass
        await door.appears(health="offline")
        async with connect(f"{door.url}/agents/{AGENT}") as agent:
            with pytest.raises(DragomanError) as failed:
                await agent.send("hello")
            assert isinstance(failed.value, PeerUnreachable) or "later" in failed.value.message
        async with dialled_in(door), connect(f"{door.url}/agents/{AGENT}") as agent:
            assert (await agent.send("back")).text == "back!"


async def test_an_agent_that_left_is_gone_after_a_while() -> None:
    async with asyncio.timeout(240), gateway(offline=0.2) as door:
        async with dialled_in(door):
            pass

        async def gone() -> bool:
            return AGENT not in await door.listed()

        await until(gone)


async def test_a_task_goes_on_over_the_next_link() -> None:
    requests: list[dict[str, Any]] = []

    async def begins(agent: StandIn, request: dict[str, Any]) -> None:
        requests.append(request)
        await agent.text(request, "half ")

    async with asyncio.timeout(240), gateway() as door, AsyncExitStack() as first:
        await first.enter_async_context(dialled_in(door, begins))
        agent = await first.enter_async_context(connect(f"{door.url}/agents/{AGENT}"))
        sending = asyncio.create_task(agent.send("go"))
        await until(lambda: requests)
        await first.enter_async_context(connect(f"{door.url}/agents/{AGENT}"))
        # The link breaks, and the agent dials again.
        link = next(iter(door.service.links.open.values()))
        link.hang_up()
        await until(lambda: not door.service.links.open)
        async with dialled_in(door, waits=False) as again:
            await again.text(requests[0], "and half", append=True)
            await again.text(requests[0], "half and half", final=True)
            task = await sending
            assert (task.state, task.text) == (State.COMPLETED, "half and half")


async def test_an_answer_may_come_over_the_other_link_and_counts_once() -> None:
    async with asyncio.timeout(240), gateway() as door, dialled_in(door) as one:

        async def crosswise(agent: StandIn, request: dict[str, Any]) -> None:
            await one.text(request, "a")
            for each in (one, agent):
                # Both links bring the same frame.
                result = {
                    "taskId": request["params"]["id"],
                    "kind": "artifact-update",
                    "append": True,
                    "final": False,
                    "artifact": {"artifactId": "a-1", "parts": [{"kind": "text", "text": "b"}]},
                }
                await each.respond(request, "same", result)
            await agent.status(request, "completed", final=True)

        async with dialled_in(door, crosswise) as other:
            await until(lambda: len(door.service.links.open) == 2)
            async with connect(f"{door.url}/agents/{AGENT}") as agent:
                assert (await agent.send("go")).text == "ab"
            assert len(one.requests) + len(other.requests) == 1


@pytest.mark.slow  # takes two seconds
async def test_a_task_that_is_only_told_to_be_completed_ends_without_its_last_piece() -> None:
    async def ends(agent: StandIn, request: dict[str, Any]) -> None:
        await agent.text(request, "all of it", append=True)
        await agent.status(request, "completed")

    async with (
        asyncio.timeout(240),
        gateway() as door,
        dialled_in(door, ends),
        connect(f"{door.url}/agents/{AGENT}") as agent,
    ):
        task = await agent.send("go")
        assert (task.state, task.text) == (State.COMPLETED, "all of it")


async def test_an_error_of_the_agent_fails_the_task() -> None:
    async def busy(agent: StandIn, request: dict[str, Any]) -> None:
        await agent.respond(request, "o-1", None, error={"code": "AGENT_BUSY", "message": "later"})

    async with (
        asyncio.timeout(240),
        gateway() as door,
        dialled_in(door, busy),
        connect(f"{door.url}/agents/{AGENT}") as agent,
    ):
        task = await agent.send("go")
        assert task.state is State.FAILED


async def test_a_task_without_an_end_fails_at_its_limit() -> None:
    async def silent(agent: StandIn, request: dict[str, Any]) -> None:
        await agent.status(request, "working")

    async with (
        asyncio.timeout(240),
        gateway(task_limit=0.5) as door,
        dialled_in(door, silent),
        connect(f"{door.url}/agents/{AGENT}") as agent,
    ):
        task = await agent.send("go")
        assert task.state is State.FAILED


async def test_two_agents_with_one_pair_of_keys_get_their_own_calls() -> None:
    async with (
        asyncio.timeout(240),
        gateway("ag-1", "ag-2") as door,
        dialled_in(door),
        dialled_in(door, echo, agent="ag-2") as second,
        connect(f"{door.url}/agents/ag-2") as agent,
    ):
        assert (await agent.send("hi")).text == "hi!"
        assert second.requests[0]["agentId"] == "ag-2"


@pytest.mark.slow  # takes several seconds
async def test_a_task_goes_on_when_the_server_was_started_again(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/links.db"
    requests: list[dict[str, Any]] = []

    async def begins(agent: StandIn, request: dict[str, Any]) -> None:
        requests.append(request)
        await agent.text(request, "half ")

    async with asyncio.timeout(240):
        async with (
            gateway(store=store) as door,
            dialled_in(door, begins),
            connect(f"{door.url}/agents/{AGENT}") as agent,
        ):
            task = await agent.send("go", wait=False)

            async def begun() -> bool:
                return (await agent.get(task)).text == "half "

            await until(begun)
        async with (
            gateway(store=store) as door,
            dialled_in(door, announces=ASKED) as again,
            connect(f"{door.url}/agents/{AGENT}") as agent,
        ):
            await until(lambda: again.requests)
            asked = again.requests[0]
            assert asked["method"] == "tasks/resubscribe"
            assert asked["taskId"] == requests[0]["taskId"]
            assert asked["sessionId"] == requests[0]["sessionId"]
            await again.text(requests[0], "half and half", final=True)

            async def ended() -> bool:
                return (await agent.get(task)).state is State.COMPLETED

            await until(ended)
            assert (await agent.get(task)).text == "half and half"
        assert len(requests) == 1


async def test_a_server_with_one_agent_lets_others_dial_in_beside_it(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/links.db"
    async with asyncio.timeout(240), serving({"": desk("hi")}, store=place) as running:
        key, secret = await running.app.service(LinkService).ring.add([AGENT, "desk"])
        door = Gateway(running, key.access_key, secret)
        async with dialled_in(door, waits=False), httpx2.AsyncClient() as http:
            card = f"{door.url}/agents/{AGENT}/.well-known/agent-card.json"

            async def served() -> bool:
                return (await http.get(card)).status_code == 200

            await until(served)
            async with connect(f"{door.url}/agents/{AGENT}") as agent:
                assert (await agent.send("hello")).text == "hello!"
            async with connect(door.url) as agent:
                assert (await agent.send("you")).text == "hi you"
        with pytest.raises(InvalidStatus):  # the name of the only agent
            async with dialled_in(door, agent="desk", waits=False):
                pass


async def test_agents_beside_a_single_agent_are_listed_and_on_its_grpc_port() -> None:
    async with asyncio.timeout(240), serving({"": desk("hi")}) as running:
        key, secret = await running.app.service(LinkService).ring.add([AGENT])
        door = Gateway(running, key.access_key, secret)
        grpc = f"a2a+grpc://127.0.0.1:{running.app.ports['grpc']}"
        async with httpx2.AsyncClient(timeout=60) as http:
            for path in ("/agents", "/.well-known/ai-catalog.json"):
                assert (await http.get(f"{door.url}{path}")).status_code == 404
            async with dialled_in(door):
                assert list(await door.listed()) == [AGENT]
                entry = (await http.get(f"{door.url}/agents/{AGENT}")).json()
                assert (entry["source"], entry["health"]) == ("link", "up")
                card = f"{door.url}/agents/{AGENT}/.well-known/agent-card.json"
                shown = (await http.get(card, headers={"A2A-Version": "1.0"})).json()
                assert any(
                    each["protocolBinding"] == "GRPC" and each.get("tenant") == AGENT
                    for each in shown["supportedInterfaces"]
                )
                for where, text in ((f"{grpc}/agents/{AGENT}", "you!"), (grpc, "hi you")):
                    async with connect(where, dialect="a2a-1.0-grpc") as agent:
                        assert (await agent.send("you")).text == text
            await door.appears(health="offline")
            async with connect(grpc, dialect="a2a-1.0-grpc") as agent:
                assert (await agent.send("you")).text == "hi you"


async def test_an_agent_that_dialled_in_is_up_and_offline_without_a_registry_too() -> None:
    async with asyncio.timeout(240), serving() as running:
        key, secret = await running.app.service(LinkService).ring.add([AGENT])
        door = Gateway(running, key.access_key, secret)
        async with dialled_in(door):
            listed = await door.listed()
            assert (listed[AGENT]["health"], listed[AGENT]["source"]) == ("up", "link")
            assert "health" not in listed["alpha"]
        await door.appears(health="offline")


async def test_a_task_goes_on_when_its_agent_was_away_for_long() -> None:
    requests: list[dict[str, Any]] = []

    async def begins(agent: StandIn, request: dict[str, Any]) -> None:
        requests.append(request)
        for piece in ("a", "b", "c", "d"):
            await agent.text(request, piece, append=True)

    async with asyncio.timeout(240), gateway(keep=0.1) as door:
        async with dialled_in(door, begins), connect(f"{door.url}/agents/{AGENT}") as agent:
            task = await agent.send("go", wait=False)

            async def begun() -> bool:
                return (await agent.get(task)).text == "abcd"

            await until(begun)
        await until(lambda: AGENT not in door.service.links.agents)
        async with dialled_in(door, announces=ASKED) as again:
            await until(lambda: again.requests)  # it is asked for the task
            await again.text(requests[0], "abcd!", final=True)
            async with connect(f"{door.url}/agents/{AGENT}") as agent:

                async def ended() -> bool:
                    return (await agent.get(task)).state is State.COMPLETED

                await until(ended)
                assert (await agent.get(task)).text == "abcd!"


async def silence(agent: StandIn, request: dict[str, Any]) -> None:
    """Like an agent that a request did not reach."""


async def test_a_message_that_was_lost_with_its_link_is_sent_again() -> None:
    async with asyncio.timeout(240), gateway() as door:
        async with dialled_in(door, silence) as lost:
            async with connect(f"{door.url}/agents/{AGENT}") as agent:
                task = await agent.send("go", wait=False)
            await until(lambda: lost.requests)
        async with (
            dialled_in(door, announces=ASKED) as again,
            connect(f"{door.url}/agents/{AGENT}") as agent,
        ):
            await until(lambda: again.requests)
            asked = again.requests[0]
            assert asked["method"] == "tasks/resubscribe"
            unknown = {"code": "TASK_NOT_FOUND", "message": "Task not found"}
            await again.respond(asked, asked["id"], None, error=unknown)

            async def ended() -> bool:
                return (await agent.get(task)).state is State.COMPLETED

            await until(ended)
            assert (await agent.get(task)).text == "go!"
            assert again.requests[1:] == lost.requests


async def test_an_agent_that_refuses_the_inquiry_gets_no_message_twice() -> None:
    async with asyncio.timeout(240), gateway() as door:
        async with dialled_in(door, silence) as first:
            async with connect(f"{door.url}/agents/{AGENT}") as agent:
                task = await agent.send("go", wait=False)
            await until(lambda: first.requests)
        async with (
            dialled_in(door, announces=ASKED) as again,
            connect(f"{door.url}/agents/{AGENT}") as agent,
        ):
            await until(lambda: again.requests)
            asked = again.requests[0]
            unknown = {"code": -32601, "message": "Method not found"}
            await again.respond(asked, asked["id"], None, error=unknown)
            await again.text(first.requests[0], "late", final=True)

            async def ended() -> bool:
                return (await agent.get(task)).state is State.COMPLETED

            await until(ended)
            assert (await agent.get(task)).text == "late"
            assert again.requests == [asked]
