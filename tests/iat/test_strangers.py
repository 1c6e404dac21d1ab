"""Sub-agents and hosts that somebody else wrote from the requirement's text alone, over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from websockets.asyncio.client import connect as open_socket

from dragoman import State, connect
from dragoman.client.agent import RemoteAgent
from dragoman.core.errors import PeerRefused
from dragoman.core.events import ArtifactChunk, Note, Noted
from dragoman.core.model import Blob, Task
from dragoman.iat import Host
from dragoman.testing.served import served
from gateway.test_sub_agents import appears
from gateway.test_sub_agents import gateway as gateway_host
from iat.stranger import Asked, Json, Reply, Stranger, done, envelope, one, post, running, stream
from iat.team import SECRET, engine_host, settings, story, worker
from waiting import LIMIT, until


def register(agent: Stranger, url: str, endpoint: str, to: str = "engine") -> str:
    """Registers a stranger with a host (R03), and returns the token of its session."""
    tools: list[Json] = []
    payload = {"action": "register", "agent_id": "stranger", "endpoint": endpoint, "tools": tools}
    status, told = post(f"{url}/iat", envelope("request", payload, to=to, token=SECRET))
    assert status == 200, told
    return str(told["payload"]["session_token"])


class Worker:
    """A sub-agent that acknowledges an `execute` at once and then works in a thread: it posts its
    thoughts, calls a tool, asks for approval and posts its `done`, all with the session's token."""

    def __init__(self, ack: Reply) -> None:
        self.ack = ack
        self.host = self.token = ""
        self.answers: list[tuple[int, Json]] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, stranger: Stranger, asked: Asked) -> Reply:
        thread = threading.Thread(target=self.work, args=(asked,), daemon=True)
        self.threads.append(thread)
        thread.start()
        return self.ack

    def say(self, kind: str, asked: Asked, **payload: Any) -> Json:
        to = asked.said["header"]["from"]
        said = envelope(kind, payload, asked.id, to=to, token=self.token)
        self.answers.append(post(self.host, said))
        return self.answers[-1][1].get("payload", {})

    def work(self, asked: Asked) -> None:
        path = asked.payload["query"]
        self.say("notification", asked, action="think", thought_text="How large is it?")
        size = self.say(
            "request", asked, action="call_tool", tool_name="size", arguments={"path": path}
        )
        self.say("chunk", asked, text=f"{path} has {size['result']} bytes")
        about = {"operation": "Delete it?", "details": {"path": path}, "risk": "high"}
        approved = self.say("request", asked, action="require_approval", **about)["approved"]
        self.say("chunk", asked, text=", deleted" if approved else ", kept")
        self.say("response", asked, action="done", result_summary="over", usage_stats={"tokens": 7})


ACKNOWLEDGED = {
    "empty": Reply(b"", 202),
    "words": Reply(b"ok", 200, "text/plain"),
    "json": Reply(b'{"status": "accepted"}', 201),
    "nothing": Reply(b"", 204),
}


@pytest.mark.parametrize("ack", ACKNOWLEDGED)
async def test_a_sub_agent_posts_its_events_and_waits_for_its_answers(
    tmp_path: Path, ack: str
) -> None:
    work = Worker(ACKNOWLEDGED[ack])
    host = engine_host()
    with running(Stranger(work, "/work")) as agent:
        async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")) as url:
            work.host = f"{url}/iat"
            endpoint = f"{agent.url}/work"
            work.token = await asyncio.to_thread(register, agent, url, endpoint)
            await host.find("stranger", LIMIT)
            for decision, end in ((True, "deleted"), (False, "kept")):
                seen, task = await story(host, "b.txt", decision, agent="stranger")
                assert task.state is State.COMPLETED, task.status
                assert task.text == f"b.txt has 5 bytes, {end}"
                events = [entry.event for entry in seen]
                (thought,) = [each for each in events if isinstance(each, Noted)]
                assert thought.kind is Note.THOUGHT
                assert sum(isinstance(each, ArtifactChunk) for each in events) == 2
            await asyncio.to_thread(work.threads[-1].join, LIMIT)
    assert {status for status, _ in work.answers} == {200, 204}
    assert len(agent.executes()) == 2


