"""`Turn`: what a skill reads of the request, and the verbs by which it answers, asks and
records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, overload

from dragoman.core.errors import AgentMisbehaved
from dragoman.core.events import ArtifactChunk, Ask, Note, Noted, StateChanged
from dragoman.core.extensions import PROGRESS
from dragoman.core.model import Artifact, Json, Message, Role, State, Text, first_data
from dragoman.core.questions import decision_in, question_part

from .answers import Answer, Failed, Rejected, approval_name
from .mcp_calls import McpClient
from .parts import builtins_of, parts_of
from .remote_calls import AgentClient, TurnAccess, outside_of
from .run_api import RunApi
from .steps import run_step
from .tools import find_tool, result_of
from .turn_request import TurnRequest

T = TypeVar("T")


class Turn(TurnRequest):
    """One run of a skill. Its properties describe the request, and its methods answer it."""

    # Most turns never change these, so they are set on the class: one turn is made per task.
    _messages = 0
    """The number of messages it has made, which is part of their ids."""
    _unnamed = 0
    """The number of artifacts without a name that it has begun."""
    _calls: dict[str, int] | None = None
    """The number of times that each recorded call was made in this run."""
    _asking: asyncio.Lock | None = None

    def __init__(self, run: RunApi, skill: str) -> None:
        self._run = run
        self._skill = skill

    # Saying.

    async def say(
        self,
        *what: object,
        metadata: dict[str, Json] | None = None,
        extensions: Iterable[str] = (),
    ) -> None:
        """Sends the caller a message while the skill works. `extensions` lists those that the
        message uses."""
        message = self._message(what, metadata, extensions)
        self._run.emit(StateChanged(state=State.WORKING, message=message))
        await self._run.throttle()

    async def artifact(
        self,
        *what: object,
        name: str = "",
        description: str = "",
        append: bool = False,
        last: bool = True,
        metadata: dict[str, Json] | None = None,
        extensions: Iterable[str] = (),
        update_metadata: dict[str, Json] | None = None,
    ) -> None:
        """Sends a result, or one more piece of it with `append`.

        Its id is its name, or else `result`, `result-2` and so on. Pass `last=False` while more
        pieces will follow. `update_metadata` belongs to this piece only.
        """
        self._run.emit(
            ArtifactChunk(
                artifact=Artifact(
                    artifact_id=name or self.next_artifact(append=append),
                    name=name,
                    description=description,
                    parts=parts_of(list(what)) or (Text(""),),
                    metadata=builtins_of(metadata),
                    extensions=tuple(extensions),
                ),
                append=append,
                last=last,
                metadata=builtins_of(update_metadata),
            )
        )
        await self._run.throttle()

    def next_artifact(self, *, append: bool = False) -> str:
        """Returns the id of the next unnamed artifact, or of the latest one to append to. It is the
        same in every run."""
        if not append or not self._unnamed:
            self._unnamed += 1
        return "result" if self._unnamed == 1 else f"result-{self._unnamed}"

    async def think(self, text: str) -> None:
        """Shares a thought. Only callers that activate the work extension see it."""
        await self._note(Note.THOUGHT, {"text": text})

    async def log(self, message: str, *, level: str = "info", **fields: Json) -> None:
        """Shares a line of log. Only callers that activate the work extension see it."""
        await self._note(Note.LOG, {"level": level, "message": message, **fields})

    async def usage(self, **figures: Json) -> None:
        """Reports what the work has used, such as tokens=1200."""
        await self._note(Note.USAGE, figures)

    async def progress(self, fraction: float, *, eta: float | None = None) -> None:
        """Reports how far the work is, from 0 to 1, and how many seconds are left."""
        if not 0 <= fraction <= 1:
            raise AgentMisbehaved(f"turn.progress takes a number from 0 to 1, not {fraction}")
        body: dict[str, Json] = {"fraction": fraction}
        if eta is not None:
            body["eta"] = eta
        metadata = {PROGRESS: body}
        self._run.emit(StateChanged(state=State.WORKING, metadata=metadata))
        await self._run.throttle()

    async def detach(
        self,
        *what: object,
        metadata: dict[str, Json] | None = None,
        extensions: Iterable[str] = (),
    ) -> None:
        """Answers the callers that wait for this task now, while the skill continues to work.

        They get the current task, with this message if one is given. Streams and webhooks continue,
        and callers can get the task later.
        """
        await self._run.detach(self._message_if_any(what, metadata, extensions))

    async def complete(
        self,
        *what: object,
        metadata: dict[str, Json] | None = None,
        extensions: Iterable[str] = (),
    ) -> None:
        """Completes the task now, with this message in its status.

        Earlier artifacts are kept. Everything that the skill does afterwards is ignored.
        """
        await self._run.complete(self._message_if_any(what, metadata, extensions))

    async def reply(
        self,
        *what: object,
        metadata: dict[str, Json] | None = None,
        extensions: Iterable[str] = (),
    ) -> None:
        """Answers with a message instead of a task. The skill needs `may_reply=True` for this.

        If the task has been created already, it is completed with this message.
        """
        await self._run.reply(self._message(what, metadata, extensions))

    # Asking.

    async def ask(
        self, prompt: str, *, key: str = "", details: Json = None, expires: float | None = None
    ) -> Answer:
        """Asks the caller a question and waits for the answer, for days if necessary. The question
        survives a restart."""
        message, value = await self._ask(Ask.INPUT, prompt, key, details, expires)
        return Answer.of(message, value)

    async def approve(
        self, prompt: str, *, details: Json = None, key: str = "", expires: float | None = None
    ) -> bool:
        """Asks a person for a yes or a no, again if the answer is neither. Silence counts as a no.

        The answer counts for these details only: a later run with other details asks again.
        """
        return (await self._decide(prompt, details, key, expires))[0]

    async def _decide(
        self, prompt: str, details: Json, key: str, expires: float | None
    ) -> tuple[bool, Message]:
        """Returns the decision of a person, and the message that holds it."""
        words, key = prompt, approval_name(key or prompt, details)
        while True:
            message, value = await self._ask(Ask.APPROVAL, words, key, details, expires)
            decision = decision_in(message, value)
            if decision is not None:
                return decision, message
            words = f"Please answer yes or no. {prompt}"

    async def need_auth(
        self, schemes: Json, details: Json = None, *, prompt: str = "", key: str = ""
    ) -> Answer:
        """Asks the caller for credentials. They are handed over once and are stored nowhere."""
        body = {"schemes": schemes, "details": details}
        message, value = await self._ask(
            Ask.CREDENTIALS, prompt or "Credentials are needed to go on", key, body, None
        )
        return Answer.of(message, value)

    async def call_tool(self, name: str, /, *, key: str = "", **arguments: Json) -> Json:
        """Has the caller run one of its tools. Raises `Unsupported` if it offers none of that name.

        Arguments and result are checked against the schemas of the tool.
        """
        tool = find_tool(self._run.opened.tools, name, builtins_of(arguments))
        message, value = await self._ask(Ask.TOOL, name, key, arguments, None)
        return result_of(tool, value if value is not None else first_data(message.parts))

    async def _ask(
        self, kind: Ask, prompt: str, key: str, body: Json, expires: float | None, *more: object
    ) -> tuple[Message, Json]:
        name = self._call_key(str(kind), key or prompt)
        body = builtins_of(body)
        # The question of a relayed agent may have no words, or consist of other parts.
        parts: list[object] = [prompt, *more] if prompt or not more else [*more]
        if body is not None or kind is not Ask.INPUT:
            parts.append(question_part(kind, name, body))
        self._asking = self._asking or asyncio.Lock()
        async with self._asking:  # one question at a time: a plain message answers the open one
            return await self._run.ask(name, kind, self._message(parts), body, expires)

    # Recording.

    @overload
    async def step(
        self, name: str, function: Callable[..., Awaitable[T]], *args: Any, key: str = "", **kw: Any
    ) -> T: ...
    @overload
    async def step(
        self, name: str, function: Callable[..., T], *args: Any, key: str = "", **kw: Any
    ) -> T: ...
    async def step(
        self, name: str, function: Callable[..., Any], *args: Any, key: str = "", **kw: Any
    ) -> Any:
        """Calls the function once. Its result is recorded, and replayed after a crash.

        A crash during the call may call it again; `turn.key(name)` is an idempotency key for that.
        """
        record = self._call_key("step", key or name)
        return await run_step(self._run, record, name, function, *args, **kw)

    def key(self, name: str) -> str:
        """Returns an idempotency key for other systems, which is the same in every attempt of this
        task."""
        return f"{self.task_id}:{name}"

    def _call_key(self, kind: str, name: str) -> str:
        key = f"{kind}:{name}"
        calls = self._calls
        if calls is None:
            self._calls = {key: 1}
            return key
        count = calls[key] = calls.get(key, 0) + 1
        return key if count == 1 else f"{key}#{count}"

    # Ending.

    def reject(self, message: str = "") -> Rejected:
        """Returns the exception that a skill raises to refuse the task."""
        return Rejected(message)

    def fail(self, message: str = "", *, reason: str = "failed") -> Failed:
        """Returns the exception that a skill raises if it could not do the task."""
        return Failed(message, reason=reason)

    # Other agents, and tools.

    def agent(self, address: str, **options: Any) -> AgentClient:
        """Returns a client of another agent, with the options of `connect`.

        Its calls are recorded, so that each is made once, and are canceled with this task.
        """
        return outside_of(self._run).agent(access_of(self), address, options)

    def mcp(self, server: str) -> McpClient:
        """Returns an MCP server of the settings (`[mcp.NAME]`). Calls of its tools are recorded."""
        return outside_of(self._run).mcp(access_of(self), server)

    def _message_if_any(
        self, what: tuple[object, ...], metadata: dict[str, Json] | None, extensions: Iterable[str]
    ) -> Message | None:
        return self._message(what, metadata, extensions) if what or metadata else None

    def _message(
        self,
        what: Iterable[object],
        metadata: dict[str, Json] | None = None,
        extensions: Iterable[str] = (),
    ) -> Message:
        self._messages += 1
        return Message(
            message_id=f"{self.task_id}.{self._messages}",
            role=Role.AGENT,
            parts=parts_of(list(what)) or (Text(""),),
            context_id=self.context_id,
            task_id=self.task_id,
            metadata=builtins_of(metadata),
            extensions=tuple(extensions),
        )

    async def _note(self, kind: Note, body: Json) -> None:
        self._run.emit(Noted(kind=kind, body=builtins_of(body)))
        await self._run.throttle()


def run_of(turn: Turn) -> RunApi:
    """Returns the run behind a turn."""
    return turn._run


def access_of(turn: Turn) -> TurnAccess:
    """Returns the parts of a turn that a relay or a bound client needs beyond its verbs."""
    return TurnAccess(turn._run, turn._call_key, turn._ask, turn._decide, turn._message)
