"""The requirement sentence by sentence, by hand, on HTTP/2 with SSE and on WebSocket.

The table in `docs/dialects/iat.md` says which test proves which sentence.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Turn
from iat.team import WAYS, engine_host, story, team, worker
from iat.wires import WIRES, beside, until, wired
from net.iat.sub_agent import READ

TYPES = {"request", "response", "notification", "chunk"}
both = pytest.mark.parametrize("way", WIRES)


def all_of(heard: list[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    return [each for each in heard if each["payload"].get("action") == action]


@both
async def test_every_message_is_an_envelope(way: str) -> None:
    """2.2: header, metadata and payload, with all their members."""
    async with wired(None, way) as wire:
        said = wire.envelope("execute", query="one two three", msg_id="8d1e")
        heard = [each async for each in wire.stream(said)]
    assert {each["header"]["type"] for each in heard} >= TYPES - {"request"}
    for each in heard:
        assert each.keys() == {"header", "metadata", "payload"}
        header = each["header"]
        assert header.keys() == {"msg_id", "parent_id", "type", "from", "to", "timestamp"}
        assert (header["from"], header["to"]) == ("go-agent", "host-1")
        assert header["parent_id"] == "8d1e"
        assert header["type"] in TYPES
        assert abs(header["timestamp"] - time.time()) < 60  # seconds
        assert each["metadata"]["trace_id"] == "tr-9"
    names = [each["header"]["msg_id"] for each in heard]
    assert all(names)
    assert len(set(names)) == len(names)


@both
async def test_ttl_counts(way: str) -> None:
    """2.2: what has no hop left is not done."""
    async with wired(None, way) as wire:
        assert (await wire.ask("execute", query="x", ttl=0))["error"]["code"] == "ttl_exceeded"
        assert (await wire.ask("execute", query="x", ttl=1))["result_summary"] == "X "


@both
async def test_a_request_that_is_not_waited_for(way: str) -> None:
    """R01: answered at once; notifications tell the states between."""
    watched, done = asyncio.Event(), asyncio.Event()
    agent = Agent("go-agent")

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        await watched.wait()
        await turn.say("half of it")
        await done.wait()
        return "all of it"

    async with wired(agent, way) as wire:
        told = await wire.ask("execute", query="x", wait=False)
        assert told["action"] == "task_status"
        assert told["status"] in ("submitted", "working")
        steps = wire.stream(wire.envelope("watch", task_id=told["task_id"]))
        heard = [await anext(steps)]
        watched.set()
        while heard[-1]["payload"].get("text") != "half of it":
            heard.append(await anext(steps))
        done.set()
        heard += [each async for each in steps]
        states = [each for each in heard if each["header"]["type"] == "notification"]
        assert states
        assert {each["payload"]["status"] for each in states} == {"working"}
        assert heard[-1]["payload"]["result_summary"] == "all of it"


@both
async def test_a_notification_is_done_and_not_answered(way: str) -> None:
    """R01: `execute` as a notification."""
    did: asyncio.Queue[str] = asyncio.Queue()
    agent = Agent("go-agent")

    @agent.skill("work")
    async def work(turn: Turn) -> None:
        did.put_nowait(turn.text)

    async with wired(agent, way) as wire:
        assert await wire.tell(wire.envelope("execute", "notification", query="quietly")) is None
        async with asyncio.timeout(60):
            assert await did.get() == "quietly"


@both
async def test_thoughts_and_long_texts_come_in_chunks(way: str) -> None:
    """R02: each chunk is what is new, while the work goes on."""
    words = [f"word{number} " for number in range(40)]
    go_on = asyncio.Event()
    agent = Agent("go-agent")

    @agent.skill("write")
    async def write(turn: Turn) -> Any:
        await turn.think("How to begin?")
        yield words[0]
        await go_on.wait()
        for word in words[1:]:
            yield word

    async with wired(agent, way) as wire:
        heard = []
        async for each in wire.execute("a long text"):
            heard.append(each)
            if each["payload"].get("text") == words[0]:
                go_on.set()  # else it would never end: the chunk came before the rest was there
        chunks = [each["payload"] for each in heard if each["header"]["type"] == "chunk"]
        thoughts, texts = chunks[0], chunks[1:]
        assert (thoughts["action"], thoughts["thought_text"]) == ("think", "How to begin?")
        assert [chunk["text"] for chunk in texts if chunk["text"]] == words
        assert [chunk["index"] for chunk in texts] == list(range(len(texts)))
        assert heard[-1]["payload"]["result_summary"] == "".join(words)


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_registers_with_its_tools(tmp_path: Path, way: str) -> None:
    """R03 and R04: when it starts, and the host knows their schemas from it."""
    agent = Agent("Adder")

    @agent.skill("add", description="Adds.")
    async def add(turn: Turn, a: int, b: int = 2) -> int:
        return a + b

    async with team(tmp_path, host := engine_host(), {"adder": agent}, way):
        (tool,) = (await host.find("adder")).tools
        assert (tool.name, tool.description) == ("add", "Adds.")
        assert isinstance(tool.parameters, dict)
        assert tool.parameters["properties"]["a"] == {"type": "integer"}
        assert tool.parameters["required"] == ["a"]
        assert tool.returns == {"type": "integer"}


@both
@pytest.mark.parametrize(
    ("query", "answer", "words"),
    [
        ("read it", {"result": 5}, "breaks its schema"),
        ("read it", {"error": {"code": "x", "message": "no such file"}}, "no such file"),
        ("misread it", None, "arguments of tool `read_file` break its schema"),
    ],
    ids=["wrong result", "failed tool", "wrong arguments"],
)
async def test_schemas_are_checked_both_ways(way: str, query: str, answer: Any, words: str) -> None:
    """R04: what a tool is given and what it gives."""
    async with wired(None, way, tools=[READ]) as wire:
        steps = wire.execute(query, allowed_tools=["read_file"])
        if answer is not None:
            *_, asked = await until(steps, "call_tool")
            await wire.say(wire.answer(asked, **answer))
        *_, done = [each async for each in steps]
        assert done["payload"]["status"] == "failed"
        assert words in done["payload"]["error"]["message"]


@both
@pytest.mark.parametrize(
    ("decision", "result"), [(True, "deleted"), (False, "left alone"), ("yes", "left alone")]
)
async def test_an_approval_blocks_until_it_is_given(way: str, decision: Any, result: str) -> None:
    """R05 and R06: nothing happens before the answer, `approved: true|false`; only true is yes."""
    async with wired(None, way) as wire, beside(wire.server, way, "host-1") as other:
        steps = wire.execute("delete it")
        *_, asked = await until(steps, "require_approval")
        assert asked["header"]["type"] == "request"
        about = asked["payload"]
        assert (about["operation"], about["details"]) == (
            "delete pkg/old.go",
            {"path": "pkg/old.go"},
        )
        for _ in range(3):  # it waits, while others are served
            status = await other.ask("task_status", task_id=about["task_id"])
            assert status["status"] == "input-required"
            assert status["asks"]["approval_id"] == about["approval_id"]
        await wire.say(wire.answer(asked, approved=decision))
        *_, done = [each async for each in steps]
        assert done["payload"]["result_summary"] == result


@both
async def test_execute_tells_query_fragments_and_tools(way: str) -> None:
    """4: `execute`, `call_tool`."""
    fragments = [{"kind": "file", "ref": "a.go"}, {"kind": "text", "text": "b"}]
    async with wired(None, way, tools=[READ]) as wire:
        steps = wire.execute("read it", context_fragments=fragments, allowed_tools=["read_file"])
        *_, asked = await until(steps, "call_tool")
        assert asked["header"]["type"] == "request"
        assert asked["payload"]["tool_name"] == "read_file"
        assert asked["payload"]["arguments"] == {"path": "pkg/b.go"}
        await wire.say(wire.answer(asked, result="package b"))
        *_, done = [each async for each in steps]
        assert done["payload"]["result_summary"] == f"package b and {tuple(fragments)}"

        *_, done = [each async for each in wire.execute("read it", allowed_tools=[])]
        assert "offers no tool `read_file`" in done["payload"]["error"]["message"]


@both
async def test_think_log_and_done_have_their_members(way: str) -> None:
    """4: `think`, `log`, `done`."""
    async with wired(None, way) as wire:
        heard = [each async for each in wire.execute("hello")]
    (thought,) = all_of(heard, "think")
    assert thought["payload"]["thought_text"] == "Thinking of hello."
    (log,) = all_of(heard, "log")
    assert log["header"]["type"] == "notification"
    assert (log["payload"]["level"], log["payload"]["message"]) == ("debug", "2 files read")
    (done,) = all_of(heard, "done")
    assert done["header"]["type"] == "response"
    assert done["payload"]["result_summary"] == "HELLO "
    assert done["payload"]["usage_stats"] == {"tokens": 812}


@both
async def test_every_request_shows_its_session(way: str) -> None:
    """5: no token, a wrong one, the secret itself, and the token of somebody else."""
    async with wired(None, way) as wire, beside(wire.server, way, "eve") as eve:
        for action in ("execute", "task_status", "watch", "terminate", "call_tool", "pulse"):
            about = {"query": "x", "task_id": "t", "tool_name": "add", "arguments": {}}
            for token in ("", "x" * 43, "a-secret-of-hosts-and-agents"):
                told = await wire.ask(action, token=token, **about)
                assert told["error"]["code"] == "unauthorized", (action, token)
            told = await wire.ask(action, token=eve.token, **about)
            assert told["error"]["code"] == "forbidden", action


@both
async def test_approvals_over_the_wire_fail_closed(way: str) -> None:
    """Forged by another agent, for another question, without a token, twice, and too late."""
    acts: list[str] = []
    agent = Agent("go-agent")

    @agent.skill("act")
    async def act(turn: Turn) -> str:
        seconds = 0.3 if turn.text == "soon" else 60.0
        if not await turn.approve("act?", expires=seconds):
            return "left alone"
        acts.append(turn.text)
        return "done"

    async with (
        wired(agent, way) as wire,
        beside(wire.server, way, "eve") as eve,
        beside(wire.server, way, "host-1") as again,
    ):
        steps = wire.execute("first")
        *_, asked = await until(steps, "require_approval")
        task = asked["payload"]["task_id"]

        def refused(told: dict[str, Any] | None) -> str:
            assert told is not None, "it was taken"
            return str(told["error"]["code"])

        assert refused(await eve.tell(eve.answer(asked, approved=True))) == "task_not_found"
        stolen = {**again.answer(asked, approved=True), "metadata": {}}
        assert refused(await again.tell(stolen)) == "unauthorized"
        other = {"header": {"msg_id": asked["header"]["msg_id"] + "x"}}
        assert refused(await again.tell(again.answer(other, approved=True)))
        assert (await again.ask("task_status", task_id=task))["status"] == "input-required"
        assert acts == []

        yes = again.answer(asked, approved=True)
        assert await again.tell(yes) is None
        *_, done = [each async for each in steps]
        assert done["payload"]["result_summary"] == "done"
        assert refused(await again.tell(yes)) in ("conflict", "task_finished")  # replayed
        assert acts == ["first"]

        steps = wire.execute("soon")
        *_, asked = await until(steps, "require_approval")
        *_, done = [each async for each in steps]  # silence is a no
        assert done["payload"]["result_summary"] == "left alone"
        assert refused(await again.tell(again.answer(asked, approved=True)))
        # The first yes is none for another task, in the same words.
        steps = wire.execute("second")
        *_, asked = await until(steps, "require_approval")
        assert refused(await again.tell(yes))
        await wire.say(wire.answer(asked, approved=False))
        *_, done = [each async for each in steps]
        assert done["payload"]["result_summary"] == "left alone"
        assert acts == ["first"]


@pytest.mark.parametrize("way", WAYS)
async def test_the_whole_of_it_between_a_host_and_a_sub_agent(tmp_path: Path, way: str) -> None:
    """1.1: register, execute, think, call_tool, log, chunks, approval, done: all in one."""
    host = engine_host()
    async with team(tmp_path, host, {"worker": worker()}, way):
        seen, task = await story(host, "a.txt", True, agent="worker")
        assert task.text == "a.txt has 5 bytes, deleted"
        kinds = [type(entry.event).__name__ for entry in seen]
        assert kinds[0] == "Opened"
        assert {"Noted", "ArtifactChunk", "Asked", "StateChanged"} <= set(kinds)


def test_the_table_names_tests_that_exist() -> None:
    tests = Path(__file__).parents[1]
    page = (tests.parent / "docs" / "dialects" / "iat.md").read_text("utf-8")
    table = page.partition("## The requirement, sentence by sentence")[2]
    sources = {path: path.read_text("utf-8") for path in tests.rglob("test_*.py")}
    named = re.findall(r"`(test_\w+)`", table)
    files = re.findall(r"`(?:tests/)?([\w/]*test_\w+\.py)`", table)
    assert len(named) > 20
    for name in named:
        assert any(f"def {name}(" in source for source in sources.values()), name
    for file in files:
        assert any(path.as_posix().endswith(f"/{file}") for path in sources), file
    # What stands without a file is here.
    here = sources[Path(__file__)]
    for row in table.splitlines():
        first = re.search(r"\| `(test_\w+)`", row)
        assert first is None or f"def {first[1]}(" in here, row
