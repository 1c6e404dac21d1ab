"""Passes the questions of a remote task to our own caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dragoman.agent.parts import parts_of
from dragoman.agent.turn import Turn, access_of
from dragoman.core.events import Ask, Asked
from dragoman.core.model import Json
from dragoman.core.questions import answer_value, question_in

from .answers import Said
from .upstream import Upstream


async def ask_caller(turn: Turn, upstream: Upstream, event: Asked) -> Said:
    """Asks our caller, or runs the tool, and returns the answer."""
    return await _ANSWER[event.kind](turn, upstream, event)


async def _approval(turn: Turn, upstream: Upstream, event: Asked) -> Said:
    """Returns a person's decision, bound to this task, this action and this question."""
    approved = await turn.approve(
        event.message.text or "Approve?",
        details=upstream.details(event.body),
        key=event.question,
        expires=upstream.approval_expires,
    )
    return _said(answer_value(approved))


async def _tool(turn: Turn, upstream: Upstream, event: Asked) -> Said:
    return _said(await upstream.run_tool(turn, event))


async def _input(turn: Turn, upstream: Upstream, event: Asked) -> Said:
    found = question_in(event.message, event.state)
    prompt = event.message.text or f"{upstream.name} needs more to go on"
    message, value = await access_of(turn).ask(
        event.kind, prompt, event.question, event.body, None, *found.more
    )
    if value is not None:
        return _said(value)
    data = message.data
    return data if data is not None else message.text, message.parts


async def _credentials(turn: Turn, upstream: Upstream, event: Asked) -> Said:
    body = event.body if isinstance(event.body, dict) else {}
    answer = await turn.need_auth(
        body.get("schemes"), body.get("details"), prompt=event.message.text, key=event.question
    )
    value = answer.data if answer.data is not None else str(answer)
    return value, answer.message.parts


def _said(value: Json) -> Said:
    return value, parts_of(value)


_ANSWER: dict[Ask, Callable[[Turn, Upstream, Asked], Awaitable[Said]]] = {
    Ask.APPROVAL: _approval,
    Ask.TOOL: _tool,
    Ask.INPUT: _input,
    Ask.CREDENTIALS: _credentials,
}
