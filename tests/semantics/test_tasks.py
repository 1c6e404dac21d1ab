"""Contexts, references, metadata and transitions, in every binding."""

from __future__ import annotations

import asyncio

import pytest

from dragoman import Agent, Turn
from dragoman.core.errors import BadParams, TaskFinished, TaskNotFound, Unsupported
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.lifecycle import Fold
from dragoman.core.model import State, Task
from dragoman.core.operations import CancelTask, GetTask
from dragoman.core.peer import Context
from dragoman.testing import Client
from semantics.ways import WAYS, Way, said, served

ways = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
TRANSITIONS = "urn:dragoman:transitions:1"


def desk() -> Agent:
    agent = Agent("Desk")

    @agent.skill("trip")
    async def trip(turn: Turn) -> str:
        await turn.say("A trip, then.")
        city = await turn.ask("Which city?")
        return f"to {city}"

    @agent.skill("refer")
    async def refer(turn: Turn) -> dict[str, object]:
        found = await turn.referenced()
        return {"said": list(turn.references), "found": [task.text for task in found]}

    @agent.skill("echo", default=True)
    async def echo(turn: Turn) -> str:
        return turn.text

    return agent


@ways
async def test_the_context_is_inferred_from_the_task(way: Way) -> None:
    async with served(desk()) as server:
        op = said("go", noted={"skillId": "trip"}, wait=True)
        task = (await way.ask(server, op)).answer
        assert task.context_id
        wrong = await way.ask(server, said("Oslo", task=task.id, context="elsewhere"))
        if way.name != "JSON-RPC 0.1":  # there a session may not be named again
            assert type(wrong.error) is BadParams
        heard = await way.ask(server, said("Oslo", task=task.id, wait=True))
        assert heard.answer.context_id == task.context_id
        got = (await way.ask(server, GetTask(task_id=task.id, history_length=10))).answer
        assert got.context_id == task.context_id
        if way.name != "JSON-RPC 0.1":
            assert {m.context_id for m in got.history} == {task.context_id}
            assert {m.task_id for m in got.history} == {task.id}


@ways
async def test_a_context_that_the_caller_names_is_kept(way: Way) -> None:
    async with served(desk()) as server:
        heard = await way.ask(server, said("hi", context="c-4711", wait=True))
        assert heard.answer.context_id == "c-4711"


@ways
async def test_references_are_kept_and_can_be_read(way: Way) -> None:
    async with served(desk()) as server:
        first = (await way.ask(server, said("one", wait=True))).answer
        ids = (first.id, "no-such-task", first.id)
        op = said("two", references=ids, noted={"skillId": "refer"}, wait=True)
        second = (await way.ask(server, op)).answer
        (artifact,) = second.artifacts
        if way.name in ("JSON-RPC 0.1", "REST 0.3"):  # declared losses: no word for them
            assert artifact.parts[0].value == {"said": [], "found": []}
            return
        assert artifact.parts[0].value == {"said": list(ids), "found": ["one"]}
        got = (await way.ask(server, GetTask(task_id=second.id))).answer
        assert got.history[0].references == ids


async def test_references_to_tasks_of_others_are_not_read() -> None:
    agent = desk()
    async with Client(agent) as client:
        mine = await client.send("mine")
        client.context = Context(principal="bob")
        theirs = await client.send("theirs")
        op = said("x", references=(mine.id, theirs.id), noted={"skillId": "refer"})
        task = await client.engine.call(op, client.context)
        assert isinstance(task, Task)
        assert task.artifacts[0].parts[0].value["found"] == ["theirs"]  # type: ignore[union-attr]


@ways
async def test_metadata_is_kept(way: Way) -> None:
    async with served(desk()) as server:
        about = {"a": 1, "b": {"c": [True, None, "ü"]}}
        op = said("hi", noted={"m": about}, metadata={"r": about}, wait=True)
        task = (await way.ask(server, op)).answer
        got = (await way.ask(server, GetTask(task_id=task.id, history_length=5))).answer
        assert got.metadata is not None
        assert got.metadata["r"] == about
        assert got.history[0].metadata is not None
        assert got.history[0].metadata["m"] == about


@ways
async def test_transitions_are_told_to_who_asks(way: Way) -> None:
    async with served(desk()) as server:
        op = said("go", noted={"skillId": "trip"}, wait=True)
        task = (await way.ask(server, op)).answer
        await way.ask(server, said("Oslo", task=task.id, wait=True))
        await way.ask(server, GetTask(task_id=task.id))
        while (await way.ask(server, GetTask(task_id=task.id))).answer.state != State.COMPLETED:
            pass
        asked = GetTask(task_id=task.id)
        heard = await way.ask(server, asked, extensions=(TRANSITIONS,))
        assert heard.active == TRANSITIONS
        told = heard.answer.metadata[TRANSITIONS]
        assert [each["state"] for each in told] == [
            "submitted",
            "working",
            "input-required",
            "working",
            "completed",
        ]
        assert [int(each["seq"]) for each in told] == sorted({int(e["seq"]) for e in told})
        assert all(each["at"].endswith("Z") for each in told)
        plain = (await way.ask(server, asked)).answer
        assert TRANSITIONS not in (plain.metadata or {})


