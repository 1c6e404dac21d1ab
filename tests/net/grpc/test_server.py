"""A2A over a real gRPC channel, both versions: what callers ask, hear and may break."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from dragoman.dialects.a2a.proto import reader
from dragoman.server.app import App
from dragoman.settings import Limits
from waiting import until

from .conftest import Caller, state, text

CURSOR = "urn:dragoman:cursor:1"
MARKED = (("a2a-extensions", CURSOR),)


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def heard(call: Any, before: list[Any] | None = None) -> list[Any]:
    """Everything up to the end, after what was read before."""
    steps = [] if before is None else before
    while (step := await call.read()) is not grpc.aio.EOF:
        steps.append(step)
    return steps


def kind(step: Any) -> str:
    return str(step.WhichOneof("payload"))


def seqs(steps: list[Any]) -> list[int]:
    return [int(getattr(step, kind(step)).metadata[CURSOR]) for step in steps]


async def some(call: Any, count: int) -> list[Any]:
    return [await call.read() for _ in range(count)]


async def test_a_send_is_answered_with_the_finished_task(caller: Caller) -> None:
    task = await caller.send("hello, wörld 你好")
    assert (state(task), text(task)) == ("COMPLETED", "HELLO, WÖRLD 你好")
    assert [message.message_id for message in task.history] == ["m"]
    assert task.status.timestamp.seconds > 1_700_000_000
    again = await caller.get(task.id)
    assert again == task
    if caller.new:
        assert not (await caller.get(task.id, history_length=0)).history
    assert len((await caller.get(task.id, history_length=1)).history) == 1


async def test_who_does_not_say_how_to_wait(caller: Caller) -> None:
    """1.0 waits; 0.3 cannot tell `blocking: false` from none and does not (a2a-wire D7)."""
    message = caller.message("go", "slow")
    request = {"message" if caller.new else "request": message}
    call = caller.method("SendMessage")(request, timeout=1.0)
    if caller.new:
        assert (await failure(call)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    else:
        assert state((await call).task) in ("SUBMITTED", "WORKING")


async def test_a_stream_tells_every_step(caller: Caller) -> None:
    steps = await heard(caller.stream("3", "count"))
    assert [kind(step) for step in steps] == [
        *("task", "status_update"),
        *["artifact_update"] * 3,
        "status_update",
    ]
    chunks = [step.artifact_update for step in steps[2:5]]
    assert [chunk.artifact.parts[0].text for chunk in chunks] == ["0 ", "1 ", "2 "]
    assert [chunk.append for chunk in chunks] == [False, True, True]
    assert [chunk.last_chunk for chunk in chunks] == [False, False, True]
    assert state(steps[-1].status_update) == "COMPLETED"
    if not caller.new:
        assert [step.status_update.final for step in (steps[1], steps[-1])] == [False, True]
    assert not any(getattr(step, kind(step)).HasField("metadata") for step in steps)


async def test_a_cut_stream_goes_on_where_it_was(caller: Caller) -> None:
    call = caller.stream("9", "count", metadata=MARKED)
    begun = await some(call, 4)
    call.cancel()
    task_id = begun[0].task.id
    rest = await heard(caller.watch(task_id, metadata=(*MARKED, ("last-event-id", "4"))))
    assert seqs(begun + rest) == list(range(1, 13))
    assert state(rest[-1].status_update) == "COMPLETED"


async def test_the_end_of_a_stream_tells_its_place_and_the_extensions(caller: Caller) -> None:
    call = caller.stream("1", "count", metadata=(*MARKED, ("a2a-extensions", "urn:else")))
    steps = await heard(call)
    trailers = dict(await call.trailing_metadata())
    assert trailers["last-event-id"] == str(len(steps))
    # Said under the name that the version has for it (a2a-wire §11.1).
    assert trailers["a2a-extensions" if caller.new else "x-a2a-extensions"] == CURSOR


async def test_a_caller_that_leaves_stops_its_stream_and_not_the_task(
    app: App, caller: Caller
) -> None:
    call = caller.stream("go", "slow")
    steps = await some(call, 4)
    call.cancel()
    task_id = steps[0].task.id
    await until(lambda: not app.server.streams)
    assert state(await caller.get(task_id)) == "WORKING"
    watching = caller.watch(task_id)
    assert kind(await watching.read()) == "task"
    assert state(await caller.cancel(task_id)) == "CANCELED"
    assert state((await heard(watching))[-1].status_update) == "CANCELED"


async def test_a_unary_caller_that_leaves_does_not_stop_the_task(app: App, caller: Caller) -> None:
    request = caller.request(caller.message("go", "slow"))
    call = caller.method("SendMessage")(request, metadata=(("idempotency-key", "k"),))
    await until(lambda: app.mounts[""].peer.runner.runs)  # type: ignore[attr-defined]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    again = caller.request(caller.message("go", "slow"), wait=False)
    same = caller.method("SendMessage")(again, metadata=(("idempotency-key", "k"),))
    task = (await same).task
    assert state(task) == "WORKING"
    await caller.cancel(task.id)


async def test_a_reader_that_does_not_read_holds_the_agent_back(app: App, caller: Caller) -> None:
    """Chunks wait in the log, not in our memory; read later, they all come."""
    call = caller.stream("300", "flood")
    await some(call, 2)
    await until(lambda: app.server.deadlines.waits)  # it waits for the reader
    assert app.server.metrics.events < 200  # gRPC's own windows take some of the 19 MiB
    steps = await heard(call)
    chunks = [step for step in steps if kind(step) == "artifact_update"]
    assert len(chunks) == 300


class TestStalled:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(stall=0.5)

    async def test_a_reader_that_never_reads_is_cut(self, app: App, caller: Caller) -> None:
        call = caller.stream("400", "flood")
        got = await some(call, 1)
        await until(lambda: app.server.metrics.streams_stalled)
        assert not app.server.streams
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await heard(call, got)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        # The write that was cut off may have arrived all the same.
        position = int(dict(caught.value.trailing_metadata())["last-event-id"])
        assert len(got) - 1 <= position <= len(got) < 400


async def test_a_question_is_answered_in_a_second_turn(caller: Caller) -> None:
    asked = await caller.send("Plan", "trip")
    assert state(asked) == "INPUT_REQUIRED"
    question = asked.status.message if caller.new else asked.status.update
    parts = question.parts if caller.new else question.content
    assert parts[0].text == "Which city?"
    done = await caller.send("Kyoto", task_id=asked.id)
    assert (done.id, state(done), text(done)) == (asked.id, "COMPLETED", "A trip to Kyoto")


async def test_a_direct_reply_is_a_message(caller: Caller) -> None:
    request = caller.request(caller.message("hi", "greet"))
    answer = await caller.method("SendMessage")(request)
    (step,) = await heard(caller.stream("hi", "greet"))
    for found in (answer, step):
        message = found.message if caller.new else found.msg
        parts = message.parts if caller.new else message.content
        assert parts[0].text == "hello yourself"


async def test_files_and_data_come_and_go_whole(caller: Caller) -> None:
    raw, facts = bytes(range(256)), {"city": "Kyoto", "days": 3, "none": None, "tags": ["a", {}]}
    if caller.new:
        sent = [
            {"raw": raw, "filename": "b.bin", "media_type": "application/octet-stream"},
            {"url": "https://example.com/r.pdf", "filename": "r.pdf"},
            {"data": {"struct_value": facts}},
        ]
        message = caller.message("look", "files", parts=[{"text": "look"}, *sent])
    else:
        import base64

        bytes_out = base64.b64encode(raw)
        sent = [
            {"file": {"file_with_bytes": bytes_out, "name": "b.bin", "mime_type": "a/b"}},
            {"file": {"file_with_uri": "https://example.com/r.pdf", "name": "r.pdf"}},
            {"data": {"data": facts}},
        ]
        message = caller.message("look", "files", content=[{"text": "look"}, *sent])
    task = (await caller.method("SendMessage")(caller.request(message))).task
    back = [part for artifact in task.artifacts for part in artifact.parts]
    if caller.new:
        saw = MessageToDict(back[0].data)
        assert [part.WhichOneof("content") for part in back[1:]] == ["raw", "raw", "url", "data"]
        assert (back[1].raw, back[2].raw, back[2].filename) == (raw[::-1], raw, "b.bin")
        assert (back[3].url, MessageToDict(back[4].data)) == (sent[1]["url"], facts)
    else:
        saw = MessageToDict(back[0].data.data)
        assert back[1].file.file_with_bytes == base64.b64encode(raw[::-1])
        assert (back[2].file.file_with_bytes, back[2].file.name) == (bytes_out, "b.bin")
        assert back[3].file.file_with_uri == "https://example.com/r.pdf"
        assert MessageToDict(back[4].data.data) == facts
    assert saw == {"bytes": 256, "facts": facts}


NAMES = {"task_not_found": "TaskNotFoundError", "bad": "InvalidParamsError"}


async def test_an_unknown_task_is_told_as_its_version_tells_it(caller: Caller) -> None:
    error = await failure(caller.get("nobody"))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    trailers = dict(error.trailing_metadata())
    if not caller.new:
        assert error.details().startswith("TaskNotFoundError: ")
    status = reader("google.rpc.Status")(trailers["grpc-status-details-bin"])
    assert (status.code, status.message) == (5, error.details())
    (detail,) = status.details
    assert detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    info = reader("google.rpc.ErrorInfo")(detail.value)
    assert (info.reason, info.domain) == ("TASK_NOT_FOUND", "a2a-protocol.org")


async def test_a_wrong_request_names_the_field(caller: Caller) -> None:
    message = caller.message("hi") | {"message_id": ""}
    error = await failure(caller.method("SendMessage")(caller.request(message)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    if caller.new:
        trailers = dict(error.trailing_metadata())
        status = reader("google.rpc.Status")(trailers["grpc-status-details-bin"])
        bad = reader("google.rpc.BadRequest")(status.details[1].value)
        assert bad.field_violations[0].field == "message.messageId"
    else:
        assert error.details().startswith("InvalidParamsError: ")


@pytest.mark.parametrize("metadata", [("last-event-id", "x"), ("a2a-version", "9.9")])
async def test_wrong_metadata_is_refused(caller: Caller, metadata: tuple[str, str]) -> None:
    error = await failure(caller.method("GetTask")(caller.named("t"), metadata=(metadata,)))
    wrong_version = metadata[0] == "a2a-version"
    expected = grpc.StatusCode.INVALID_ARGUMENT
    if wrong_version:
        expected = grpc.StatusCode.FAILED_PRECONDITION
    assert error.code() is expected


async def test_another_versions_header_does_not_fit(caller: Caller) -> None:
    other = "0.3" if caller.new else "1.0"
    call = caller.method("GetTask")(caller.named("t"), metadata=(("a2a-version", other),))
    assert "Version" in (await failure(call)).details()


async def test_a_crash_of_ours_tells_only_an_id(app: App, caller: Caller) -> None:
    async def broken(*args: Any) -> None:
        raise RuntimeError("secret words")

    app.server.peer = type("Broken", (), {"call": broken})()  # type: ignore[assignment]
    error = await failure(caller.get("t"))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(error)
    assert "Internal error " in error.details()


async def test_an_agent_that_fails_is_a_failed_task(caller: Caller) -> None:
    task = await caller.send("go", "crash")
    assert state(task) == "FAILED"
    assert "secret" not in str(task)


class TestTooLarge:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(body_size=10_000)

    async def test_a_request_that_is_too_large(self, caller: Caller) -> None:
        assert text(await caller.send("x" * 5_000)) == "X" * 5_000
        request = caller.request(caller.message("x" * 11_000))
        error = await failure(caller.method("SendMessage")(request))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


class TestStreamsLimit:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(streams=1)

    async def test_one_stream_more_than_allowed(self, caller: Caller) -> None:
        first = caller.stream("go", "slow")
        await some(first, 2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await heard(caller.stream("1", "count"))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()


async def test_an_idempotent_send_gives_the_same_task(caller: Caller) -> None:
    request = caller.request(caller.message("once"))
    send = caller.method("SendMessage")
    key = (("idempotency-key", "key-1"),)
    first, second = await send(request, metadata=key), await send(request, metadata=key)
    assert first.task.id == second.task.id
    other = caller.request(caller.message("twice"))
    error = await failure(send(other, metadata=key))
    assert error.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_a_foreign_tenant_is_refused(channel: grpc.aio.Channel) -> None:
    caller = Caller(channel, "1.0")
    error = await failure(caller.method("GetTask")({"id": "t", "tenant": "acme"}))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_tasks_are_listed(channel: grpc.aio.Channel) -> None:
    caller = Caller(channel, "1.0")
    first = await caller.send("one")
    second = await caller.send("two", context_id=first.context_id)
    list_tasks = caller.method("ListTasks")
    page = await list_tasks({"context_id": first.context_id, "page_size": 1})
    assert [task.id for task in page.tasks] == [second.id]
    assert (page.page_size, page.total_size) == (1, 2)
    rest = await list_tasks({"context_id": first.context_id, "page_token": page.next_page_token})
    assert [(task.id, text(task)) for task in rest.tasks] == [(first.id, "")]
    whole = await list_tasks({"context_id": first.context_id, "include_artifacts": True})
    assert [text(task) for task in whole.tasks] == ["TWO", "ONE"]
    error = await failure(list_tasks({"page_size": 0}))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("rpc", ["ListTask", "ListTasks"])
async def test_0_3_lists_tasks_under_the_names_of_its_text(
    channel: grpc.aio.Channel, rpc: str
) -> None:
    caller = Caller(channel, "0.3")
    task = await caller.send("one")
    page = reader("a2a.v1.ListTasksResponse")(
        await channel.unary_unary(f"/a2a.v1.A2AService/{rpc}")(b"")
    )
    assert [found.id for found in page.tasks] == [task.id]
    assert page.total_size == 1


HOOKS = ("Create", "Get", "List", "Delete")


@pytest.mark.parametrize(
    ("rpc", "like"),
    [
        ("SubscribeToTask", "TaskSubscription"),
        ("SetTaskPushNotificationConfig", "CreateTaskPushNotificationConfig"),
        *((f"{verb}TaskPushNotification", f"{verb}TaskPushNotificationConfig") for verb in HOOKS),
    ],
)
async def test_0_3_answers_names_that_only_documents_have(
    channel: grpc.aio.Channel, rpc: str, like: str
) -> None:
    """Whatever the answer is, it is the same as under the name of the proto."""
    caller = Caller(channel, "0.3")
    kind = caller.service.methods_by_name[like].input_type
    fields: dict[str, Any] = {}
    if "name" in kind.fields_by_name:
        config = "/pushNotificationConfigs/c" if "Push" in rpc else ""
        fields = {"name": f"tasks/nobody{config}"}
    if "parent" in kind.fields_by_name:
        fields = {"parent": "tasks/nobody"}
    answers = []
    for name in (rpc, like):
        call = caller.method(name, like)(fields)
        error = await failure(heard(call) if rpc == "SubscribeToTask" else call)
        answers.append((error.code(), error.details()))
    assert answers[0] == answers[1]
    assert answers[0][0] is not grpc.StatusCode.UNIMPLEMENTED or "Error: " in answers[0][1]


async def test_0_3_answers_both_names_of_the_card(channel: grpc.aio.Channel) -> None:
    caller = Caller(channel, "0.3")
    names = ("GetAgentCard", "GetExtendedAgentCard")
    cards = [await caller.method(name, "GetAgentCard")({}) for name in names]
    assert cards[0].name == "Desk"
    assert cards[0] == cards[1]


async def test_an_unknown_rpc_is_unimplemented(caller: Caller) -> None:
    call = caller.channel.unary_unary(f"/{caller.package}.A2AService/Nonsense")(b"")
    assert (await failure(call)).code() is grpc.StatusCode.UNIMPLEMENTED


async def test_bytes_that_are_no_message(caller: Caller) -> None:
    call = caller.channel.unary_unary(f"/{caller.package}.A2AService/GetTask")(b"\xff\xff")
    assert (await failure(call)).code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_health_and_reflection(channel: grpc.aio.Channel) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    check = health_pb2_grpc.HealthStub(channel).Check
    for service in ("", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"):
        told = await check(health_pb2.HealthCheckRequest(service=service))
        assert told.status == health_pb2.HealthCheckResponse.SERVING
    ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
    request = reflection_pb2.ServerReflectionRequest
    asked = [
        request(list_services=""),
        request(file_containing_symbol="lf.a2a.v1.A2AService"),
        request(file_containing_symbol="a2a.v1.A2AService"),
        request(file_containing_symbol="grpc.health.v1.Health"),
    ]
    listed, *files = [answer async for answer in ask(iter(asked))]
    names = {service.name for service in listed.list_services_response.service}
    assert {"lf.a2a.v1.A2AService", "a2a.v1.A2AService", "dragoman.v1.Methods"} <= names
    for answer in files:
        assert answer.file_descriptor_response.file_descriptor_proto, answer


async def test_a_stop_tells_open_streams(app: App, channel: grpc.aio.Channel) -> None:
    caller = Caller(channel, "1.0")
    call = caller.stream("go", "slow")
    await some(call, 3)
    stopping = asyncio.create_task(app.stop())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await heard(call)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await stopping


async def test_the_card_names_both_versions(app: App) -> None:
    card = app.mounts[""].card_at("")
    urls = [(i.version, i.url) for i in card.interfaces if i.binding == "GRPC"]
    where = f"127.0.0.1:{app.ports['grpc']}"
    assert urls == [("1.0", where), ("0.3", where)]


async def test_webhooks_are_set_shown_and_ended(caller: Caller) -> None:
    config = "TaskPushNotificationConfig"
    task = await caller.send("go", "slow", wait=False)
    url = "http://127.0.0.1:9/hook"  # nobody there
    listing = {"task_id": task.id} if caller.new else {"parent": f"tasks/{task.id}"}
    if caller.new:
        made = await caller.method(f"Create{config}")({"task_id": task.id, "url": url})
        named = {"task_id": task.id, "id": made.id}
    else:
        asked = {"push_notification_config": {"url": url}}
        made = await caller.method(f"Create{config}")({**listing, "config": asked})
        named = {"name": made.name}
    assert (made.url if caller.new else made.push_notification_config.url) == url
    assert await caller.method(f"Get{config}")(named) == made
    list_all = caller.method(f"List{config}s" if caller.new else f"List{config}")
    assert list((await list_all(listing)).configs) == [made]
    await caller.method(f"Delete{config}")(named)
    assert not (await list_all(listing)).configs
    await caller.cancel(task.id)
