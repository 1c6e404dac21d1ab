"""Everything one does with an agent, against our own server, in every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.our_server import NAMES, QUICK, OurServer, open_server
from dragoman import Blob, Data, Link, Message, State, Task, connect, sync
from dragoman.client import RemoteAgent
from dragoman.core.errors import BadParams, NotCancelable, PeerRefused, TaskNotFound, Unsupported
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.operations import GetTask, Watch
from dragoman.core.peer import ANYONE

OLD = ("a2a-0.1", "a2a-go")
IAT = ("iat", "iat-ws")


@pytest.fixture
async def served() -> AsyncIterator[OurServer]:
    async with open_server() as served:
        yield served


@pytest.fixture(params=NAMES)
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def agent(served: OurServer, dialect: str) -> AsyncIterator[RemoteAgent]:
    async with served.connect(dialect) as agent:
        assert agent.dialect == dialect
        yield agent


def task_of(answer: Task | Message) -> Task:
    assert isinstance(answer, Task)
    return answer


async def test_send_get_and_watch(agent: RemoteAgent) -> None:
    task = task_of(await agent.send("hello"))
    assert (task.text, task.state) == ("HELLO", State.COMPLETED)
    assert (await agent.get(task)).text == "HELLO"
    with pytest.raises(TaskNotFound):
        await agent.get("no-such-task")
    # A finished task has no stream where there is no cursor; the task is told all the same.
    last = [event async for event in agent.watch(task)][-1]
    assert isinstance(last, Stamped)


async def test_a_stream_and_its_task(agent: RemoteAgent) -> None:
    events = agent.stream("5", skill="story")
    told = [event async for event in events]
    assert isinstance(told[-1], Stamped)
    assert isinstance(told[-1].event, StateChanged)
    assert told[-1].event.state is State.COMPLETED
    assert events.task is not None
    assert events.task.text == (await agent.get(events.task)).text
    assert events.connections == 1


async def test_a_conversation_answers_questions(agent: RemoteAgent) -> None:
    talk = agent.conversation(skill="trip")
    first = task_of(await talk.send("go"))
    assert (first.state, talk.waits) == (State.INPUT_REQUIRED, True)
    second = task_of(await talk.send("Oslo"))
    assert (second.id, second.state) == (first.id, State.INPUT_REQUIRED)
    done = await agent.answer(second, True)
    assert done.text == "A trip to Oslo"


async def test_a_conversation_streams_and_goes_on(agent: RemoteAgent) -> None:
    talk = agent.conversation(skill="trip")
    first = [event async for event in talk.stream("go")]
    assert first
    assert talk.waits
    await talk.stream("Rome").result()
    task = talk.task
    assert task is not None
    assert task.state is State.INPUT_REQUIRED
    done = task_of(await talk.stream({"approved": False}).result())
    assert done.state in (State.REJECTED, State.FAILED)  # 0.1 has no word for the first
    again = task_of(await talk.send("go"))
    assert again.id != done.id


async def test_cancel(agent: RemoteAgent) -> None:
    if agent.dialect in OLD:  # they always wait for the answer
        events = agent.stream("x", skill="slow")
        await anext(events)
        assert events.task is not None
        task = events.task
        await events.aclose()
    else:
        task = task_of(await agent.send("x", skill="slow", wait=False))
    assert (await agent.cancel(task)).state is State.CANCELED
    with pytest.raises(NotCancelable) as caught:
        await agent.cancel(task)
    assert caught.value.code == (0 if agent.dialect in IAT else -32002)


async def test_list(agent: RemoteAgent) -> None:
    for word in "ab":
        await agent.send(word)
    if agent.dialect in OLD + IAT:
        with pytest.raises(Unsupported):
            await agent.list()
        return
    page = await agent.list(page_size=1)
    assert len(page.tasks) == 1
    if agent.dialect.startswith("a2a-1.0"):
        assert len([task async for task in agent.tasks(page_size=1)]) == 2


async def test_files_and_data(agent: RemoteAgent, tmp_path: Path) -> None:
    source = tmp_path / "in.bin"
    source.write_bytes(b"abc")
    task = task_of(await agent.send("files", source, {"a": 1}, skill="files"))
    (saved,) = await agent.save(task, tmp_path / "out")
    assert saved.parent == tmp_path / "out"
    assert saved.read_bytes() == b"cba"
    (second,) = await agent.save(task, tmp_path / "out")
    assert second != saved


async def test_skills_are_called_with_checked_arguments(agent: RemoteAgent) -> None:
    assert await agent.call("plan", city="Rome", days=2) == {"Rome": 2}
    with pytest.raises(BadParams, match="integer") as caught:
        await agent.call("plan", city="Rome", days="two")
    assert caught.value.public == {"field": "days"}
    with pytest.raises(BadParams, match="no skill"):
        await agent.call("fly")
    with pytest.raises(PeerRefused) as refused:
        await agent.call("trip")
    assert refused.value.public["state"] == "input-required"


async def test_methods_of_its_own(agent: RemoteAgent) -> None:
    if agent.dialect in OLD:
        pytest.skip("has no methods beside its own")
    assert await agent.invoke("desk.tools/add", a=1, b=2) == 3


async def test_a_direct_reply(agent: RemoteAgent) -> None:
    answer = await agent.ask("hi", skill="greet")
    if agent.dialect in OLD:
        assert isinstance(answer, Task)
        return
    assert isinstance(answer, Message)
    assert answer.text == "hello yourself"
    events = agent.stream("hi", skill="greet")
    assert (await events.result()).text == "hello yourself"
    assert events.reply is not None
    assert events.task is None


async def test_webhooks(agent: RemoteAgent) -> None:
    task = task_of(await agent.send("hello"))
    url = "http://127.0.0.1:9/hook"
    if agent.dialect in IAT:
        with pytest.raises(Unsupported):
            await agent.set_hook(task, url)
        return
    hook = await agent.set_hook(task, url, token="t", hook_id="h1")
    assert hook.url == url
    assert (await agent.get_hook(task, hook.hook_id)).url == url
    if agent.dialect not in OLD:
        assert [each.url for each in (await agent.list_hooks(task)).hooks] == [url]
        await agent.delete_hook(task, hook.hook_id)
        assert (await agent.list_hooks(task)).hooks == ()


async def test_it_is_a_peer(agent: RemoteAgent) -> None:
    task = task_of(await agent.send("hello"))
    assert (await agent.call(GetTask(task_id=task.id), ANYONE)).text == "HELLO"
    batches = [batch async for batch in agent.stream(Watch(task_id=task.id), ANYONE)]
    assert batches[-1].last


async def test_the_same_key_is_the_same_task(agent: RemoteAgent) -> None:
    if agent.dialect in OLD:
        pytest.skip("its tasks have names of the caller's instead")
    about = {"key": "k-1", "message_id": "m-1"}
    first = task_of(await agent.send("once", **about))
    again = task_of(await agent.send("once", **about))
    assert again.id == first.id


async def test_many_at_once(agent: RemoteAgent) -> None:
    answers = await asyncio.gather(*(agent.send(f"n{number}") for number in range(20)))
    assert sorted(answer.text for answer in answers) == sorted(f"N{n}" for n in range(20))


@pytest.mark.parametrize("dialect", ["a2a-1.0", *IAT])
async def test_a_cursor_goes_on_behind(agent: RemoteAgent) -> None:
    events = agent.stream("4", skill="story")
    seen = [event async for event in events]
    assert events.task is not None
    rest = [event async for event in agent.watch(events.task, cursor=3)]
    assert rest == seen[3:]


@pytest.mark.parametrize("dialect", ["a2a-1.0"])
async def test_what_cannot_be_sent_is_said(agent: RemoteAgent) -> None:
    with pytest.raises(BadParams, match="object"):
        await agent.send(object())
    with pytest.raises(TypeError, match="skil"):
        await agent.send("x", skil="typo")


@pytest.mark.parametrize("dialect", ["a2a-1.0"])
async def test_without_streams_the_task_is_looked_at(served: OurServer, dialect: str) -> None:
    from msgspec.structs import replace

    card = replace(served.card(), streaming=False)
    async with connect(served.url, card=card, dialect=dialect, limits=QUICK) as agent:
        events = agent.stream("5", skill="story")
        told = [event async for event in events]
        assert isinstance(told[0], Stamped)
        assert isinstance(told[0].event, Snapshot)
        assert events.connections == 0
        assert events.task == await agent.get(events.task or "")


async def test_without_await(served: OurServer) -> None:
    def script() -> list[object]:
        with sync.connect(served.url) as agent:
            task = agent.send("hello")
            events = agent.stream("3", skill="story")
            kinds = [type(event.event).__name__ for event in events if isinstance(event, Stamped)]
            talk = agent.conversation(skill="trip")
            talk.send("go")
            talk.send("Oslo")
            done = talk.send({"approved": True})
            with pytest.raises(TaskNotFound):
                agent.get("nothing")
            plan = agent.call("plan", city="Rome")
            return [agent.dialect, task.text, kinds[0], kinds[-1], done.text, plan]

    told = await asyncio.to_thread(script)
    assert told == ["a2a-1.0", "HELLO", "Snapshot", "StateChanged", "A trip to Oslo", {"Rome": 3}]


def test_parts_that_are_not_files() -> None:
    from dragoman.client.files import files_in, safe_name

    message = Message(
        message_id="m",
        role="user",  # type: ignore[arg-type]
        parts=(Data({"a": 1}), Link("https://x.example/y.png"), Blob(b"1")),
    )
    assert [type(part) for part, _ in files_in(message)] == [Link, Blob]
    for bad in ("../../etc/passwd", "..\\..\\x", "/abs", ".hidden", "a\x00b", "..", "", "con:x"):
        name = safe_name(bad)
        assert name
        assert not set(name) & set("/\\\x00:")
        assert not name.startswith(".")
