"""Agents of others that dial in: written from the source document alone, with the habits of the
public clients (`strangers.py`)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from dragoman import State, Task
from dragoman.client import connect
from dragoman.core.model import Blob
from dragoman.settings import LinkedAgentSettings
from waiting import before_again, forever, stays, until
from xiaoyi.links import AGENT, Gateway, gateway
from xiaoyi.strangers import Request, Skill, Stranger, repeat, stranger


@asynccontextmanager
async def dialled(door: Gateway, skill: Skill = repeat, **about: Any) -> AsyncIterator[Stranger]:
    """A stranger, once all its links are open."""
    async with stranger(door.link_url, door.ak, door.sk, AGENT, skill, **about) as agent:
        await until(lambda: len(agent.sockets) == about.get("links", 1))
        await door.appears()
        yield agent


async def ended(caller: Any, task: Task) -> Task:
    """Waits for the end of a task."""

    async def over() -> Task | None:
        found: Task = await caller.get(task)
        return found if found.state in (State.COMPLETED, State.FAILED, State.CANCELED) else None

    found: Task = await until(over)
    return found


async def cut(door: Gateway, agent: Stranger, number: int = 0) -> None:
    """Breaks one link, and waits until the agent has dialled again."""
    before, count = set(door.service.links.open), len(agent.sockets)
    socket = agent.sockets[number]
    socket.transport.abort()
    await until(lambda: agent.sockets.get(number, socket) is not socket)
    await until(lambda: len(door.service.links.open) == count)
    await until(lambda: set(door.service.links.open) != before)


async def test_an_agent_that_announced_nothing_gets_no_frame_beyond_the_source_document() -> None:
    """The Go SDK takes `tasks/resubscribe` for an empty message, and completes the task with what
    it makes of that."""
    go = asyncio.Event()

    async def slowly(agent: Stranger, request: Request) -> None:
        if not agent.said(request):
            await agent.text(request, "You said nothing!", final=True)
            return
        await agent.text(request, "half ")
        await go.wait()
        await agent.text(request, "and half", append=True)
        await agent.text(request, "half and half", final=True)

    async with asyncio.timeout(240), gateway() as door, dialled(door, slowly) as agent:
        async with connect(f"{door.url}/agents/{AGENT}") as caller:
            task = await caller.send("go", wait=False)

            async def begun() -> bool:
                return bool((await caller.get(task)).text == "half ")

            await until(begun)
            await cut(door, agent)
            go.set()
            found = await ended(caller, task)
        assert (found.state, found.text) == (State.COMPLETED, "half and half")
        assert agent.methods() == ["message/stream"]


async def test_an_end_that_was_lost_with_its_link_is_an_unknown_outcome() -> None:
    async def silent(agent: Stranger, request: Request) -> None:
        await agent.text(request, "half ")

    async with (
        asyncio.timeout(240),
        gateway(answer_gap=0.5) as door,
        dialled(door, silent) as agent,
    ):
        async with connect(f"{door.url}/agents/{AGENT}") as caller:
            task = await caller.send("go", wait=False)

            async def begun() -> bool:
                return bool((await caller.get(task)).text == "half ")

            await until(begun)
            await cut(door, agent)
            found = await ended(caller, task)
        assert found.state is State.FAILED
        assert found.status.message is not None
        assert (found.status.message.metadata or {}).get("reason") == "unknown_outcome"
        assert found.text == "half "


async def test_an_agent_that_goes_on_in_silence_is_waited_for_while_it_is_away() -> None:
    """Only an agent that is back, and says nothing, has lost the end of its answer."""
    requests: list[Request] = []

    async def silent(agent: Stranger, request: Request) -> None:
        requests.append(request)

    async with asyncio.timeout(240), gateway(answer_gap=0.3) as door:
        async with dialled(door, silent), connect(f"{door.url}/agents/{AGENT}") as caller:
            task = await caller.send("go", wait=False)
            await until(lambda: requests)
        async with connect(f"{door.url}/agents/{AGENT}") as caller:

            async def works() -> bool:
                return (await caller.get(task)).state is State.WORKING

            await stays(works, 0.6)
            async with dialled(door, silent) as agent:
                await agent.text(requests[0], "late", final=True)
                assert (await ended(caller, task)).text == "late"


async def test_a_mirrored_answer_counts_once_and_true_repetitions_count() -> None:
    words = ["ha ", "ha ", "ho ", "ha ", "ha "]

    async def laughs(agent: Stranger, request: Request) -> None:
        for word in words:
            await agent.text(request, word, append=True)
        await agent.text(request, "", append=True, final=True)

    async with (
        asyncio.timeout(240),
        gateway() as door,
        dialled(door, laughs, links=2, mirrors=True),
        connect(f"{door.url}/agents/{AGENT}") as caller,
    ):
        for _ in range(3):
            assert (await caller.send("go")).text == "".join(words)


async def test_equal_pieces_over_two_links_in_turn_are_two_pieces() -> None:
    """An agent that uses one link at a time goes on over the other when the first one breaks, with
    the same word again."""
    turns = [asyncio.Event() for _ in range(4)]

    async def laughs(agent: Stranger, request: Request) -> None:
        for turn in turns:
            await agent.text(request, "ha ", append=True)
            await turn.wait()
        await agent.text(request, "!", append=True, final=True)

    async with asyncio.timeout(240), gateway() as door:
        async with (
            dialled(door, laughs, links=2) as agent,
            connect(f"{door.url}/agents/{AGENT}") as caller,
        ):
            task = await caller.send("go", wait=False)
            await until(lambda: agent.requests)
            session = agent.requests[0]["sessionId"]
            for count, turn in enumerate(turns, 1):
                expected = "ha " * count

                async def begun(expected: str = expected) -> bool:
                    return bool((await caller.get(task)).text == expected)

                await until(begun)
                # The link of the session breaks, and comes back later than the answer goes on.
                number = agent.routes[session]
                await cut(door, agent, number)
                agent.routes[session] = 1 - number
                turn.set()
            found = await ended(caller, task)
        assert (found.state, found.text) == (State.COMPLETED, "ha " * 4 + "!")


async def test_a_mirrored_answer_goes_on_when_its_links_are_cut_in_turn() -> None:
    turns = [asyncio.Event() for _ in range(4)]

    async def counts(agent: Stranger, request: Request) -> None:
        for number, turn in enumerate(turns):
            await agent.text(request, f"{number % 2} ", append=True)
            await turn.wait()
        await agent.text(request, "", append=True, final=True)

    async with asyncio.timeout(240), gateway() as door:
        async with (
            dialled(door, counts, links=2, mirrors=True) as agent,
            connect(f"{door.url}/agents/{AGENT}") as caller,
        ):
            task = await caller.send("go", wait=False)
            for count, turn in enumerate(turns, 1):
                expected = "0 1 0 1 "[: 2 * count]

                async def begun(expected: str = expected) -> bool:
                    return bool((await caller.get(task)).text == expected)

                await until(begun)
                await cut(door, agent, count % 2)
                turn.set()
            found = await ended(caller, task)
        assert (found.state, found.text) == (State.COMPLETED, "0 1 0 1 ")
        assert agent.methods() == ["message/stream"]


async def test_a_command_for_a_phone_is_answered_at_once() -> None:
    async def locates(agent: Stranger, request: Request) -> None:
        payload = {"executeParam": {"intentName": "GetCurrentLocation"}}
        command = {"header": {"namespace": "Common", "name": "Action"}, "payload": payload}
        await agent.parts(request, {"kind": "data", "data": {"commands": [command]}})
        await until(lambda: len(agent.requests) > 1)
        part = agent.requests[1]["params"]["message"]["parts"][0]
        result = part["data"]["events"][0]["payload"]
        await agent.text(request, f"{result['intentName']}: {result['outputs']}", final=True)

    async with asyncio.timeout(240), gateway() as door:
        async with (
            dialled(door, locates, links=2, mirrors=True) as agent,
            connect(f"{door.url}/agents/{AGENT}") as caller,
        ):
            task = await caller.send("where am I?")
        assert isinstance(task, Task)
        assert task.text.startswith("GetCurrentLocation: {'code': 1, 'errorMsg': 'not available")
        assert len(task.artifacts) == 1
        assert len(agent.requests) == 2  # both links brought the command


async def test_cancel_ends_the_answer_of_an_agent_that_says_nothing_more() -> None:
    async def begins(agent: Stranger, request: Request) -> None:
        await agent.text(request, "begun")
        await forever()

    async with asyncio.timeout(240), gateway() as door, dialled(door, begins):
        async with connect(f"{door.url}/agents/{AGENT}") as caller:
            task = await caller.send("go", wait=False)
            assert (await caller.cancel(task)).state is State.CANCELED
        await until(lambda: not door.service.links.agents[AGENT].busy)


async def begun_before_a_restart(door: Gateway) -> tuple[Task, Request]:
    """A task of which the server has received a part."""

    async def counts(agent: Stranger, request: Request) -> None:
        for word in ("0 ", "1 "):
            await agent.text(request, word, append=True)

    async with dialled(door, counts) as agent, connect(f"{door.url}/agents/{AGENT}") as caller:
        task = await caller.send("count", wait=False)

        async def begun() -> bool:
            return bool((await caller.get(task)).text == "0 1 ")

        await until(begun)
        return task, agent.requests[0]


@pytest.mark.parametrize("early", [True, False])
async def test_after_a_restart_the_stored_text_is_continued(tmp_path: Path, early: bool) -> None:
    """Also if the agent goes on before the server follows the task again."""
    store = f"sqlite:///{tmp_path}/links.db"
    async with asyncio.timeout(240):
        async with gateway(store=store) as door:
            task, request = await begun_before_a_restart(door)
        async with (
            gateway(store=store) as door,
            stranger(door.link_url, door.ak, door.sk, AGENT) as agent,
        ):
            await until(lambda: agent.sockets)
            linked = door.service.links.agents
            if not early:
                await until(lambda: AGENT in linked and linked[AGENT].busy)
            for word in ("10 ", "11 "):
                await agent.text(request, word, append=True)
            await agent.text(request, "", append=True, final=True)
            await door.appears()
            async with connect(f"{door.url}/agents/{AGENT}") as caller:
                found = await ended(caller, task)
            assert (found.state, found.text) == (State.COMPLETED, "0 1 10 11 ")
            assert agent.methods() == []


async def test_an_end_that_was_lost_in_a_restart_is_an_unknown_outcome(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/links.db"
    async with asyncio.timeout(240):
        async with gateway(store=store) as door:
            task, _ = await begun_before_a_restart(door)
        async with (
            gateway(store=store, answer_gap=0.5) as door,
            dialled(door),
            connect(f"{door.url}/agents/{AGENT}") as caller,
        ):
            found = await ended(caller, task)
        assert (found.state, found.text) == (State.FAILED, "0 1 ")
        assert found.status.message is not None
        assert (found.status.message.metadata or {}).get("reason") == "unknown_outcome"


async def test_after_a_clear_the_next_message_has_a_new_session(tmp_path: Path) -> None:
    """The official plugin drops all frames of a session for an hour after it was cleared. The new
    session lasts: also after a restart."""
    store = f"sqlite:///{tmp_path}/links.db"
    async with asyncio.timeout(240):
        async with gateway(store=store) as door, dialled(door, mute_after_clear=True) as agent:
            async with connect(f"{door.url}/agents/{AGENT}") as caller:
                first = await caller.send("one", context_id="talk")
                await caller.invoke("xiaoyi.link/clearContext", contextId="talk")
                second = await caller.send("two", context_id="talk")
                third = await caller.send("three", context_id="talk")
                await caller.invoke("xiaoyi.link/clearContext", contextId="talk")
            assert [each.text for each in (first, second, third)] == [
                *("you said: one", "you said: two", "you said: three")
            ]
            sessions = [each["sessionId"] for each in agent.requests]
            assert agent.methods()[1::3] == ["clearContext", "clearContext"]
            assert sessions[0] == sessions[1] != sessions[2]
            assert sessions[2] == sessions[3] == sessions[4]
        async with gateway(store=store) as door, dialled(door, mute_after_clear=True) as agent:
            async with connect(f"{door.url}/agents/{AGENT}") as caller:
                assert (await caller.send("four", context_id="talk")).text == "you said: four"
            assert agent.requests[0]["sessionId"] not in sessions


async def test_a_clear_ends_what_the_session_has_open() -> None:
    async def silent(agent: Stranger, request: Request) -> None:
        await agent.text(request, "begun")

    async with asyncio.timeout(240), gateway() as door, dialled(door, silent) as agent:
        async with connect(f"{door.url}/agents/{AGENT}") as caller:
            running = await caller.send("one", context_id="talk", wait=False)
            await until(lambda: agent.requests)
            queued = await caller.send("two", context_id="talk", wait=False)
            await caller.invoke("xiaoyi.link/clearContext", contextId="talk")
            for task in (running, queued):
                assert (await ended(caller, task)).state is State.CANCELED
        assert agent.methods()[:2] == ["message/stream", "clearContext"]
        assert [agent.said(each) for each in agent.requests[2:]] == [""] * len(agent.requests[2:])


async def test_messages_of_a_conversation_wait_for_the_answer_before() -> None:
    """The agent never answers a message if a newer one of its session arrives."""
    go = asyncio.Event()

    async def slowly(agent: Stranger, request: Request) -> None:
        await go.wait()
        await repeat(agent, request)

    async with asyncio.timeout(240), gateway() as door, dialled(door, slowly, steers=True) as agent:
        async with connect(f"{door.url}/agents/{AGENT}") as caller:
            tasks = [
                await caller.send(word, context_id="talk", wait=False) for word in ("a", "b", "c")
            ]
            await until(lambda: agent.requests)
            other = await caller.send("d", context_id="another", wait=False)
            await until(lambda: len(agent.requests) == 2)  # another conversation does not wait
            go.set()
            found = [await ended(caller, task) for task in (*tasks, other)]
        words = [f"you said: {word}" for word in "abcd"]
        assert [(each.state, each.text) for each in found] == [
            (State.COMPLETED, word) for word in words
        ]
        assert [agent.said(each) for each in agent.requests] == ["a", "d", "b", "c"]


async def test_a_message_that_waits_is_sent_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/links.db"

    async def silent(agent: Stranger, request: Request) -> None:
        await agent.text(request, "begun")

    async with asyncio.timeout(240):
        async with (
            gateway(store=store) as door,
            dialled(door, silent) as agent,
            connect(f"{door.url}/agents/{AGENT}") as caller,
        ):
            first = await caller.send("one", context_id="talk", wait=False)
            await until(lambda: agent.requests)
            request = agent.requests[0]
            second = await caller.send("two", context_id="talk", wait=False)
        async with gateway(store=store) as door, dialled(door) as agent:
            await agent.text(request, "one, late", final=True)
            async with connect(f"{door.url}/agents/{AGENT}") as caller:
                assert (await ended(caller, first)).text == "one, late"
                assert (await ended(caller, second)).text == "you said: two"


async def test_messages_go_out_at_once_where_the_settings_say_so_and_the_old_one_is_settled() -> (
    None
):
    go = asyncio.Event()
    agents = {AGENT: LinkedAgentSettings(tasks_per_session=5)}

    async def slowly(agent: Stranger, request: Request) -> None:
        await go.wait()
        await repeat(agent, request)

    async with (
        asyncio.timeout(240),
        gateway(agents=agents, answer_gap=0.3) as door,
        dialled(door, slowly, steers=True) as agent,
        connect(f"{door.url}/agents/{AGENT}") as caller,
    ):
        old = await caller.send("old", context_id="talk", wait=False)
        await until(lambda: len(agent.requests) == 1)
        new = await caller.send("new", context_id="talk", wait=False)
        await until(lambda: len(agent.requests) == 2)
        go.set()
        assert (await ended(caller, new)).text == "you said: new"
        assert (await ended(caller, old)).state is State.CANCELED


async def test_a_question_lets_the_next_message_through() -> None:
    async def asks(agent: Stranger, request: Request) -> None:
        if agent.said(request) != "book":
            await repeat(agent, request)
            return
        message = {"role": "agent", "parts": [{"kind": "text", "text": "Which city?"}]}
        status = {"state": "input-required", "message": message}
        result = {"taskId": request["params"]["id"], "kind": "status-update", "final": True}
        await agent.respond(request, {**result, "status": status})

    async with (
        asyncio.timeout(240),
        gateway() as door,
        dialled(door, asks),
        connect(f"{door.url}/agents/{AGENT}") as caller,
    ):
        task = await caller.send("book", context_id="talk")
        assert task.state is State.INPUT_REQUIRED
        assert (await caller.send("Kyoto", task=task)).text == "you said: Kyoto"
        assert (await caller.send("next", context_id="talk")).text == "you said: next"


@pytest.mark.parametrize("begun", [True, False])
async def test_an_error_code_that_is_a_word_survives(begun: bool) -> None:
    async def refuses(agent: Stranger, request: Request) -> None:
        if begun:
            await agent.text(request, "half ")
        error = {"code": "AGENT_BUSY", "message": "Come back tomorrow"}
        await agent.respond(request, None, error=error)

    async with asyncio.timeout(240), gateway() as door, dialled(door, refuses):
        async with connect(f"{door.url}/agents/{AGENT}") as caller:
            task = await caller.send("go")
        assert task.state is State.FAILED
        assert task.status.message is not None
        assert task.status.message.text == "AGENT_BUSY: Come back tomorrow"


async def test_files_go_by_reference_to_an_agent_that_reads_only_addresses() -> None:
    """It downloads what it is sent, without credentials, as the source document says."""

    async def reads(agent: Stranger, request: Request) -> None:
        file = request["params"]["message"]["parts"][1]["file"]
        assert "bytes" not in file
        content = await asyncio.to_thread(lambda: urlopen(file["uri"]).read())
        await agent.text(request, f"{file['name']}: {content.decode()}", final=True)

    async with (
        asyncio.timeout(240),
        gateway() as door,
        dialled(door, reads),
        connect(f"{door.url}/agents/{AGENT}") as caller,
    ):
        note = Blob("好".encode(), filename="note.txt", media_type="text/plain")
        assert (await caller.send("read this", note)).text == "note.txt: 好"


async def test_links_that_close_late_leave_no_exceptions_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talks(agent: Stranger, request: Request) -> None:
        while True:
            await agent.text(request, "and " * 200, append=True)
            await before_again()

    store = f"sqlite:///{tmp_path}/links.db"
    with caplog.at_level("WARNING"):
        async with asyncio.timeout(240), gateway(store=store) as door:
            async with dialled(door, talks, links=3) as agent:
                async with connect(f"{door.url}/agents/{AGENT}") as caller:
                    for _ in range(5):
                        await caller.send("go", wait=False)
                    await until(lambda: len(agent.requests) == 5)
                await door.app.drain()
                await door.app.stop()
                await until(lambda: not door.service.links.open)
            gc.collect()  # tasks tell of their exceptions when they are collected
    assert [each for each in caplog.records if each.exc_info] == []
    assert [each.message for each in caplog.records if "left" in each.message] == []


async def test_copies_of_a_long_answer_do_not_count_as_too_many_messages() -> None:
    async def long(agent: Stranger, request: Request) -> None:
        for number in range(1000):
            await agent.text(request, f"{number} ", append=True)
        await agent.text(request, "", append=True, final=True)

    async with (
        asyncio.timeout(240),
        gateway(messages_per_second=50) as door,
        dialled(door, long, links=2, mirrors=True) as agent,
        connect(f"{door.url}/agents/{AGENT}") as caller,
    ):
        sockets = dict(agent.sockets)
        task = await caller.send("go")
        assert task.text == "".join(f"{number} " for number in range(1000))
        assert agent.sockets == sockets
