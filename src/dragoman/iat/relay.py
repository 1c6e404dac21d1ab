"""One `execute`: what the sub-agent says is said by the host's task, what it asks is asked by it.

Theory. The sub-agent's task is opened within a step, so a host that starts again goes on with the
same one, from its first event: the engine swallows what was said before. When the line breaks, the
sub-agent is waited for, and the stream goes on behind the last event that came. Tools run within
steps too. A foreign agent, which has no log to go on with, is lost with its line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from dragoman.agent import Turn
from dragoman.core.card import Tool
from dragoman.core.errors import (
    Conflict,
    DragomanError,
    PeerError,
    PeerUnreachable,
    TaskFinished,
    WorkspaceViolation,
)
from dragoman.core.events import (
    AnyEvent,
    ArtifactChunk,
    Ask,
    Asked,
    Note,
    Noted,
    Opened,
    Snapshot,
    Stamped,
    StateChanged,
)
from dragoman.core.extensions import PROGRESS, TOOLS, WORK
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.log import Logger
from dragoman.core.model import Json, Message, State
from dragoman.core.operations import CancelTask, Resolve, SendMessage, Watch
from dragoman.core.peer import Batch, Context
from dragoman.core.questions import answer_value, question_in
from dragoman.dialects.iat.events import THEIRS
from dragoman.dialects.iat.wire import MOST_TTL
from dragoman.workspace import WISH, inside, within

from .sub_agent import KnownAgent, SubAgent
from .tools import refused

if TYPE_CHECKING:
    from .host import Host

log = Logger("iat")

GIVE_UP = 3.0
"""Seconds to tell a sub-agent that its work is not wanted any more."""


class Relay:
    """One task of the host's, and the task of a sub-agent behind it."""

    def __init__(self, host: Host, turn: Turn) -> None:
        self._host, self._turn = host, turn
        named = turn.metadata.get("agent")
        self._name = named if isinstance(named, str) else ""
        allowed = turn.metadata.get("allowed_tools")
        own = host.offered(name for name in host.tools if _in(name, allowed))
        # What our own caller runs for us may be passed on, under the names the host has not.
        names = {tool.name for tool in own}
        theirs = tuple(
            each
            for each in turn.caller.tools
            if isinstance(each, Tool) and each.name not in names and _in(each.name, allowed)
        )
        self._own, self._theirs = names, {tool.name for tool in theirs}
        used = turn.caller.hops or MOST_TTL - host.depth - 1
        self._ctx = Context(
            tools=(*own, *theirs), trace=turn.caller.trace, hops=used + 1, extensions=(WORK,)
        )
        self._steps: AsyncGenerator[Batch, None] | None = None
        self._first: list[Any] = []
        self._remote = ""
        self._seen = 0
        self._made = False
        self._answers: dict[str, Json] = {}
        """What was decided, by question: nobody is asked twice because a line broke."""
        self._delivered: set[str] = set()
        self._over = False

    async def run(self) -> None:
        """To the end of the sub-agent's task, which is the end of ours."""
        turn = self._turn
        if self._ctx.hops >= MOST_TTL:
            raise turn.fail("The message went through too many hands", reason="ttl_exceeded")
        try:
            sub = await self._host.find(self._name)
            self._name = sub.name
            self._remote = await turn.step("execute", self._open, sub)
            await self._follow(sub)
        except PeerError as exc:
            code = "unreachable" if isinstance(exc, PeerUnreachable) else exc.reason
            raise turn.fail(exc.message, reason=code) from exc
        except DragomanError as exc:
            raise turn.fail(exc.message, reason=exc.reason) from exc
        except asyncio.CancelledError:
            if turn.cancelled and self._remote:  # and not only given back to another process
                await asyncio.shield(self._terminate())
            raise
        finally:
            if self._steps is not None:
                await self._steps.aclose()

    async def _open(self, sub: SubAgent) -> str:
        """Opens the sub-agent's task; its name."""
        turn = self._turn
        metadata = {
            key: value
            for key, value in turn.metadata.items()
            if key not in ("agent", "allowed_tools", "skillId")
        }
        if (root := self._root(sub)) is not None:
            metadata[WISH] = root
        if isinstance(sub.line, KnownAgent) and self._ctx.tools:
            # Envelopes have a place for tools; elsewhere our extension is it.
            metadata[TOOLS] = msgspec.to_builtins(self._ctx.tools)
        message = Message(
            message_id=turn.key("execute"), role=turn.message.role, parts=turn.message.parts
        )
        op = SendMessage(message=message, metadata=metadata or None, context=turn.context)
        self._steps = sub.line.stream(op, self._ctx)
        while True:
            batch = await anext(self._steps, None)
            if batch is None:
                raise PeerUnreachable("The sub-agent said nothing")
            if batch.entries:
                self._first = list(batch.entries)
                entry = self._first[0]
                return entry.task_id if isinstance(entry, Stamped) else ""

    def _root(self, sub: SubAgent) -> Json:
        """The folder this execute is kept to: the host's, as much narrower as our caller wishes.
        What lies in the sub-agent's own folder only the sub-agent can tell."""
        limit, wish = self._host.workspace_root, self._turn.metadata.get(WISH)
        if not limit or inside(sub.workspace, limit):
            return wish
        if sub.workspace and not inside(limit, sub.workspace):
            raise WorkspaceViolation(f"{sub.name} works elsewhere than in the host's workspace")
        return within(limit, wish)

    async def _follow(self, sub: SubAgent) -> None:
        """Relays until the end, over as many lines as it takes."""
        while not self._over:
            try:
                for entry in self._first:
                    await self._relay(entry, sub)
                self._first = []
                if self._steps is None:
                    ctx = _at(self._ctx, self._seen)
                    self._steps = sub.line.stream(Watch(task_id=self._remote), ctx)
                async for batch in self._steps:
                    for entry in batch.entries:
                        await self._relay(entry, sub)
                        if self._over:
                            return
                self._steps = None
            except (PeerUnreachable, TimeoutError):
                self._steps = None
                if not self._remote:
                    raise
                log.info(
                    "The connection to the sub-agent was lost",
                    agent=sub.name,
                    task=self._turn.task_id,
                )
                sub = await self._again(sub)

    async def _again(self, sub: SubAgent) -> SubAgent:
        """The same sub-agent, when it is back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(1.0, self._host.patience)):
                await sub.changed.wait()
        return await self._host.find(self._name)

    # What it says.

    async def _relay(self, entry: Stamped | Message, sub: SubAgent) -> None:
        turn = self._turn
        if isinstance(entry, Message):
            await turn.artifact(*entry.parts)
            self._over = True
            return
        if entry.seq <= self._seen and not isinstance(entry.event, Snapshot):
            return  # told before the line broke
        self._seen = max(self._seen, entry.seq)
        await _SAY[type(entry.event)](self, entry, sub)

    async def _opened(self, entry: Stamped, sub: SubAgent) -> None:
        """It has begun; so have we."""

    async def _snapshot(self, entry: Stamped, sub: SubAgent) -> None:
        event = entry.event
        assert isinstance(event, Snapshot)  # noqa: S101  by the table
        if event.task.state in FINAL:
            for artifact in event.task.artifacts:
                await turn_artifact(self._turn, artifact, append=False, last=True)
            self._made = self._made or bool(event.task.artifacts)
            await self._ended(event.task.state, event.task.status.message, None)
        elif event.task.state in WAITING and event.task.status.message is not None:
            await self._waits(entry, event.task.state, event.task.status.message, sub)

    async def _state(self, entry: Stamped, sub: SubAgent) -> None:
        event, turn = entry.event, self._turn
        assert isinstance(event, StateChanged)  # noqa: S101
        if event.state in FINAL:
            await self._ended(event.state, event.message, event.metadata)
            return
        if event.state in WAITING and event.message is not None:
            await self._waits(entry, event.state, event.message, sub)
            return
        progress = (event.metadata or {}).get(PROGRESS)
        if isinstance(progress, dict) and isinstance(progress.get("fraction"), int | float):
            await turn.progress(min(1.0, max(0.0, progress["fraction"])), eta=progress.get("eta"))
        if event.message is not None and event.message.parts:
            await turn.say(*event.message.parts)

    async def _ended(
        self, state: State, message: Message | None, metadata: dict[str, Json] | None
    ) -> None:
        self._over = True
        turn, words = self._turn, message.text if message is not None else ""
        if state is State.COMPLETED:
            if message is not None and not self._made:
                await turn.artifact(*message.parts)
            return
        told = {**((message.metadata if message else None) or {}), **(metadata or {})}
        reason = told.get("reason")
        if state is State.REJECTED:
            raise turn.reject(words)
        raise turn.fail(
            words or f"The sub-agent's task is {state}",
            reason=reason if isinstance(reason, str) else str(state),
        )

    async def _chunk(self, entry: Stamped, sub: SubAgent) -> None:
        event = entry.event
        assert isinstance(event, ArtifactChunk)  # noqa: S101
        self._made = True
        await turn_artifact(
            self._turn,
            event.artifact,
            append=event.append,
            last=event.last,
            update_metadata=event.metadata,
        )

    async def _noted(self, entry: Stamped, sub: SubAgent) -> None:
        event, turn = entry.event, self._turn
        assert isinstance(event, Noted)  # noqa: S101
        body = event.body if isinstance(event.body, dict) else {"text": event.body}
        match event.kind:
            case Note.THOUGHT:
                await turn.think(str(body.get("text", "")))
            case Note.LOG:
                known = {"message", "level", "self"}
                more = {key: value for key, value in body.items() if key not in known}
                level = str(body.get("level", "info"))
                await turn.log(str(body.get("message", "")), level=level, **more)
            case Note.USAGE:
                await turn.usage(**{key: value for key, value in body.items() if key != "self"})

    # What it asks.

    async def _asked(self, entry: Stamped, sub: SubAgent) -> None:
        event = entry.event
        assert isinstance(event, Asked)  # noqa: S101
        question = event.question
        if question not in self._answers:
            self._answers[question] = await _ANSWER[event.kind](self, event)
        op = Resolve(task_id=entry.task_id, question=question, value=self._answers[question])
        if question.startswith(THEIRS):
            await sub.line.tell(op, self._ctx)
        else:
            try:
                await sub.line.call(op, self._ctx)
            except (Conflict, TaskFinished):
                # Somebody answered it there meanwhile, or its time was over. What follows will
                # tell.
                log.info("The question is not open any more", agent=sub.name, question=question)
        self._delivered.add(question)

    async def _waits(self, entry: Stamped, state: State, message: Message, sub: SubAgent) -> None:
        """A question as A2A has it: a state, and our data part beside the words if there is one."""
        found = question_in(message, state)
        question = found.name or f"{entry.task_id}#{entry.seq}"
        if question in self._delivered:
            return  # the state a stream begins with, not a new question
        asked = Asked(question=question, kind=found.kind, message=message, body=found.details)
        await self._asked(replace(entry, event=asked), sub)

    async def _approval(self, event: Asked) -> Json:
        """A person's decision, bound to this task, this action and this question."""
        approved = await self._turn.approve(
            event.message.text or "Approve?",
            details={"agent": self._name, "details": event.body},
            key=event.question,
            expires=self._host.approval_expires,
        )
        return answer_value(approved)

    async def _tool(self, event: Asked) -> Json:
        """What the tool gives. Only those that were allowed are run (R04)."""
        name = event.message.text
        if name in self._own:
            tool = self._host.tools[name]
            return await self._turn.step(f"tool {event.question}", tool.run, event.body)
        if name in self._theirs:
            given = event.body if isinstance(event.body, dict) else {}
            try:
                return {"result": await self._turn.call_tool(name, key=event.question, **given)}
            except DragomanError as exc:
                return refused(exc.reason, exc.message)
        return refused("tool_not_allowed", f"The tool {name[:80]!r} was not offered")

    async def _input(self, event: Asked) -> Json:
        answer = await self._turn.ask(event.message.text, key=event.question, details=event.body)
        return answer.data if answer.data is not None else str(answer)

    async def _credentials(self, event: Asked) -> Json:
        body = event.body if isinstance(event.body, dict) else {}
        answer = await self._turn.need_auth(
            body.get("schemes"), body.get("details"), prompt=event.message.text, key=event.question
        )
        return answer.data if answer.data is not None else str(answer)

    async def _terminate(self) -> None:
        """Our task is canceled, so is the one behind it."""
        sub = self._host.agents.get(self._name)
        if sub is None:
            return
        op = CancelTask(task_id=self._remote)
        with suppress(DragomanError, TimeoutError, OSError):
            async with asyncio.timeout(GIVE_UP):
                await sub.line.tell(op, self._ctx)


