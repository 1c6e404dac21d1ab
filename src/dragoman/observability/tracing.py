"""Makes spans with OpenTelemetry: one for each call, run, step, remote call and webhook.

The package is an extra, and is imported here when tracing is enabled. A program that has set up a
tracer provider keeps it, and finds our spans there; otherwise spans are sent over OTLP, as the
variables of OpenTelemetry say. Spans are linked by `Context.trace`, the W3C traceparent: a call
hands its own to the run that it opens, which is stored with the task, so a run after a crash
belongs to the same trace.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from msgspec.structs import replace

from dragoman import spans
from dragoman.core.errors import CallError, ConfigError, DragomanError
from dragoman.core.events import Stamped
from dragoman.core.model import Task
from dragoman.core.operations import Operation, R, Streamed
from dragoman.core.peer import Batch, Context, Peer
from dragoman.settings import Tracing
from dragoman.spans import NOTHING, About, Kind, Span, Tracer, Value

MOST_TASKS = 10_000
"""The tasks whose spans are remembered, for webhooks that are called later."""


def set_up(settings: Tracing) -> None:
    """Sets the tracer of the process, if the settings enable it. Raises `ConfigError` if the
    packages are missing."""
    if not settings.enabled or spans.tracer is not None:
        return
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as exc:
        raise _missing(exc) from exc
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(_provider(settings.service))
    spans.tracer = OtelTracer(trace.get_tracer("dragoman"))


def _provider(service: str) -> Any:
    """Returns a provider that sends spans as the variables of OpenTelemetry say."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as exc:
        raise _missing(exc) from exc
    own = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(own))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _missing(exc: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f'Tracing needs {exc.name}: pip install "dragoman[otel]"')


class OtelSpan:
    """A span of OpenTelemetry."""

    def __init__(self, span: Any) -> None:
        self.span = span
        self._ended = False

    @property
    def traceparent(self) -> str:
        """The span as a W3C traceparent."""
        about = self.span.get_span_context()
        if not about.is_valid:
            return ""
        return f"00-{about.trace_id:032x}-{about.span_id:016x}-{int(about.trace_flags):02x}"

    def set(self, **attributes: Value) -> None:
        """Adds attributes. Those of ours have a prefix."""
        self.span.set_attributes(_named(attributes))

    def fail(self, failure: BaseException | str) -> None:
        """Says that the work failed: with this exception, or without one for this reason."""
        from opentelemetry.trace import Status, StatusCode

        kind = failure if isinstance(failure, str) else type(failure).__name__
        if not isinstance(failure, str):
            self.span.record_exception(failure)
        self.span.set_attribute("error.type", kind)
        self.span.set_status(Status(StatusCode.ERROR, kind))

    def end(self, error: BaseException | None = None) -> None:
        """Ends the span. A refusal of the caller's own mistake is no error of ours."""
        if self._ended:
            return
        self._ended = True
        if isinstance(error, DragomanError):
            self.set(reason=error.reason)
        if isinstance(error, Exception) and not isinstance(error, CallError):
            self.fail(error)
        self.span.end()


class OtelTracer:
    """Makes spans of OpenTelemetry; implements `dragoman.spans.Tracer`."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer, self._trace = tracer, trace
        self._propagator = TraceContextTextMapPropagator()
        self._kinds = {
            "server": trace.SpanKind.SERVER,
            "client": trace.SpanKind.CLIENT,
            "internal": trace.SpanKind.INTERNAL,
        }
        self._tasks: OrderedDict[str, str] = OrderedDict()

    def start(
        self, name: str, kind: Kind = "internal", parent: str = "", about: About = NOTHING
    ) -> OtelSpan:
        """Returns a span that its caller ends."""
        around = self._propagator.extract({"traceparent": parent}) if parent else None
        return OtelSpan(self._tracer.start_span(name, around, self._kinds[kind], _named(about)))

    @contextmanager
    def span(
        self, name: str, kind: Kind = "internal", parent: str = "", about: About = NOTHING
    ) -> Iterator[Span]:
        """Returns a span around a block."""
        made = self.start(name, kind, parent, about)
        use = self._trace.use_span(
            made.span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )
        error: BaseException | None = None
        try:
            with use:
                yield made
        except BaseException as exc:
            error = exc
            raise
        finally:
            made.end(error)

    def current(self) -> str:
        """Returns the traceparent of the span around us, or an empty text."""
        return OtelSpan(self._trace.get_current_span()).traceparent

    def remember(self, task: str, traceparent: str) -> None:
        """Remembers the span of a task, for work that is done for it later."""
        self._tasks[task] = traceparent
        if len(self._tasks) > MOST_TASKS:
            self._tasks.popitem(last=False)

    def recall(self, task: str) -> str:
        """Returns the span of a task, or an empty text if it is not known here."""
        return self._tasks.get(task, "")


def _named(attributes: About) -> dict[str, Value]:
    """Returns attributes under the names of OpenTelemetry, or of ours with a prefix."""
    return {_NAMES.get(name, f"dragoman.{name}"): value for name, value in attributes.items()}


_NAMES = {"method": "rpc.method", "dialect": "rpc.system", "status": "http.response.status_code"}


class TracingPeer:
    """A peer whose calls have spans. It stands in front of an agent only if there is a tracer."""

    def __init__(self, tracer: Tracer, agent: str, peer: Peer) -> None:
        self._tracer, self._agent, self._peer = tracer, agent, peer

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the answer."""
        with self._tracer.span(*self._about(op, ctx)) as span:
            answer = await self._peer.call(op, replace(ctx, trace=span.traceparent))
            if isinstance(answer, Task):
                span.set(task=answer.id, state=str(answer.state))
            return answer

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields every event. The span ends with the stream."""
        span = self._tracer.start(*self._about(op, ctx))
        named = False
        error: BaseException | None = None
        try:
            inner = self._peer.stream(op, replace(ctx, trace=span.traceparent))
            async with aclosing(inner) as batches:
                async for batch in batches:
                    if not named and batch.entries and isinstance(batch.entries[0], Stamped):
                        named = True
                        span.set(task=batch.entries[0].task_id)
                    yield batch
        except Exception as exc:
            error = exc
            raise
        finally:
            span.end(error)

    def _about(self, op: Operation[Any], ctx: Context) -> tuple[str, Kind, str, About]:
        method = type(op).__name__
        about = {"agent": self._agent, "method": method, "dialect": ctx.dialect}
        # A framework around us may have a span for the request already.
        return f"{self._agent} {method}", "server", self._tracer.current() or ctx.trace, about
