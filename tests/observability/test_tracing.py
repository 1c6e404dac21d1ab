"""Spans for OpenTelemetry: each call, run, step, remote call and webhook, in one trace."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dragoman import Agent, State, Turn, connect, spans
from dragoman.observability.tracing import OtelTracer
from dragoman.settings import Limits, Push, Server, Settings
from dragoman.testing import served
from waiting import forever, until
from webhooks.receiver import Receiver

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    """What a collector would get of this process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans.tracer = OtelTracer(provider.get_tracer("dragoman"))
    yield exporter
    spans.tracer = None


def desk() -> Agent:
    agent = Agent("Desk", description="Works")

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        return str(await turn.step("double", lambda: turn.text * 2))

    @agent.skill("crash")
    async def crash(turn: Turn) -> str:
        raise ValueError("a bug")

    @agent.skill("fail")
    async def fail(turn: Turn) -> str:
        raise turn.fail("out of paper")

    @agent.skill("reject")
    async def reject(turn: Turn) -> str:
        raise turn.reject("not today")

    @agent.skill("slow", timeout=0.05)
    async def slow(turn: Turn) -> None:
        await forever()

    return agent


def named(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def id_of(span: ReadableSpan) -> int:
    about = span.get_span_context()
    assert about is not None
    return about.span_id


@pytest.mark.parametrize("streams", [False, True], ids=["send", "stream"])
async def test_a_call_its_run_and_its_steps_are_one_trace(
    exported: InMemorySpanExporter, streams: bool
) -> None:
    async with served(desk()) as url, connect(url) as agent:
        agent = agent.bearing(trace=PARENT)
        if streams:
            await agent.stream("ab").result()
        else:
            await agent.send("ab")

    found = named(exported)
    asked, call = found["call Desk SendMessage"], found["desk SendMessage"]
    run, step = found["run work"], found["step double"]
    assert parent_of(asked) == int("b7ad6b7169203331", 16)
    assert parent_of(call) == id_of(asked)
    assert parent_of(run) == id_of(call)
    assert parent_of(step) == id_of(run)
    for span in (asked, call, run, step):
        about = span.get_span_context()
        assert about is not None
        assert f"{about.trace_id:032x}" == TRACE
    assert (asked.kind, call.kind) == (trace.SpanKind.CLIENT, trace.SpanKind.SERVER)
    assert call.attributes is not None
    assert call.attributes["rpc.method"] == "SendMessage"
    assert call.attributes["rpc.system"] == "a2a-1.0"
    assert run.attributes is not None
    assert run.attributes["dragoman.task"] == call.attributes["dragoman.task"]
    assert run.attributes["dragoman.attempt"] == 1


async def test_an_agent_that_calls_another_passes_the_trace_on(
    exported: InMemorySpanExporter,
) -> None:
    boss = Agent("Boss", description="Asks")

    @boss.skill("ask")
    async def ask(turn: Turn) -> str:
        return (await turn.agent(url).send(turn.text)).text

    async with served(desk()) as url, served(boss) as front, connect(front) as agent:
        await agent.send("ab")
    found = named(exported)
    assert parent_of(found["call Desk SendMessage"]) == id_of(found["run ask"])
    assert parent_of(found["desk SendMessage"]) == id_of(found["call Desk SendMessage"])


async def test_a_run_that_fails_is_an_error_with_its_type_and_the_id_in_the_log(
    exported: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(desk()) as url, connect(url) as agent:
        crashed = await agent.send("x", skill="crash")
        failed = await agent.send("x", skill="fail")
        late = await agent.send("x", skill="slow")
        assert {each.state for each in (crashed, failed, late)} == {State.FAILED}
        assert (await agent.send("x", skill="reject")).state is State.REJECTED
    found = named(exported)
    crash, fail, slow = (found[f"run {name}"] for name in ("crash", "fail", "slow"))
    for span in (crash, fail, slow):
        assert span.status.status_code is trace.StatusCode.ERROR, span.name
    assert crash.attributes["error.type"] == "ValueError"
    assert fail.attributes["error.type"] == "Failed"
    assert slow.attributes["error.type"] == slow.attributes["dragoman.reason"] == "agent_timed_out"
    (event,) = crash.events
    assert event.attributes["exception.type"] == "ValueError"
    incident = crash.attributes["dragoman.error"]
    (logged,) = (each for each in caplog.messages if each.startswith("The skill crashed"))
    assert logged.endswith(f"error={incident}")
    assert incident in crashed.status.message.text
    assert found["run reject"].status.is_unset


async def test_a_crash_is_an_error_and_a_wrong_request_is_not(
    exported: InMemorySpanExporter,
) -> None:
    async with served(desk()) as url, connect(url) as agent:
        task = await agent.send("x", skill="crash")
        assert task.state is State.FAILED
        with pytest.raises(Exception, match="no such task"):
            await agent.get("nowhere")
    found = named(exported)
    assert found["run crash"].attributes["dragoman.state"] == "failed"
    assert found["desk GetTask"].status.is_unset
    assert found["desk GetTask"].attributes["dragoman.reason"] == "task_not_found"


async def test_a_webhook_belongs_to_the_run_and_carries_its_trace(
    exported: InMemorySpanExporter,
) -> None:
    async with Receiver() as receiver:
        settings = Settings(server=Server(store="memory:", allow_private=True))
        async with served(desk(), settings) as url, connect(url) as agent:
            await agent.send("ab", hook=receiver.url)
            await until(lambda: "webhook" in named(exported))
    sent = [span for span in exported.get_finished_spans() if span.name == "webhook"]
    run = named(exported)["run work"]
    assert {parent_of(span) for span in sent} == {id_of(run)}
    heard = {call.headers["traceparent"].split("-")[2] for call in receiver.heard}
    assert heard <= {f"{id_of(span):016x}" for span in sent}


@pytest.mark.slow  # starts processes
def test_without_a_tracer_nothing_of_it_is_loaded_or_in_the_way() -> None:
    code = (
        "import sys, asyncio\n"
        "from dragoman import Agent\n"
        "from dragoman.app import create_app\n"
        "from dragoman.settings import Server, Settings\n"
        "app = create_app(Agent('a'), Settings(server=Server(store='memory:')))\n"
        "print([m for m in sys.modules if 'tracing' in m or 'opentelemetry' in m])\n"
        "print(type(app.server.peer).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules, peer = done.stdout.splitlines()
    assert modules == "['dragoman.settings.tracing']"
    assert "Tracing" not in peer


@pytest.mark.slow  # starts processes
def test_a_server_with_tracing_sends_over_otlp_or_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "if sys.argv[1:]: sys.modules['opentelemetry.sdk.trace'] = None\n"
        "from dragoman.observability.tracing import set_up\n"
        "from dragoman.settings import Tracing\n"
        "set_up(Tracing(enabled=True, service='desk'))\n"
        "from opentelemetry import trace\n"
        "print(dict(trace.get_tracer_provider().resource.attributes)['service.name'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "desk", done.stderr
    done = subprocess.run(
        [sys.executable, "-c", code, "missing"], capture_output=True, text=True, check=False
    )
    assert 'pip install "dragoman[otel]"' in done.stderr


def test_the_setting_enables_it() -> None:
    from dragoman.settings import load

    assert load({"tracing": True}).tracing.enabled
    assert load({}, {"DRAGOMAN_TRACING_ENABLED": "true"}).tracing.enabled
    assert replace(load({}).tracing, enabled=True) == load({"tracing": True}).tracing


def trace_of(span: ReadableSpan) -> str:
    about = span.get_span_context()
    assert about is not None
    return f"{about.trace_id:032x}"


async def test_a_task_that_one_replica_takes_another_runs_and_a_third_reads_is_one_trace(
    exported: InMemorySpanExporter, tmp_path: Path
) -> None:
    busy, go_on = asyncio.Event(), asyncio.Event()
    # The first replica has one place, and it is taken.
    few = Settings(server=Server(store=f"sqlite:///{tmp_path}/tasks.db"), limits=Limits(max_runs=1))
    many = replace(few, limits=Limits())

    def desk_of(name: str) -> Agent:
        agent = Agent("Desk", description="Works")

        @agent.skill("work", default=True)
        async def work(turn: Turn) -> str:
            return str(await turn.step("where", lambda: name))

        @agent.skill("wait")
        async def wait(turn: Turn) -> None:
            busy.set()
            await go_on.wait()

        return agent

    async with served(desk_of("A"), few) as first, connect(first) as a:
        await a.send("x", skill="wait", wait=False)
        await busy.wait()
        async with served(desk_of("B"), many), served(desk_of("C"), few) as third:
            async with connect(third) as c:
                sent = await a.bearing(trace=PARENT).send("ab", wait=False)
                reader = c.bearing(trace=PARENT)
                assert [event async for event in reader.watch(sent, 0)][-1].seq > 2
                ended = await reader.get(sent.id)
                assert ended.text in ("B", "C"), "the first replica had no place"
            go_on.set()
    mine = [
        span
        for span in exported.get_finished_spans()
        if trace_of(span) == TRACE and span.name != "run wait"
    ]
    names = {span.name for span in mine}
    assert {"desk SendMessage", "run work", "step where", "desk Watch", "desk GetTask"} <= names
    by_name = {span.name: span for span in mine}
    assert parent_of(by_name["run work"]) == id_of(by_name["desk SendMessage"])


async def test_a_webhook_that_another_replica_calls_belongs_to_the_trace_of_its_task(
    exported: InMemorySpanExporter, tmp_path: Path
) -> None:
    settings = Settings(
        server=Server(store=f"sqlite:///{tmp_path}/tasks.db", allow_private=True),
        push=Push(schedule=(0, *[0.2] * 100)),
    )
    async with Receiver() as receiver:
        url = receiver.url
        await receiver.down()
        async with served(desk(), settings) as first, connect(first) as agent:
            await agent.bearing(trace=PARENT).send("ab", hook=url)
        # Another process has its own tracer, which has not seen the run.
        assert isinstance(spans.tracer, OtelTracer)
        spans.tracer = OtelTracer(spans.tracer._tracer)
        exported.clear()
        await receiver.up()
        async with served(desk(), settings):
            await until(lambda: receiver.heard)
            await until(lambda: "webhook" in named(exported))
    sent = [span for span in exported.get_finished_spans() if span.name == "webhook"]
    assert {trace_of(span) for span in sent} == {TRACE}
