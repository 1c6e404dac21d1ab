"""One call of a tool: a task that is opened, followed, asked about and, if need be, canceled.

Theory. A call of a tool is a task of ours, so it outlives the call. A question of the task goes to
the user in one of three ways. A client of 2025-11-25 and before is asked while the call goes on
(`elicitation/create`). From 2026-07-28 on, a server asks by ending the call with the question, and
the client calls again with the answer; `requestState` names the task in between. A client without
elicitation gets the question as the result, and `answer_task` takes the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any
from uuid import uuid4

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, ElicitResult, InputRequiredResult, InputResponses
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from msgspec.structs import replace

from dragoman.core.errors import DragomanError, TaskFinished, Unsupported
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import AnyPart, Message, Role, Task
from dragoman.core.operations import CancelTask, GetTask, SendMessage, Streamed, Watch
from dragoman.core.peer import Batch, Context, Peer
from dragoman.core.questions import Question, question_at, question_of

from . import elicitation
from .content import answerable, open_question, refusal, result_of
from .progress import ProgressCount

ToolResult = CallToolResult | InputRequiredResult
ANSWER = "answer"
"""The name of our only input request."""
CANCEL_TIME = 15.0
"""Seconds that a cancellation may take."""
POLL, MOST_POLL = 0.1, 2.0
"""Seconds between two looks at a task of an agent without streams, at first and at most."""


class ToolCall:
    """One call of a tool, on behalf of one caller, of one agent."""

    def __init__(
        self, request: ServerRequestContext[Any, Any], peer: Peer, ctx: Context, prefix: str = ""
    ) -> None:
        """`prefix` stands before the id of a task where a client is told it, so that it names the
        agent as well."""
        self._request, self._peer, self._ctx, self._prefix = request, peer, ctx, prefix
        self._progress = ProgressCount()
        self._tells = bool(request.meta and "progress_token" in request.meta)
        self._task = ""
        """The id of the task, once it is known."""
        self.detached = False
        """Whether the task goes on when the call is dropped: the server stops, and the task is
        continued by the next one."""

    async def send(self, message: Message) -> ToolResult:
        """Opens a task, or answers one, and returns the result of the call."""
        self._task = message.task_id
        return await self._until_done(SendMessage(message=message))

    async def answer(self, task_id: str, words: str) -> ToolResult:
        """Answers the open question of a task in words, and goes on with it."""
        task = await self._get(task_id)
        question = question_of(task)
        if question is None:
            return await self._until_done(Watch(task_id=task_id), task)
        if not answerable(question):
            return open_question(question, self._prefix + task_id)
        return await self._answered(task, elicitation.answer_part(question, words))

    async def resume(self, state: str, responses: InputResponses | None) -> ToolResult:
        """Goes on with a call that ended with a question (2026-07-28)."""
        waiting = elicitation.WaitingTask.of(state)
        if waiting is None:
            return refusal("This requestState is none of this server's.")
        task = await self._get(waiting.task)
        question = question_of(task)
        told = (responses or {}).get(ANSWER)
        if question is None:
            return await self._until_done(Watch(task_id=task.id), task)
        asked = elicitation.question_name(task, question) == waiting.question
        if not asked or not isinstance(told, ElicitResult):
            return await self._asked(task, question)
        return await self._decided(task, question, told)

    # Following the task.

    async def _until_done(self, op: Streamed, task: Task | None = None) -> ToolResult:
        if task is not None and task.state in FINAL:
            return result_of(task)
        try:
            found = await self._followed(op)
        except asyncio.CancelledError:
            if not self.detached:
                await self._cancel()
            raise
        except TaskFinished:  # while the user thought about it, the task ended without the answer
            found = await self._get(self._task)
        if isinstance(found, Task) and (question := question_of(found)) is not None:
            return await self._asked(found, question)
        return result_of(found)

    async def _followed(self, op: Streamed) -> Task | Message:
        """Returns the task when it ends or waits, or the direct reply."""
        async with aclosing(self._batches(op)) as batches:
            async for batch in batches:
                for entry in batch.entries:
                    if isinstance(entry, Message):
                        return entry
                    self._task = entry.task_id
                    if self._tells and (step := self._progress.step(entry)) is not None:
                        await self._request.session.report_progress(
                            step.progress, step.total, step.message
                        )
                if batch.last or _waits(batch):
                    break
        return await self._get(self._task)

    async def _batches(self, op: Streamed) -> AsyncGenerator[Batch, None]:
        try:
            async with aclosing(self._peer.stream(op, self._ctx)) as batches:
                async for batch in batches:
                    yield batch
            return
        except Unsupported as exc:
            if type(exc) is not Unsupported or not isinstance(op, SendMessage):
                raise
        # The agent has no streams, so nothing was sent. An answer waits for its effect: until then
        # the task would still seem to wait.
        op = replace(op, wait=bool(op.message.task_id))
        found = await self._peer.call(op, self._ctx)
        if isinstance(found, Message):
            yield Batch([found], last=True)
            return
        self._task, pause = found.id, POLL
        while found.state not in FINAL and found.state not in WAITING:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, MOST_POLL)
            found = await self._get(found.id)

    async def _get(self, task_id: str) -> Task:
        self._task = task_id
        return await self._peer.call(GetTask(task_id=task_id), self._ctx)

    async def _cancel(self) -> None:
        """Cancels the task. The call is canceled itself, so only a shielded scope may still
        wait."""
        if not self._task:
            return
        with anyio.move_on_after(CANCEL_TIME, shield=True), suppress(DragomanError):
            await self._peer.call(CancelTask(task_id=self._task), self._ctx)

    # Asking the user.

    async def _asked(self, task: Task, question: Question) -> ToolResult:
        session = self._request.session
        capabilities = session.client_capabilities
        asks = capabilities is not None and capabilities.elicitation is not None
        if not asks or not answerable(question):
            return open_question(question, self._prefix + task.id)
        asked = elicitation.request(question)
        if self._request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            state = elicitation.WaitingTask(task.id, elicitation.question_name(task, question))
            return InputRequiredResult(input_requests={ANSWER: asked}, request_state=state.text())
        try:
            told = await session.elicit_form(
                asked.params.message, elicitation.form(question), self._request.request_id
            )
        except MCPError:  # it declares elicitation, and cannot do it after all
            return open_question(question, self._prefix + task.id)
        except asyncio.CancelledError:
            if not self.detached:
                await self._cancel()
            raise
        return await self._decided(task, question, told)

    async def _decided(self, task: Task, question: Question, told: ElicitResult) -> ToolResult:
        part = elicitation.answer_in(question, told)
        if part is not None:
            return await self._answered(task, part)
        if told.action == "decline":
            await self._cancel()
            return refusal("The user declined to answer, so the task was canceled.")
        return open_question(question, self._prefix + task.id)

    async def _answered(self, task: Task, part: AnyPart) -> ToolResult:
        return await self.send(
            Message(
                message_id=uuid4().hex,
                role=Role.USER,
                parts=(part,),
                task_id=task.id,
                context_id=task.context_id,
            )
        )


def _waits(batch: Batch) -> bool:
    """Returns whether the task waits for its caller now. A stream goes on while credentials are
    awaited, since they may come on another channel; here they cannot come."""
    last = batch.entries[-1] if batch.entries else None
    return isinstance(last, Stamped) and question_at(last) is not None
