"""Questions of a task as MCP elicitation, and what the user's answer means for the task."""

from __future__ import annotations

from typing import Any

import msgspec
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult
from msgspec import Struct

from dragoman.core.events import Ask
from dragoman.core.model import AnyPart, Data, Json, Task, Text
from dragoman.core.questions import Question, answer_value, yes_or_no

from .content import question_words

APPROVED, ANSWER = "approved", "answer"


class WaitingTask(Struct, frozen=True):
    """The task and the question that an answer is for: the `requestState` of 2026-07-28."""

    task: str
    question: str

    def text(self) -> str:
        """Returns it as the client sends it back. It is no secret and needs no signature: whoever
        changes it names another task, which must be the caller's own."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, state: str) -> WaitingTask | None:
        """Returns what a client sent back, or None if it is none of ours."""
        try:
            return msgspec.json.decode(state, type=cls)
        except msgspec.MsgspecError:
            return None


def question_name(task: Task, question: Question) -> str:
    """Returns a name that tells the questions of one task apart."""
    message = task.status.message
    return question.name or (message.message_id if message is not None else "")


def form(question: Question) -> dict[str, Any]:
    """Returns the JSON Schema of the form that the user fills in."""
    if question.kind is Ask.APPROVAL:
        field = {"type": "boolean", "title": "Approve"}
        return {"type": "object", "properties": {APPROVED: field}, "required": [APPROVED]}
    field = {"type": "string", "title": "Answer"}
    return {"type": "object", "properties": {ANSWER: field}, "required": [ANSWER]}


def request(question: Question) -> ElicitRequest:
    """Returns the question as a request to the client."""
    return ElicitRequest(
        params=ElicitRequestFormParams(
            message=question_words(question), requested_schema=form(question)
        )
    )


def answer_in(question: Question, result: ElicitResult) -> AnyPart | None:
    """Returns the part that answers the task, or None if the user gave no answer. To decline an
    approval is to deny it."""
    if result.action == "accept":
        told = (result.content or {}).get(APPROVED if question.kind is Ask.APPROVAL else ANSWER)
        return None if told is None else answer_part(question, told)
    if result.action == "decline" and question.kind is Ask.APPROVAL:
        return answer_part(question, False)
    return None


def answer_part(question: Question, told: Json) -> AnyPart:
    """Returns the part that tells an answer: a decision on an approval as data, and words as
    text."""
    if question.kind is Ask.APPROVAL:
        decision = told if isinstance(told, bool) else yes_or_no(str(told))
        if decision is not None:
            return Data(answer_value(decision))
    return Text(told if isinstance(told, str) else msgspec.json.encode(told).decode())
