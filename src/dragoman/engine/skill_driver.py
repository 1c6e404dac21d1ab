"""Drives an author's function: its result, its chunks or its failure become events of the run."""

from __future__ import annotations

import asyncio
import contextvars
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import coroutine
from typing import Any

from dragoman.agent import Failed, Rejected, Shape, SyncTurn, Turn
from dragoman.agent.parts import parts_of
from dragoman.core.errors import DragomanError
from dragoman.core.events import ArtifactChunk
from dragoman.core.log import Logger
from dragoman.core.model import AnyPart, Artifact, State, Text

from .run import Run, StopReason

log = Logger("run")

SYNC_THREADS = 64
TOO_LONG = "The agent took too long"


async def perform(run: Run, threads: ThreadPoolExecutor) -> None:
    """Runs the skill from the top to its end, whatever happens in it."""
    turn = Turn(run, run.skill.id)
    allowed = run.opened.deadline
    seconds = run.skill.timeout if allowed is None else min(run.skill.timeout, allowed)
    run.deadline = run.works.loop.time() + seconds
    try:
        arguments = run.skill.params.read(run.opened.message)
        await _drive(run, turn, arguments, threads)
        run.finish(State.COMPLETED)
    except asyncio.CancelledError as exc:
        if run.why is StopReason.TIMED_OUT:
            fail(run, TOO_LONG, "agent_timed_out")
        elif run.why is StopReason.CANCELED:
            run.finish(State.CANCELED)
        elif run.why is None:
            _crashed(run, exc)
    except Rejected as exc:
        run.finish(State.REJECTED, run.last_words(exc.message))
    except Failed as exc:
        fail(run, exc.message, exc.reason)
    except DragomanError as exc:
        log.warning("The skill failed", task=run.task_id, reason=exc.reason, why=exc)
        fail(run, exc.message, exc.reason)
    except (Exception, SystemExit) as exc:  # a skill that exits ends its task, not the server
        if exc is not run.error:  # else the task was lost, and who waits knows
            _crashed(run, exc)


async def _drive(
    run: Run, turn: Turn, arguments: dict[str, Any], threads: ThreadPoolExecutor
) -> None:
    function = run.skill.function
    match run.skill.shape:
        case Shape.COROUTINE:
            _result(run, turn, await function(turn, **arguments))
        case Shape.GENERATOR:
            await _stream(run, turn, function(turn, **arguments))
        case Shape.PLAIN:
            value = await _in_thread(threads, function, _sync(turn), **arguments)
            _result(run, turn, value)
        case Shape.PLAIN_GENERATOR:
            pieces = function(_sync(turn), **arguments)
            await _stream(run, turn, _from_thread(threads, pieces))


def _result(run: Run, turn: Turn, value: object) -> None:
    run.skill.params.check_result(value)
    parts = parts_of(value)
    if parts:
        artifact = Artifact(artifact_id=turn.next_artifact(), parts=parts)
        run.emit(ArtifactChunk(artifact=artifact, last=True))


async def _stream(run: Run, turn: Turn, pieces: AsyncGenerator[Any, Any]) -> None:
    """Each item is a chunk of one artifact. One is held back while the generator goes on without
    pausing, so that the last one can say that it is the last (DESIGN §4.1, Artifacts)."""
    out = _Joined(run, turn) if run.skill.join else _Chunks(run, turn)
    run.let_out, run.end_out = out.flush, out.end
    try:
        while True:
            try:
                item = await _peek(pieces.__anext__(), out.pause)
            except StopAsyncIteration:
                break
            out.put(parts_of(item))
            if run.crowded:
                if run.over:
                    break
                await run.room()
        if not run.over:
            out.end()
    finally:
        out.flush()  # what was given before a failure was given
        run.let_out = run.end_out = None
        await pieces.aclose()


class _Chunks:
    """Chunks on their way out, the latest held back until it is known whether more follow."""

    def __init__(self, run: Run, turn: Turn) -> None:
        self._run = run
        self._turn = turn
        self._id = ""
        self._append = False
        self._held: tuple[AnyPart, ...] = ()

    def put(self, parts: tuple[AnyPart, ...]) -> None:
        if parts:
            if self._held:
                self._emit(last=False)
            self._hold(parts)

    def _hold(self, parts: tuple[AnyPart, ...]) -> None:
        if not self._id:
            self._id = self._turn.next_artifact()
        self._held += parts

    def pause(self) -> None:
        """The generator waits for something: nobody knows how long."""
        if self._held:
            self._emit(last=False, now=True)

    def flush(self) -> None:
        """Emits what is held back."""
        if self._held:
            self._emit(last=False)

    def end(self) -> None:
        if self._id:
            self._held = self._held or (Text(""),)
            self._emit(last=True)

    def _emit(self, *, last: bool, now: bool = False) -> None:
        parts, self._held = self._held, ()
        append, self._append = self._append, True
        artifact = Artifact(artifact_id=self._id, parts=parts)
        self._run.put(ArtifactChunk(artifact=artifact, append=append, last=last), now=now)


class _Joined(_Chunks):
    """Chunks joined for the time the skill asked for: `@agent.skill(join=0.05)`."""

    def __init__(self, run: Run, turn: Turn) -> None:
        super().__init__(run, turn)
        self._timer: asyncio.TimerHandle | None = None

    def put(self, parts: tuple[AnyPart, ...]) -> None:
        if parts:
            self._hold(parts)
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._run.skill.join, self.flush)

    def pause(self) -> None:
        """Releases nothing; the timer does."""

    def _emit(self, *, last: bool, now: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held = tuple(_merged(self._held))
        super()._emit(last=last, now=now)


def _merged(parts: tuple[AnyPart, ...]) -> Iterator[AnyPart]:
    words: list[str] = []
    for part in parts:
        if type(part) is Text and not part.metadata:
            words.append(part.text)
            continue
        if words:
            yield Text("".join(words))
            words.clear()
        yield part
    if words:
        yield Text("".join(words))


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


def fail(run: Run, text: str, reason: str) -> None:
    """Ends the task as failed, with words for people and a reason for machines."""
    run.finish(State.FAILED, run.last_words(text), reason=reason)


def _crashed(run: Run, exc: BaseException) -> None:
    """The log gets everything, the caller only the id to ask for (DESIGN §6)."""
    incident = secrets.token_hex(6)
    log.error("The skill crashed", exc, task=run.task_id, skill=run.skill.id, error=incident)
    text = f"The agent failed (error {incident})"
    run.finish(State.FAILED, run.last_words(text), reason="agent_crashed", error=incident)
