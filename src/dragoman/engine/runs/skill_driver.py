"""Runs an author's function, and turns its result, its chunks or its failure into events."""

from __future__ import annotations

import asyncio
import contextvars
import secrets
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from types import coroutine
from typing import Any

from msgspec.structs import replace

from dragoman.agent import Failed, Rejected, Shape, SyncTurn, Turn
from dragoman.agent.answers import CallRefused, Canceled
from dragoman.agent.parts import parts_of
from dragoman.core.errors import DragomanError
from dragoman.core.events import ArtifactChunk
from dragoman.core.log import Logger
from dragoman.core.model import Artifact, State
from dragoman.spans import About, Tracer

from .chunk_buffer import ChunkBuffer, JoiningBuffer
from .run import Run
from .stop_reason import StopReason

log = Logger("run")

SYNC_THREADS = 64
TOO_LONG = "The agent took too long"
_COMPLETED = State.COMPLETED
_COROUTINE, _GENERATOR, _PLAIN = Shape.COROUTINE, Shape.GENERATOR, Shape.PLAIN


async def perform(
    run: Run,
    threads: ThreadPoolExecutor,
    on_failure: Callable[[BaseException], None] = lambda failure: None,
) -> None:
    """Runs the skill to its end, and turns every outcome into the end of the task. `on_failure` is
    told the exception that failed it, which is not kept: its traceback holds the whole run."""
    allowed = run.opened.deadline
    seconds = run.skill.timeout if allowed is None else min(run.skill.timeout, allowed)
    run.deadline = run.shared.loop.time() + seconds
    try:
        if run.shared.receiver is not None:
            message = await run.shared.receiver(run, run.opened.message)
            run.opened = replace(run.opened, message=message)
        turn = Turn(run, run.skill.id)
        arguments = run.skill.params.read(run.opened.message)
        await _drive(run, turn, arguments, threads)
        run.finish(_COMPLETED)
    except asyncio.CancelledError as exc:
        if run.stop_reason is None:
            _crashed(run, exc)
            on_failure(exc)
        end_stopped(run)
    except Rejected as exc:
        run.finish(State.REJECTED, run.writer.closing_message(exc.message))
    except CallRefused as exc:
        await run.refuse(exc.error)
    except Canceled as exc:
        run.finish(State.CANCELED, run.writer.closing_message(exc.message), reason=exc.reason)
    except Failed as exc:
        run.fail(exc.message, exc.reason)
        on_failure(exc)
    except DragomanError as exc:
        log.warning("The skill failed", task=run.task_id, reason=exc.reason, why=exc)
        run.fail(exc.message, exc.reason)
        on_failure(exc)
    except (Exception, SystemExit) as exc:  # a skill that exits ends its task, not the server
        if exc is not run.writer.error:  # else the task was lost, and its waiters know that already
            _crashed(run, exc)
        on_failure(exc)


def stop(run: Run) -> None:
    """Stops the code of a run whose task is canceled or takes too long. If the code does not stop
    in its grace period, the task ends without it."""
    assert run.task is not None  # noqa: S101  only the code of a run can be stopped
    if run.on_stop is None:
        run.task.cancel()
    else:
        run.on_stop()
        end_stopped(run)
    run.grace = run.shared.loop.call_later(run.skill.cancel_grace, end_stopped, run)


def end_stopped(run: Run) -> None:
    """Ends the task of a run that was stopped."""
    if run.stop_reason is StopReason.TIMED_OUT:
        run.fail(TOO_LONG, "agent_timed_out")
    elif run.stop_reason is StopReason.CANCELED:
        run.finish(State.CANCELED)