async def test_transitions_come_with_send_and_cancel() -> None:
    context = Context(extensions=(TRANSITIONS,))
    async with Client(desk(), context=context) as client:
        task = await client.send("go", skill="trip")
        assert task.metadata is not None
        assert [e["state"] for e in task.metadata[TRANSITIONS]][-1] == "input-required"
        task = await client.cancel(task.id)
        assert task.metadata is not None
        assert [e["state"] for e in task.metadata[TRANSITIONS]][-1] == "canceled"
        assert task.metadata[TRANSITIONS][0]["seq"] == 1


async def test_the_card_of_0_3_says_that_transitions_are_kept() -> None:
    async with served(desk()) as server:
        path = "/.well-known/agent-card.json"
        old = (await server.client.get(path)).json()["capabilities"]
        assert old["stateTransitionHistory"] is True
        new = (await server.client.get(path, headers={"a2a-version": "1.0"})).json()
        assert "stateTransitionHistory" not in new["capabilities"]
        older = (await server.client.get("/.well-known/agent.json")).json()["capabilities"]
        assert older["stateTransitionHistory"] is True


@ways
async def test_a_finished_task_takes_no_more(way: Way) -> None:
    async with served(desk()) as server:
        task = (await way.ask(server, said("hi", wait=True))).answer
        while (await way.ask(server, GetTask(task_id=task.id))).answer.state != State.COMPLETED:
            pass
        more = await way.ask(server, said("more", task=task.id))
        assert isinstance(more.error, TaskFinished | Unsupported)
        assert (await way.ask(server, CancelTask(task_id="none"))).error is not None
        unknown = await way.ask(server, said("more", task="none"))
        if way.name != "JSON-RPC 0.1":  # there callers make the ids
            assert type(unknown.error) is TaskNotFound


@ways
async def test_history_is_as_long_as_asked(way: Way) -> None:
    if way.name in ("gRPC 0.3", "JSON-RPC 0.1"):
        lengths = {None: 0 if way.name.endswith("0.1") else 1, 1: 1}  # 0 is not said, or is absent
    else:
        lengths = {None: 1, 0: 0, 1: 1, 9: 1}
    async with served(desk()) as server:
        for length, found in lengths.items():
            sent = (await way.ask(server, said("hi", history_length=length, wait=True))).answer
            assert len(sent.history) == found
            got = await way.ask(server, GetTask(task_id=sent.id, history_length=length))
            assert len(got.answer.history) == found
            op = said("hi", history_length=length)
            first = (await way.ask(server, op, stream=True)).entries[0]
            assert isinstance(first, Stamped)
            if isinstance(first.event, Snapshot):  # 0.1 tells no tasks in streams
                assert len(first.event.task.history) == found


@ways
async def test_history_of_a_task_that_is_continued_in_a_stream(way: Way) -> None:
    async with served(desk()) as server:
        op = said("go", noted={"skillId": "trip"}, wait=True)
        task = (await way.ask(server, op)).answer
        more = said("Oslo", task=task.id, history_length=1)
        heard = await way.ask(server, more, stream=True)
        first = heard.entries[0]
        assert isinstance(first, Stamped)
        if isinstance(first.event, Snapshot):
            assert len(first.event.task.history) == 1


@ways
async def test_a_streamed_answer_does_not_begin_with_the_old_question(way: Way) -> None:
    async with served(desk()) as server:
        op = said("go", noted={"skillId": "trip"}, wait=True)
        task = (await way.ask(server, op)).answer
        assert task.state is State.INPUT_REQUIRED
        heard = await way.ask(server, said("Oslo", task=task.id), stream=True)
        fold = Fold(task.id, task.context_id)
        states = []
        for entry in heard.entries:
            assert isinstance(entry, Stamped)
            fold.add(entry)
            states.append(fold.state)
        assert states[0] is State.WORKING
        assert State.INPUT_REQUIRED not in states
        assert states[-1] is State.COMPLETED
        assert fold.task().text == "to Oslo"


@ways
async def test_who_does_not_wait_has_the_task_at_once(way: Way) -> None:
    agent, go = Agent("Slow"), asyncio.Event()

    @agent.skill("slow")
    async def slow(turn: Turn) -> str:
        await go.wait()
        return "done"

    async with served(agent) as server:
        if way.name != "JSON-RPC 0.1":  # there every send waits
            task = (await way.ask(server, said("hi", wait=False))).answer
            assert task.state in (State.SUBMITTED, State.WORKING)
        go.set()
        task = (await way.ask(server, said("hi", wait=True))).answer
        assert (task.state, task.text) == (State.COMPLETED, "done")
