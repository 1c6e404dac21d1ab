"""What the official Python client sees of a running agent: one JSON line per scenario.

Runs in the environment of `a2a-sdk`, never in ours: `python a2a_sdk_client.py URL 1.0|0.3[-rest]`.
The agent is `tests/interop/agent.py`. A failed scenario carries the exchange on the wire.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import (
    A2ACardResolver,
    Client,
    ClientConfig,
    ClientFactory,
    create_client,
)
from a2a.client.card_resolver import parse_agent_card
from a2a.types.a2a_pb2 import (
    AgentCard,
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict

WORKING = TaskState.TASK_STATE_WORKING
COMPLETED = TaskState.TASK_STATE_COMPLETED
CANCELED = TaskState.TASK_STATE_CANCELED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED

SKILLS = {"echo", "write", "trip", "slow", "silent", "files"}
PATIENCE = 60.0


class Wire(httpx.AsyncHTTPTransport):
    """Passes everything on and keeps what went by."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        version = request.headers.get("a2a-version", "absent")
        self.seen.append(f"> {request.method} {request.url} (A2A-Version {version})")
        self.seen.append("> " + request.content.decode())
        response = await super().handle_async_request(request)
        self.seen.append(f"< {response.status_code} {response.headers.get('content-type')}")
        response.stream = Tap(response.stream, self.seen)
        return response


class Tap(httpx.AsyncByteStream):
    """A response body that is written down while it is read."""

    def __init__(self, body: Any, seen: list[str]) -> None:
        self.body, self.seen = body, seen

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.body:
            self.seen.append("< " + chunk.decode(errors="replace"))
            yield chunk
        self.seen.append("< end of body")

    async def aclose(self) -> None:
        await self.body.aclose()


class Caller:
    """The same agent through the client's three ways of sending."""

    def __init__(self, url: str, version: str, wire: Wire) -> None:
        self.url, self.legacy = url, version.startswith("0.3")
        self.version = version.removesuffix("-rest")
        self.bindings = ["HTTP+JSON" if version.endswith("-rest") else "JSONRPC"]
        self.http = httpx.AsyncClient(transport=wire)  # with the default timeout of five seconds
        self.card = AgentCard()

    async def connect(self) -> None:
        self.card = await (self.legacy_card() if self.legacy else self.current_card())
        self.blocking = self._client(ClientConfig(streaming=False))
        self.polling = self._client(ClientConfig(streaming=False, polling=True))
        self.streaming = self._client(ClientConfig(streaming=True))

    def _client(self, config: ClientConfig) -> Client:
        config.httpx_client = self.http
        config.supported_protocol_bindings = self.bindings
        return ClientFactory(config).create(self.card)

    async def current_card(self) -> AgentCard:
        return await A2ACardResolver(self.http, self.url).get_agent_card(
            http_kwargs={"headers": {"A2A-Version": "1.0"}}
        )

    async def legacy_card(self) -> AgentCard:
        """The card as a 0.3 reader takes it: no version asked for, new members unknown."""
        answer = await self.http.get(f"{self.url}/.well-known/agent-card.json")
        raw = answer.raise_for_status().json()
        raw.pop("supportedInterfaces", None)
        return parse_agent_card(raw)

    async def send(self, message: Message, client: Client | None = None) -> Task:
        events = [e async for e in (client or self.blocking).send_message(request(message))]
        same(len(events), 1, "answers to one send")
        same(events[0].WhichOneof("payload"), "task", "kind of answer")
        return events[0].task

    async def start(self, message: Message) -> Task:
        return await self.send(message, self.polling)

    def stream(self, message: Message) -> AsyncIterator[StreamResponse]:
        return self.streaming.send_message(request(message))

    def subscribe(self, task_id: str) -> AsyncIterator[StreamResponse]:
        return self.streaming.subscribe(SubscribeToTaskRequest(id=task_id))

    async def get(self, task_id: str, history: int | None = None) -> Task:
        return await self.streaming.get_task(GetTaskRequest(id=task_id, history_length=history))

    async def cancel(self, task_id: str) -> Task:
        return await self.streaming.cancel_task(CancelTaskRequest(id=task_id))


def same(found: object, wanted: object, what: str) -> None:
    assert found == wanted, f"{what}: wanted {wanted!r}, found {found!r}"


def said(text: str, skill: str = "", *, task: str = "", context: str = "") -> Message:
    message = Message(
        message_id=str(uuid4()),
        role=Role.ROLE_USER,
        parts=[Part(text=text)],
        task_id=task,
        context_id=context,
    )
    if skill:
        message.metadata.update({"skillId": skill})
    return message


def request(message: Message) -> SendMessageRequest:
    return SendMessageRequest(message=message)