async def perform_traced(tracer: Tracer, run: Run, threads: ThreadPoolExecutor) -> None:
    """Runs the skill in a span, whose parent is the call that opened the task."""
    about: About = {"task": run.task_id, "skill": run.skill.id, "attempt": run.attempt}
    with tracer.span(f"run {run.skill.id}", "internal", run.opened.trace, about) as span:
        tracer.remember(run.task_id, span.traceparent)
        seen = False

        def fail(failure: BaseException) -> None:
            nonlocal seen
            seen = True
            span.fail(failure)

        await perform(run, threads, fail)
        status = run.writer.fold.status
        span.set(state=str(status.state))
        if status.state is not State.FAILED or status.message is None:
            return
        # What the caller is told names the reason, and the id under which the log has the error.
        metadata = status.message.metadata or {}
        known = {key: str(metadata[key]) for key in ("reason", "error") if key in metadata}
        span.set(**known)
        if not seen:  # the code was stopped: it took too long, or the task became too large
            span.fail(known.get("reason", ""))


async def _drive(
    run: Run, turn: Turn, arguments: dict[str, Any], threads: ThreadPoolExecutor
) -> None:
    function = run.skill.function
    shape = run.skill.shape
    if shape is _COROUTINE:
        _result(run, turn, await function(turn, **arguments))
    elif shape is _GENERATOR:
        await _stream(run, turn, function(turn, **arguments))
    elif shape is _PLAIN:
        value = await _in_thread(threads, function, _sync(turn), **arguments)
        _result(run, turn, value)
    else:
        pieces = function(_sync(turn), **arguments)
        await _stream(run, turn, _from_thread(threads, pieces))


def _result(run: Run, turn: Turn, value: object) -> None:
    run.skill.params.check_result(value)
    parts = parts_of(value)
    if parts:
        artifact = Artifact(artifact_id=turn.next_artifact(), parts=parts)
        run.emit(ArtifactChunk(artifact=artifact, last=True))


async def _stream(run: Run, turn: Turn, pieces: AsyncGenerator[Any, Any]) -> None:
    """Sends each item of a generator as a chunk of one artifact."""
    seconds = run.skill.join
    chunks = (
        JoiningBuffer(run.put, turn.next_artifact, seconds)
        if seconds
        else ChunkBuffer(run.put, turn.next_artifact)
    )
    run.chunks = chunks
    writer, pause = run.writer, chunks.pause
    try:
        while True:
            try:
                item = await _peek(pieces.__anext__(), pause)
            except StopAsyncIteration:
                break
            chunks.add(parts_of(item))
            if writer.crowded:
                if run.over:
                    break
                await writer.throttle()
        if not run.over:
            chunks.end()
    finally:
        chunks.flush()  # chunks that were yielded before a failure are sent
        run.chunks = None
        await pieces.aclose()


@coroutine
def _peek(awaitable: Any, pausing: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Awaits something and calls back if it is not ready at once."""
    steps = awaitable.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as ready:
        return ready.value
    pausing()
    while True:
        try:
            sent = yield waits_for
        except BaseException as exc:
            try:
                waits_for = steps.throw(exc)
            except StopIteration as ready:
                return ready.value
        else:
            try:
                waits_for = steps.send(sent)
            except StopIteration as ready:
                return ready.value


def _sync(turn: Turn) -> SyncTurn:
    return SyncTurn(turn, asyncio.get_running_loop())


async def _in_thread(
    threads: ThreadPoolExecutor, function: Callable[..., Any], *args: Any, **kw: Any
) -> Any:
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, lambda: context.run(function, *args, **kw))


async def _from_thread(
    threads: ThreadPoolExecutor, pieces: Generator[Any, Any, Any]
) -> AsyncGenerator[Any, None]:
    over = object()
    while (item := await _in_thread(threads, next, pieces, over)) is not over:
        yield item


def _crashed(run: Run, exc: BaseException) -> None:
    """Logs the error with an id. The caller gets only the id (DESIGN §6)."""
    incident = secrets.token_hex(6)
    log.error("The skill crashed", exc, task=run.task_id, skill=run.skill.id, error=incident)
    text = f"The agent failed (error {incident})"
    run.fail(text, "agent_crashed", error=incident)
