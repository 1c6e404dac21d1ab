"""`connect("lite+loopback://...")`: an agent in a room is called like any other."""

from __future__ import annotations

import pytest

from dragoman import State, Task
from dragoman.client import connect
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.model import Blob
from lite.room import ROOM, living, member, new_hub
from waiting import until


def address(hub: str, **more: str) -> str:
    query = "".join(f"&{key}={value}" for key, value in more.items())
    return f"lite+loopback://caller@{hub}/{ROOM}?shared=false{query}"


async def test_an_agent_in_a_room_is_called() -> None:
    async with living() as hub, connect(address(hub)) as agent:
        assert agent.card.name == "Desk"
        assert agent.dialect == "lite"
        task = await agent.send("hello")
        assert isinstance(task, Task)
        assert (task.state, task.text) == (State.COMPLETED, "HELLO")


async def test_the_agent_is_chosen_by_its_name() -> None:
    hub = new_hub()
    async with living(hub=hub), member(hub, "bob"), connect(address(hub, agent="desk")) as agent:
        task = await agent.send("who")
        assert task.text == "lite:here:caller"


async def test_a_question_is_answered_and_a_file_is_sent() -> None:
    async with living() as hub, connect(address(hub)) as agent:
        task = await agent.send("ask")
        assert isinstance(task, Task)
        assert task.state is State.INPUT_REQUIRED
        done = await agent.send("Kyoto", task=task.id)
        assert done.text == "You said Kyoto."
        file = Blob(b"hello", filename="a.txt", media_type="text/plain")
        made = await agent.send("files", file)
        assert isinstance(made, Task)
        parts = [part for each in made.artifacts for part in each.parts]
        assert [part.content for part in parts if isinstance(part, Blob)] == [b"HELLO"]


async def test_the_stream_of_an_answer_begins_after_the_question() -> None:
    async with living() as hub, connect(address(hub)) as agent:
        task = await agent.send("ask")
        assert isinstance(task, Task)
        told = [each async for each in agent.stream("Kyoto", task=task.id)]
        states = [
            each.event.state
            for each in told
            if isinstance(each, Stamped) and isinstance(each.event, StateChanged)
        ]
        assert State.INPUT_REQUIRED not in states
        assert states[-1] is State.COMPLETED


async def test_a_task_is_canceled() -> None:
    async with living() as hub, connect(address(hub)) as agent:
        task = await agent.send("wait", wait=False)
        assert isinstance(task, Task)

        async def works() -> bool:
            return (await agent.get(task.id)).state is State.WORKING

        await until(works)
        canceled = await agent.cancel(task.id)
        assert canceled is not None
        assert canceled.state is State.CANCELED


async def test_an_agent_that_is_not_there_cannot_be_reached() -> None:
    with pytest.raises(PeerUnreachable, match="kiln did not introduce itself"):
        async with connect(address(new_hub(), agent="kiln"), timeout=0.5):
            pass


async def test_an_unknown_field_of_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no colour"):
        async with connect(address(new_hub(), colour="red")):
            pass


async def test_an_address_without_a_room_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="names no room"):
        async with connect("lite+loopback://hub"):
            raise AssertionError("nobody is there")
