"""Passes the questions of a remote task to our own caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dragoman.agent.parts import parts_of
from dragoman.agent.turn import Turn, access_of
from dragoman.core.events import Ask, Asked
from dragoman.core.model import Json, Message
from dragoman.core.questions import answer_value, question_in

from .answers import CallerAnswer
from .upstream import Upstream


async def ask_caller(turn: Turn, upstream: Upstream, event: Asked) -> CallerAnswer:
    """Asks our caller, or runs the tool, and returns the answer."""
    return await _ANSWER[event.kind](turn, upstream, event)


async def _approval(turn: Turn, upstream: Upstream, event: Asked) -> CallerAnswer:
    """Returns a person's decision, bound to this task, this action and this question."""
    approved, message = await access_of(turn).decide(
        event.message.text or "Approve?",
        upstream.details(event.body),
        event.question,
        upstream.approval_expires,
    )
    return _answer(answer_value(approved), message)


async def _tool(turn: Turn, upstream: Upstream, event: Asked) -> CallerAnswer:
    return _answer(await upstream.run_tool(turn, event))


async def _input(turn: Turn, upstream: Upstream, event: Asked) -> CallerAnswer:
    found = question_in(event.message, event.state)
    message, value = await access_of(turn).ask(
        event.kind, event.message.text, event.question, event.body, None, *found.more
    )
    if value is not None:
        return _answer(value, message)
    data = message.data
    return CallerAnswer(data if data is not None else message.text, message.parts, message)


async def _credentials(turn: Turn, upstream: Upstream, event: Asked) -> CallerAnswer:
    body = event.body if isinstance(event.body, dict) else {}
    answer = await turn.need_auth(
        body.get("schemes"), body.get("details"), prompt=event.message.text, key=event.question
    )
    value = answer.data if answer.data is not None else str(answer)
    return CallerAnswer(value, answer.message.parts, answer.message)


def _answer(value: Json, message: Message | None = None) -> CallerAnswer:
    return CallerAnswer(value, parts_of(value), message)


_ANSWER: dict[Ask, Callable[[Turn, Upstream, Asked], Awaitable[CallerAnswer]]] = {
    Ask.APPROVAL: _approval,
    Ask.TOOL: _tool,
    Ask.INPUT: _input,
    Ask.CREDENTIALS: _credentials,
}