async def test_an_execute_that_is_acknowledged_by_an_envelope_goes_on(tmp_path: Path) -> None:
    work = Worker(Reply())
    host = engine_host()

    def accept(stranger: Stranger, asked: Asked) -> Reply:
        work(stranger, asked)
        return one(envelope("response", {"status": "accepted"}, asked.id))

    with running(Stranger(accept)) as agent:
        async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")) as url:
            work.host = f"{url}/iat"
            work.token = await asyncio.to_thread(register, agent, url, agent.url)
            await host.find("stranger", LIMIT)
            _, task = await story(host, "b.txt", True, agent="stranger")
            assert task.text == "b.txt has 5 bytes, deleted"


async def test_a_request_that_is_posted_again_gets_the_same_answer(tmp_path: Path) -> None:
    calls: list[str] = []
    answers: list[tuple[int, Json]] = []
    host = Host("engine")
    token: list[str] = []

    @host.tool
    def size(path: str) -> int:
        calls.append(path)
        return len(path)

    def twice(asked: Asked, url: str) -> None:
        said = {"action": "call_tool", "tool_name": "size", "arguments": {"path": "b"}}
        question = envelope("request", said, asked.id, to="engine", token=token[0])
        answers.extend(post(url, question) for _ in range(2))
        post(
            url,
            envelope(
                "response",
                {"action": "done", "result_summary": "ok"},
                asked.id,
                to="engine",
                token=token[0],
            ),
        )

    with running(Stranger(lambda stranger, asked: Reply(b"", 202))) as agent:
        async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")) as url:
            token.append(await asyncio.to_thread(register, agent, url, agent.url))
            await host.find("stranger", LIMIT)
            running_task = asyncio.create_task(story(host, "go", agent="stranger"))
            await until(agent.executes)
            await asyncio.to_thread(twice, agent.executes()[0], f"{url}/iat")
            _, task = await running_task
    assert task.text == "ok"
    assert calls == ["b"]
    assert [said["payload"]["result"] for _, said in answers] == [1, 1]


async def test_only_the_agent_of_an_execute_may_post_about_it(tmp_path: Path) -> None:
    host = engine_host()
    with running(Stranger(lambda stranger, asked: Reply(b"", 202))) as agent:
        async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")) as url:
            token = await asyncio.to_thread(register, agent, url, agent.url)
            await host.find("stranger", LIMIT)
            running_task = asyncio.create_task(story(host, "go", agent="stranger"))
            await until(agent.executes)
            (asked,) = agent.executes()
            end = {"action": "done", "result_summary": "mine"}

            def tell(sender: str, parent: str, token: str) -> int:
                said = envelope("response", end, parent, sender=sender, to="engine", token=token)
                return post(f"{url}/iat", said)[0]

            hello = {"action": "HELO", "agent_id": "mallory", "actions": []}
            said = envelope("request", hello, sender="mallory", to="engine", token=SECRET)
            _, told = await asyncio.to_thread(post, f"{url}/iat", said)
            other = told["payload"]["session_token"]
            assert await asyncio.to_thread(tell, "mallory", asked.id, other) == 403
            assert await asyncio.to_thread(tell, "stranger", asked.id, "guessed") == 401
            assert not running_task.done()
            assert await asyncio.to_thread(tell, "stranger", asked.id, token) == 204
            _, task = await running_task
            assert task.text == "mine"
            late = envelope(
                "request", {"action": "require_approval"}, asked.id, to="engine", token=token
            )
            _, told = await asyncio.to_thread(post, f"{url}/iat", late)
            assert told["payload"]["error"]["code"] == "bad_params"


async def test_an_agent_that_leaves_ends_what_it_has_only_acknowledged(tmp_path: Path) -> None:
    host = engine_host(pulse=0.2, patience=0.5)
    async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")) as url:
        with running(Stranger(lambda stranger, asked: Reply(b"", 202))) as agent:
            await asyncio.to_thread(register, agent, url, agent.url)
            await host.find("stranger", LIMIT)
            running_task = asyncio.create_task(story(host, "go", agent="stranger"))
            await until(agent.executes)
        _, task = await running_task
        assert task.state is State.FAILED
        assert task.status.message.metadata["reason"] == "unreachable"


