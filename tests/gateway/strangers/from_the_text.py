"""Agents behind a gateway that know the source text of their dialect and nothing else, for the
gateway's matrix: here a sub-agent of IAT and an agent that dials in as XiaoYi's do, in other files
those of older A2A (`legacy_desk`) and of A2A-Lite (`room_desk`). Nothing of ours is imported by
what they are made of (`iat.stranger`, `xiaoyi.strangers`)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from iat.stranger import Asked, Json, Reply, done, envelope, one, stream
from iat.stranger import Stranger as IatStranger
from xiaoyi.strangers import Request
from xiaoyi.strangers import Stranger as XiaoYiStranger

CANCEL_TIMEOUT_SECONDS = 60.0


class PlainAgent(NamedTuple):
    """An agent of a dialect, and the scenarios for which its source text has words."""

    name: str
    dialect: str
    scenarios: tuple[str, ...]

    def run_by(self, caller: str) -> tuple[str, ...]:
        """The scenarios that callers of a dialect run."""
        return tuple(each for each in self.scenarios if not self.why_not(caller, each))

    def why_not(self, caller: str, scenario: str) -> str:
        """Why these callers do not run a scenario; empty if they do."""
        return NOT_RUN.get((self.dialect, caller, scenario), "")


NOT_RUN = {
    ("iat", "lite", "cancel"): "a sub-agent of IAT that has begun says so with thoughts, which a "
    "room does not hear: *cancel*, which waits for that, is not run",
}
"""Why a scenario of an agent is not run, by its dialect, the dialect of the caller, and itself."""


PLAIN_AGENTS = (
    PlainAgent(
        "A2A 0.1 agent, HTTP",
        "a2a-0.1",
        (
            *("send", "stream", "question and answer", "cancel"),
            *("file", "data", "failure", "get"),
        ),
    ),
    PlainAgent(
        "community a2a-go agent, HTTP",
        "a2a-go",
        ("send", "stream", "cancel", "data", "failure", "get"),
    ),
    PlainAgent("IAT sub-agent, HTTP", "iat", ("send", "stream", "cancel", "failure", "get")),
    PlainAgent(
        "XiaoYi agent that dials in",
        "xiaoyi",
        ("send", "stream", "question and answer", "cancel", "data", "failure", "get"),
    ),
    PlainAgent(
        "A2A-Lite member of an IRC room",
        "lite",
        ("send", "skill", "question and answer", "cancel", "failure", "rejection", "get"),
    ),
)


class IatDesk(IatStranger):
    """Reads the `query` of an `execute`: a line that says what to do, and a line of text."""

    def __init__(self) -> None:
        super().__init__(_execute, "*")
        self.stopped = threading.Event()

    def reply(self, asked: Asked) -> Reply:
        if asked.action == "terminate":
            self.stopped.set()
            return one(envelope("response", {}, asked.id))
        return super().reply(asked)


def _execute(agent: IatStranger, asked: Asked) -> Reply:
    assert isinstance(agent, IatDesk)
    order, _, text = asked.payload["query"].partition("\n")
    return stream(_events(agent, asked, json.loads(order)["do"], text))


def _events(agent: IatDesk, asked: Asked, command: str, text: str) -> Iterator[Json]:
    match command:
        case "count":
            for number in range(int(text)):
                yield envelope("chunk", {"text": f"{number} "}, asked.id)
            yield done(asked, "")
        case "slow":
            agent.stopped.clear()
            thought = {"action": "think", "thought_text": "begun"}
            yield envelope("notification", thought, asked.id)
            agent.stopped.wait(CANCEL_TIMEOUT_SECONDS)
        case "fail":
            # An error that comes first refuses the call; this task has begun.
            thought = {"action": "think", "thought_text": "begun"}
            yield envelope("notification", thought, asked.id)
            error = {"code": "paper", "message": "No paper left"}
            yield envelope("response", {"error": error}, asked.id)
        case _:
            yield done(asked, text.upper())


class XiaoYiDesk:
    """The work of an agent that dials in: a data part says what to do."""

    def __init__(self) -> None:
        self._trips: dict[str, list[str]] = {}

    async def __call__(self, agent: XiaoYiStranger, request: Request) -> None:
        parts = request["params"]["message"]["parts"]
        values = [part["data"] for part in parts if part["kind"] == "data"]
        text, session = agent.said(request), request["params"]["sessionId"]
        # An answer is a new message of its session, with a task id of its own.
        if session in self._trips:
            await self._go_on(agent, request, text)
            return
        match values[0]["do"]:
            case "count":
                for number in range(int(text)):
                    await agent.text(request, f"{number} ", append=number > 0)
                await self._status(agent, request, "completed", final=True)
            case "trip":
                self._trips[session] = []
                await self._status(agent, request, "input-required", "Which city?")
            case "slow":
                await self._status(agent, request, "working", "begun")
                await asyncio.Event().wait()  # until it is canceled
            case "data":
                got = {"kind": "data", "data": {"got": values[1]}}
                await agent.parts(request, got, final=True)
            case "fail":
                await self._status(agent, request, "failed", "No paper left", final=True)
            case _:
                await agent.text(request, text.upper(), final=True)

    async def _go_on(self, agent: XiaoYiStranger, request: Request, answer: str) -> None:
        known = self._trips[request["params"]["sessionId"]]
        known.append(answer)
        if len(known) == 1:
            await self._status(agent, request, "input-required", "How many days?")
        else:
            # A session may go on with something else: in a room all tasks are of one session.
            del self._trips[request["params"]["sessionId"]]
            await agent.text(request, f"{known[1]} days in {known[0]}", final=True)

    async def _status(
        self,
        agent: XiaoYiStranger,
        request: Request,
        state: str,
        text: str = "",
        *,
        final: bool = False,
    ) -> None:
        status: dict[str, Any] = {"state": state}
        if text:
            status["message"] = {"role": "agent", "parts": [{"kind": "text", "text": text}]}
        task = request["params"]["id"]
        update = {"taskId": task, "kind": "status-update", "final": final, "status": status}
        await agent.respond(request, update)