def _at(ctx: Context, seen: int) -> Context:
    return replace(ctx, cursor=seen)


def _in(name: str, allowed: object) -> bool:
    return not isinstance(allowed, list) or name in allowed


async def turn_artifact(
    turn: Turn, artifact: Any, *, append: bool, last: bool, update_metadata: Json = None
) -> None:
    """A piece of an artifact, under the name it has with the sub-agent."""
    await turn.artifact(
        *artifact.parts,
        name=artifact.artifact_id,
        description=artifact.description,
        append=append,
        last=last,
        metadata=artifact.metadata,
        extensions=artifact.extensions,
        update_metadata=update_metadata,
    )


_SAY: dict[type[AnyEvent], Callable[[Relay, Stamped, SubAgent], Awaitable[None]]] = {
    Opened: Relay._opened,
    Snapshot: Relay._snapshot,
    StateChanged: Relay._state,
    ArtifactChunk: Relay._chunk,
    Noted: Relay._noted,
    Asked: Relay._asked,
}
_ANSWER: dict[Ask, Callable[[Relay, Asked], Awaitable[Json]]] = {
    Ask.APPROVAL: Relay._approval,
    Ask.TOOL: Relay._tool,
    Ask.INPUT: Relay._input,
    Ask.CREDENTIALS: Relay._credentials,
}
