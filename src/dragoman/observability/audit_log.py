"""The audit log of calls: who asked whom what, and how it ended, without contents.

A line is written when a call has ended. If one cannot be written, it is kept, and all calls are
refused until the file takes it: nothing is done that would not be recorded. Callers that are not
known write no lines by what they are refused, since anyone could fill the disk in this way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from msgspec import Struct

from dragoman.agent import Agent
from dragoman.core.errors import ConfigError, DragomanError, StoreUnavailable
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.model import Task
from dragoman.core.operations import Operation, R, SendMessage, Streamed, name_of
from dragoman.core.peer import Batch, Context, Peer
from dragoman.security.authorization import Tells, task_in
from dragoman.store.local.private_files import AuditFile, audit_line

from .log import CallRecords

MOST_CHARS = 256
"""The length of a text of the caller's in a line."""
OK, DISCONNECTED, CRASHED = "ok", "disconnected", "agent_crashed"


class AuditedCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log."""

    at: str
    """When the call came."""
    principal: str
    tenant: str = ""
    agent: str
    skill: str = ""
    operation: str
    """Its name in A2A 1.0; `-` if the call was refused before it was read."""
    dialect: str = ""
    task: str = ""
    outcome: str
    """`ok`, the reason of an error, or `disconnected`."""
    state: str = ""
    """The state of the task when the call ended."""
    ms: int
    """The milliseconds that the call took."""
    why: str = ""
    """Why this agent was chosen for a skill (`ChooseAgent`), or the source of a registration
    (`RegisterAgent`, `UnregisterAgent`)."""


class AuditLog:
    """The log of a server, for all its agents."""

    records_strangers = False

    def __init__(self, path: str) -> None:
        """Raises `ConfigError` if the file cannot be written."""
        self._file = AuditFile(Path(path))
        self._unwritten: list[bytes] = []
        try:
            self._file.check()
        except StoreUnavailable as exc:
            why = exc.__cause__ or exc
            raise ConfigError(f"server.audit: {path} cannot be written: {why}") from None

    def check(self) -> None:
        """Raises `StoreUnavailable` as long as the file does not take a line that is due."""
        if self._unwritten:
            self._write()

    def record(self, call: AuditedCall) -> None:
        """Adds a line. If it cannot be written, the next call is refused."""
        self._unwritten.append(audit_line(call))
        with suppress(StoreUnavailable):
            self._write()

    def _write(self) -> None:
        self._file.append(b"".join(self._unwritten), durable=False)
        self._unwritten.clear()


def audited_change(
    ctx: Context, operation: str, agent: str, *, skill: str = "", outcome: str = OK, why: str = ""
) -> AuditedCall:
    """Returns the line about something that is no call of an agent: a choice or a registration."""
    return AuditedCall(
        at=_now(),
        principal=ctx.principal[:MOST_CHARS],
        tenant=ctx.tenant[:MOST_CHARS],
        agent=agent[:MOST_CHARS],
        skill=skill[:MOST_CHARS],
        operation=operation,
        dialect=ctx.dialect,
        outcome=outcome,
        ms=0,
        why=why,
    )


class AuditingPeer:
    """A peer that records each call."""

    def __init__(
        self, audit: CallRecords, agent: Agent, name: str, peer: Peer, engine: Peer
    ) -> None:
        """`engine` knows the tasks, behind the `peer` that is asked."""
        self._audit, self._agent, self._name, self._peer = audit, agent, name, peer
        self._tells = engine if isinstance(engine, Tells) else None

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the answer, when it is recorded."""
        self._audit.check()
        end = await self._begun(op, ctx)
        try:
            answer = await self._peer.call(op, ctx)
        except BaseException as exc:
            end(_outcome(exc), "", "")
            raise
        if isinstance(answer, Task):
            end(OK, answer.id, str(answer.state))
        else:
            end(OK, "", "")
        return answer

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields every event, and records the call when the stream has ended."""
        self._audit.check()
        end = await self._begun(op, ctx)
        outcome, task, state = DISCONNECTED, "", ""
        try:
            async with aclosing(self._peer.stream(op, ctx)) as batches:
                async for batch in batches:
                    if batch.entries and (not task or batch.last):
                        task, state = _seen(batch, task, state)
                    if batch.last:
                        outcome = OK
                    yield batch
            outcome = OK
        except GeneratorExit:
            raise
        except BaseException as exc:
            outcome = _outcome(exc)
            raise
        finally:
            end(outcome, task, state)

    def refused(self, ctx: Context, dialect: str, error: DragomanError) -> None:
        """Notes the refusal of a call whose operation is not known."""
        if ctx.schemes or self._audit.records_strangers:
            self._note(ctx, "", "-", dialect, "", _now(), monotonic(), error.reason, "")

    async def _begun(self, op: Operation[Any], ctx: Context) -> Callable[[str, str, str], None]:
        """Returns the function that records how the call ended."""
        at, began, asked = _now(), monotonic(), task_in(op)
        skill = ""
        with suppress(DragomanError):
            skill = await self._skill(op, ctx, asked)
        name = name_of(op)

        def end(outcome: str, task: str, state: str) -> None:
            self._note(ctx, skill, name, ctx.dialect, task or asked, at, began, outcome, state)

        return end

    async def _skill(self, op: Operation[Any], ctx: Context, task: str) -> str:
        if self._tells is None:
            return ""
        if task:
            found = self._agent.recorded_skill(await self._tells.skill_of(ctx, task))
        else:
            found = self._tells.skill_for(op) if isinstance(op, SendMessage) else None
        return self._agent.skill_asked(found) if found is not None else ""

    def _note(
        self,
        ctx: Context,
        skill: str,
        operation: str,
        dialect: str,
        task: str,
        at: str,
        began: float,
        outcome: str,
        state: str,
    ) -> None:
        self._audit.record(
            AuditedCall(
                at=at,
                principal=ctx.principal[:MOST_CHARS],
                tenant=ctx.tenant[:MOST_CHARS],
                agent=self._name,
                skill=skill[:MOST_CHARS],
                operation=operation[:MOST_CHARS],
                dialect=dialect,
                task=task[:MOST_CHARS],
                outcome=outcome,
                state=state,
                ms=round((monotonic() - began) * 1000),
            )
        )


def _outcome(exc: BaseException) -> str:
    if isinstance(exc, DragomanError):
        return exc.reason
    return CRASHED if isinstance(exc, Exception) else DISCONNECTED


def _seen(batch: Batch, task: str, state: str) -> tuple[str, str]:
    """Returns the task of a stream, and the last state that these events tell."""
    for entry in batch.entries:
        if isinstance(entry, Stamped):
            task = task or entry.task_id
            if isinstance(entry.event, StateChanged):
                state = str(entry.event.state)
            elif isinstance(entry.event, Snapshot):
                state = str(entry.event.task.state)
    return task, state


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