async def test_a_sub_agent_of_a_gateway_posts_its_events(tmp_path: Path) -> None:
    work = Worker(Reply(b"", 202))
    work.work = lambda asked: work.say(  # type: ignore[method-assign]
        "response", asked, action="done", result_summary=asked.payload["query"].upper()
    )
    with running(Stranger(work, "/work")) as agent:
        async with asyncio.timeout(LIMIT), gateway_host(tmp_path) as door:
            work.host = f"{door.url}/iat"
            endpoint = f"{agent.url}/work"
            payload = {"action": "register", "agent_id": "stranger", "endpoint": endpoint}
            secret = (tmp_path / "secret").read_text()
            said = envelope("request", payload, to="host", token=secret)
            _, told = await asyncio.to_thread(post, work.host, said)
            work.token = told["payload"]["session_token"]
            await appears(door.url, "stranger")
            message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
            async with httpx2.AsyncClient(headers={"a2a-version": "1.0"}, timeout=60) as client:
                answer = await client.post(
                    f"{door.url}/agents/stranger", json=body | {"params": {"message": message}}
                )
    found = answer.json()["result"]["task"]
    assert found["status"]["state"] == "TASK_STATE_COMPLETED", found
    assert "HI" in json.dumps(found)


class Elsewhere(Stranger):
    """An A2A server at its root, with a sub-agent of IAT at a path of its own."""

    def __init__(self, path: str) -> None:
        super().__init__(lambda stranger, asked: one(done(asked, "done there")), "*")
        self.own = path

    def reply(self, asked: Asked) -> Reply:
        if asked.path == self.own:
            return super().reply(asked)
        error = {"code": -32600, "message": "Invalid Request"}
        return Reply(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())


@pytest.mark.parametrize(("given", "own"), [("", "/iat"), ("/agent", "/agent"), ("/", "/iat")])
async def test_the_path_is_found_with_the_introduction_alone(
    tmp_path: Path, given: str, own: str
) -> None:
    with running(Elsewhere(own)) as agent:
        host = Host("engine", agents=[f"go={agent.url}{given}"])
        async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")):
            await host.find("go", LIMIT)
            _, task = await story(host, "x", agent="go")
            assert task.text == "done there"
    assert [each.path for each in agent.executes()] == [own]
    tried = [each.path for each in agent.asked if each.action == "HELO"]
    assert tried[0] == (given or "/")
    assert own in tried


@pytest.mark.parametrize("given", ["", "/"])
async def test_an_agent_at_the_root_is_found_there(tmp_path: Path, given: str) -> None:
    with running(Stranger(lambda stranger, asked: one(done(asked, "here")))) as agent:
        host = Host("engine", agents=[f"go={agent.url}{given}"])
        async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")):
            await host.find("go", LIMIT)
            _, task = await story(host, "x", agent="go")
            assert task.text == "here"
    assert {each.path for each in agent.executes()} == {"/"}


# The envelopes that we originate.


def check(said: Json, *, sender: str) -> None:
    """An envelope as §2.2 has it."""
    header, metadata = said["header"], said["metadata"]
    assert str(UUID(header["msg_id"])) == header["msg_id"]
    assert abs(header["timestamp"] - time.time()) < 300
    assert header["from"] == sender
    assert metadata["trace_id"]
    assert SECRET not in json.dumps(said)


async def test_what_a_host_sends_over_http_is_as_the_text_has_it(tmp_path: Path) -> None:
    begun = threading.Event()

    def slow(stranger: Stranger, asked: Asked) -> Reply:
        def events() -> Iterator[Json]:
            yield envelope("notification", {"action": "think", "thought_text": "hm"}, asked.id)
            begun.set()
            stranger.wait_for(asked.said)

        return stream(events())

    host = engine_host(pulse=0.2)
    with running(Stranger(slow)) as agent:
        async with asyncio.timeout(LIMIT), served(host, settings(tmp_path, "engine")) as url:
            token = await asyncio.to_thread(register, agent, url, agent.url)
            await host.find("stranger", LIMIT)
            entries = host.execute("go", agent="stranger")
            task_id = ""
            async for batch in entries:
                for entry in batch.entries:
                    task_id = entry.task_id
                if begun.is_set():
                    break
            assert host.peer is not None
            from dragoman.core.operations import CancelTask
            from dragoman.iat.host import OPERATOR

            task = await host.peer.call(CancelTask(task_id=task_id), OPERATOR)
            assert isinstance(task, Task)
            await entries.aclose()

            def seen(action: str) -> list[Asked]:
                return [each for each in tuple(agent.asked) if each.action == action]

            await until(lambda: seen("terminate") and seen("pulse"))
            (execute,) = seen("execute")
            agent.answers[execute.id] = {}
            with agent.changed:
                agent.changed.notify_all()
    for each in agent.asked:
        check(each.said, sender="engine")
    assert execute.said["metadata"]["auth_token"] == f"bearer {token}"
    (ending,) = seen("terminate")
    assert ending.said["header"]["parent_id"] == execute.id
    hello = next(each for each in agent.asked if each.action == "HELO")
    assert "auth_token" not in hello.said["metadata"]
    assert "x-iat-signature" in hello.headers