def text_of(holder: Message | Artifact) -> str:
    return "".join(part.text for part in holder.parts)


def result_text(task: Task) -> str:
    return "".join(text_of(artifact) for artifact in task.artifacts)


def state_name(task: Task) -> str:
    return TaskState.Name(task.status.state)


def in_state(task: Task, state: TaskState) -> None:
    same(state_name(task), TaskState.Name(state), "state")


async def refused(action: Awaitable[object], error: type[A2AError]) -> None:
    try:
        found = await action
    except error:
        return
    raise AssertionError(f"wanted {error.__name__}, found {found!r}")


async def heard(stream: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    return [event async for event in stream]


def last_state(events: list[StreamResponse]) -> str:
    last = events[-1]
    kind = last.WhichOneof("payload")
    assert kind in ("status_update", "task"), f"a stream ended with {kind}"
    return state_name(getattr(last, kind))


def check_ids(events: list[StreamResponse], task: Task) -> None:
    for event in events:
        kind = event.WhichOneof("payload")
        assert kind, "an event without content"
        body = getattr(event, kind)
        same(body.id if kind == "task" else body.task_id, task.id, f"task id in {kind}")
        same(body.context_id, task.context_id, f"context id in {kind}")


def steps_heard(events: list[StreamResponse]) -> list[str]:
    """What the slow skill said, from the snapshot and from the updates after it."""
    told: list[Message] = []
    for event in events:
        if event.HasField("task"):
            told = [m for m in event.task.history if m.role == Role.ROLE_AGENT]
            told.append(event.task.status.message)
        elif event.HasField("status_update"):
            told.append(event.status_update.status.message)
    return [text_of(m) for m in told if text_of(m).startswith("step ")]


def check_steps(events: list[StreamResponse], legacy: bool) -> int:
    """Nothing lost, nothing twice; 0.3 does not promise the past to a late listener."""
    steps = steps_heard(events)
    assert steps, "no step heard"
    first = int(steps[0].split()[1])
    if not legacy:
        same(events[0].WhichOneof("payload"), "task", "first event of a subscription")
        same(first, 0, "first step")
    same(steps, [f"step {first + n}" for n in range(len(steps))], "steps")
    return len(steps)


async def card(caller: Caller) -> None:
    plain = await create_client(caller.url)  # everything at its default
    try:
        events = await heard(plain.send_message(request(said("hello"))))
        same(last_state(events), "TASK_STATE_COMPLETED", "state")
    finally:
        await plain.close()

    async with httpx.AsyncClient() as bare:  # the factory puts A2A-Version on clients it is given
        unversioned = await A2ACardResolver(bare, caller.url).get_agent_card()
    same(unversioned.name, caller.card.name, "name without a version asked for")
    same(caller.card.name, "Interop desk", "name")
    same({skill.id for skill in caller.card.skills}, SKILLS, "skills")
    assert caller.card.capabilities.streaming, "streaming not announced"
    versions = {
        i.protocol_version
        for i in caller.card.supported_interfaces
        if i.protocol_binding == "JSONRPC"
    }
    assert any(v.startswith(caller.version) for v in versions), f"versions {versions}"
    transport = type(caller.blocking._transport).__name__  # type: ignore[attr-defined]
    same(transport.startswith("Compat"), caller.legacy, f"{transport} speaks 0.3")


async def send(caller: Caller) -> None:
    asked = said("hello, wörld 你好")
    task = await caller.send(asked)
    in_state(task, COMPLETED)
    same(result_text(task), "HELLO, WÖRLD 你好", "text")
    assert task.id, "no task id"
    assert task.context_id, "no context id"
    same([m.message_id for m in task.history], [asked.message_id], "history")
    assert task.status.HasField("timestamp"), "no timestamp"


async def send_without_waiting(caller: Caller) -> None:
    task = await caller.start(said("5", "slow"))
    assert task.status.state not in (COMPLETED, CANCELED), f"came back {state_name(task)}"
    while task.status.state != COMPLETED:
        await asyncio.sleep(0.1)  # and looks again
        task = await caller.get(task.id)
    same(result_text(task), "5 steps", "text")


async def stream(caller: Caller) -> None:
    words = ["one ", "two ", "three ", "four ", "five "]
    events = await heard(caller.stream(said("one two three four five", "write")))
    same(events[0].WhichOneof("payload"), "task", "first event")
    task = events[0].task
    check_ids(events, task)
    same(last_state(events), "TASK_STATE_COMPLETED", "last state")

    chunks = [e.artifact_update for e in events if e.HasField("artifact_update")]
    same([text_of(c.artifact) for c in chunks if text_of(c.artifact)], words, "chunks")
    same({c.artifact.artifact_id for c in chunks}, {chunks[0].artifact.artifact_id}, "artifact")
    same([c.append for c in chunks], [False] + [True] * (len(chunks) - 1), "append")
    last = [False] * (len(chunks) - 1) + [True]
    same([c.last_chunk for c in chunks], last, "last chunk")
    same(result_text(await caller.get(task.id)), "".join(words), "text afterwards")


async def get(caller: Caller) -> None:
    sent = await caller.send(said("again"))
    task = await caller.get(sent.id)
    same(task.id, sent.id, "id")
    same(task.context_id, sent.context_id, "context")
    in_state(task, COMPLETED)
    same(result_text(task), "AGAIN", "text")
    same([text_of(m) for m in task.history], ["again"], "history")
    same(len((await caller.get(sent.id, history=1)).history), 1, "history of length 1")
    if not caller.legacy:
        same(len((await caller.get(sent.id, history=0)).history), 0, "history of length 0")


async def list_tasks(caller: Caller) -> None:
    first = await caller.send(said("first"))
    second = await caller.send(said("second", context=first.context_id))
    same(second.context_id, first.context_id, "context")
    await caller.send(said("elsewhere"))

    async def page(**fields: Any) -> Any:
        return await caller.blocking.list_tasks(
            ListTasksRequest(context_id=first.context_id, **fields)
        )

    everything = await page()
    same([t.id for t in everything.tasks], [second.id, first.id], "tasks, newest first")
    same(everything.total_size, 2, "total")
    same(everything.next_page_token, "", "token of the only page")
    assert not any(t.artifacts for t in everything.tasks), "artifacts nobody asked for"

    whole = await page(include_artifacts=True, history_length=0)
    same([result_text(t) for t in whole.tasks], ["SECOND", "FIRST"], "texts")
    assert not any(t.history for t in whole.tasks), "history nobody asked for"

    one = await page(page_size=1)
    same([t.id for t in one.tasks], [second.id], "first page")
    assert one.next_page_token, "no token"
    two = await page(page_size=1, page_token=one.next_page_token)
    same([t.id for t in two.tasks], [first.id], "second page")
    same(two.next_page_token, "", "token of the last page")

    same(len((await page(status=COMPLETED)).tasks), 2, "completed")
    same(len((await page(status=WORKING)).tasks), 0, "working")


async def cancel(caller: Caller) -> None:
    task = await caller.start(said("300", "slow"))
    while task.status.state != WORKING:
        task = await caller.get(task.id)
    canceled = await caller.cancel(task.id)
    same(canceled.id, task.id, "id")
    in_state(canceled, CANCELED)
    in_state(await caller.get(task.id), CANCELED)


async def resubscribe(caller: Caller) -> None:
    """A stream is dropped, the task goes on, a new stream hears it to its end."""
    dropped = caller.stream(said("30", "slow"))
    before: list[StreamResponse] = []
    async for event in dropped:
        before.append(event)
        if len(steps_heard(before)) >= 2:
            break
    await dropped.aclose()  # type: ignore[attr-defined]

    task = before[0].task
    events = await heard(caller.subscribe(task.id))
    check_ids(events, task)
    heard_after = check_steps(events, caller.legacy)
    if not caller.legacy:
        same(heard_after, 30, "steps")
    same(last_state(events), "TASK_STATE_COMPLETED", "last state")
    same(result_text(await caller.get(task.id)), "30 steps", "text afterwards")


async def resubscribe_until_canceled(caller: Caller) -> None:
    """Two listeners hear the same task and the same end."""
    task = await caller.start(said("300", "slow"))

    async def listen(listening: asyncio.Event) -> list[StreamResponse]:
        events: list[StreamResponse] = []
        async for event in caller.subscribe(task.id):
            events.append(event)
            if len(steps_heard(events)) >= 3:
                listening.set()
        return events

    async with asyncio.TaskGroup() as group:
        ready = [asyncio.Event(), asyncio.Event()]
        listeners = [group.create_task(listen(event)) for event in ready]
        for event in ready:
            await event.wait()
        in_state(await caller.cancel(task.id), CANCELED)
    for listener in listeners:
        events = listener.result()
        check_ids(events, task)
        check_steps(events, caller.legacy)
        same(last_state(events), "TASK_STATE_CANCELED", "last state")


async def multi_turn(caller: Caller) -> None:
    asked = await caller.send(said("Plan a trip", "trip"))
    in_state(asked, INPUT_REQUIRED)
    same(text_of(asked.status.message), "Which city?", "question")
    same(asked.status.message.role, Role.ROLE_AGENT, "who asks")

    done = await caller.send(said("Kyoto", task=asked.id, context=asked.context_id))
    same(done.id, asked.id, "task id")
    same(done.context_id, asked.context_id, "context id")
    in_state(done, COMPLETED)
    same(result_text(done), "A trip to Kyoto", "text")
    told = [(text_of(m), m.role) for m in done.history]
    wanted = [
        ("Plan a trip", Role.ROLE_USER),
        ("Which city?", Role.ROLE_AGENT),
        ("Kyoto", Role.ROLE_USER),
    ]
    same(told, wanted, "history")


async def multi_turn_stream(caller: Caller) -> None:
    """The stream ends at the question; the answer names the task and not the context."""
    events = await heard(caller.stream(said("Plan a trip", "trip")))
    same(last_state(events), "TASK_STATE_INPUT_REQUIRED", "last state")
    task = events[0].task
    question = events[-1].status_update.status.message
    same(text_of(question), "Which city?", "question")

    events = await heard(caller.stream(said("Lisbon", task=task.id)))
    check_ids(events, task)
    same(last_state(events), "TASK_STATE_COMPLETED", "last state")
    chunks = [e.artifact_update.artifact for e in events if e.HasField("artifact_update")]
    same("".join(map(text_of, chunks)), "A trip to Lisbon", "text")


async def unknown_task(caller: Caller) -> None:
    nobody = str(uuid4())
    await refused(caller.get(nobody), TaskNotFoundError)
    await refused(caller.cancel(nobody), TaskNotFoundError)
    await refused(heard(caller.subscribe(nobody)), TaskNotFoundError)
    await refused(caller.send(said("hello", task=nobody)), TaskNotFoundError)


async def finished_task(caller: Caller) -> None:
    task = await caller.send(said("done"))
    await refused(caller.cancel(task.id), TaskNotCancelableError)
    if not caller.legacy:
        await refused(caller.send(said("more", task=task.id)), UnsupportedOperationError)
        await refused(heard(caller.subscribe(task.id)), UnsupportedOperationError)


async def parts(caller: Caller) -> None:
    """Files and data arrive whole, and come back whole."""
    raw = bytes(range(256))
    facts = {"city": "Kyoto", "days": 3, "open": True, "tags": ["a", "b"], "none": None}
    link = "https://example.com/report.pdf"
    message = said("look", "files")
    message.parts.extend(
        [
            Part(raw=raw, filename="bytes.bin", media_type="application/octet-stream"),
            Part(url=link, filename="report.pdf", media_type="application/pdf"),
            ParseDict({"data": facts}, Part()),
        ]
    )
    if not caller.legacy:
        message.parts.append(ParseDict({"data": [1, "two", None]}, Part()))

    task = await caller.send(message)
    in_state(task, COMPLETED)
    back = [part for artifact in task.artifacts for part in artifact.parts]
    kinds = ["data", "raw", "raw", "url", "data"] + ["data"] * (not caller.legacy)
    same([part.WhichOneof("content") for part in back], kinds, "parts")
    same(MessageToDict(back[0].data), {"files": 2, "bytes": 256, "facts": facts}, "what it saw")
    same(back[1].raw, raw[::-1], "made bytes")
    same(back[2].raw, raw, "bytes")
    same((back[2].filename, back[2].media_type), ("bytes.bin", "application/octet-stream"), "file")
    same(back[3].url, link, "link")
    same((back[3].filename, back[3].media_type), ("report.pdf", "application/pdf"), "link")
    same(MessageToDict(back[4].data), facts, "data")
    if not caller.legacy:
        same(MessageToDict(back[5].data), [1, "two", None], "data that is no object")


Scenario = Callable[[Caller], Awaitable[None]]
SCENARIOS: list[Scenario] = [
    card,
    send,
    send_without_waiting,
    stream,
    get,
    list_tasks,
    cancel,
    resubscribe,
    resubscribe_until_canceled,
    multi_turn,
    multi_turn_stream,
    unknown_task,
    finished_task,
    parts,
]
NOT_IN_0_3 = {list_tasks}


async def run(scenario: Scenario, url: str, version: str) -> bool:
    wire = Wire()
    caller = Caller(url.rstrip("/"), version, wire)
    detail = ""
    try:
        async with asyncio.timeout(PATIENCE):
            await caller.connect()
            await scenario(caller)
    except Exception:
        detail = traceback.format_exc() + "\n".join(line[:2000] for line in wire.seen[-40:])
    finally:
        await caller.http.aclose()
    print(json.dumps({"scenario": scenario.__name__, "ok": not detail, "detail": detail}))
    return not detail


async def main(url: str, version: str, *only: str) -> int:
    chosen = [
        s
        for s in SCENARIOS
        if (not only or s.__name__ in only) and not (version.startswith("0.3") and s in NOT_IN_0_3)
    ]
    results = [await run(scenario, url, version) for scenario in chosen]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