async def test_what_a_host_sends_over_a_socket_is_as_the_text_has_it(tmp_path: Path) -> None:
    host = engine_host(pulse=0.1)
    async with (
        asyncio.timeout(LIMIT),
        served(host, settings(tmp_path, "engine")) as url,
        open_socket(url.replace("http", "ws") + "/iat/ws") as socket,
    ):
        payload = {"action": "register", "agent_id": "stranger", "tools": []}
        await socket.send(json.dumps(envelope("request", payload, to="engine", token=SECRET)))
        token = json.loads(await socket.recv())["payload"]["session_token"]
        await host.find("stranger", LIMIT)
        running_task = asyncio.create_task(story(host, "go", agent="stranger"))
        seen: list[Json] = []
        while {each["payload"].get("action") for each in seen} < {"execute", "pulse"}:
            seen.append(json.loads(await socket.recv()))
        for said in seen:
            check(said, sender="engine")
            assert said["metadata"]["auth_token"] == f"bearer {token}"
        execute = next(each for each in seen if each["payload"]["action"] == "execute")
        end = {"action": "done", "result_summary": "ok"}
        parent = execute["header"]["msg_id"]
        await socket.send(json.dumps(envelope("response", end, parent, to="engine", token=token)))
        _, task = await running_task
        assert task.text == "ok"


async def test_what_a_joining_agent_sends_is_as_the_text_has_it(tmp_path: Path) -> None:
    class ForeignHost(Stranger):
        def reply(self, asked: Asked) -> Reply:
            return one(envelope("response", {"session_token": "s3ss"}, asked.id))

    with running(ForeignHost(lambda stranger, asked: Reply(), "/iat")) as foreign:
        own = settings(tmp_path, "worker", host=f"host={foreign.url}/iat")
        async with asyncio.timeout(LIMIT), served(worker(), own):
            await until(lambda: foreign.asked)
    (asked,) = foreign.asked
    check(asked.said, sender="worker")
    assert asked.action == "register"


# What a sub-agent that reads the query alone is told.


async def test_the_query_names_files_and_shows_data() -> None:
    picture = Blob(b"\x89PNG", filename="a.png", media_type="image/png")
    with running(Stranger(lambda stranger, asked: one(done(asked, "seen")))) as agent:
        async with connect(f"iat+{agent.url}/", timeout=LIMIT) as caller:
            await caller.send("only words")
            await caller.send({"page": 3}, "What is this?", picture)
    plain, rich = (each.payload for each in agent.executes())
    assert plain["query"] == "only words"
    assert rich["query"] == '{"page":3}\nWhat is this?\na.png (image/png, 4 bytes)'


BEGUN = {"action": "think", "thought_text": "begun"}
NO_PAPER = {"error": {"code": "paper", "message": "No paper left"}}


@pytest.mark.parametrize("begun", [True, False], ids=["after a thought", "alone"])
@pytest.mark.parametrize("action", ["", "done"])
async def test_a_code_that_is_a_word_is_the_reason(begun: bool, action: str) -> None:
    def fail(stranger: Stranger, asked: Asked) -> Reply:
        thoughts = [envelope("notification", BEGUN, asked.id)] if begun else []
        end = {"action": action, **NO_PAPER} if action else NO_PAPER
        return stream([*thoughts, envelope("response", end, asked.id)])

    async def tell(caller: RemoteAgent) -> Task:
        async with caller.stream("print") as events:
            async for _ in events:
                pass
            assert isinstance(events.task, Task)
            return events.task

    with running(Stranger(fail, "*")) as agent:
        async with connect(f"iat+{agent.url}/", allow_private=True) as caller:
            if not action:  # the call itself is refused
                with pytest.raises(PeerRefused, match="No paper left") as refused:
                    await tell(caller)
                assert (refused.value.reason, refused.value.public["code"]) == ("paper", "paper")
                return
            task = await tell(caller)
            assert task.state is State.FAILED
            message = task.status.message
            assert message is not None
            assert (message.text, message.metadata) == ("No paper left", {"reason": "paper"})
