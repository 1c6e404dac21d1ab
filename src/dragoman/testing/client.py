"""An in-memory client for tests: an agent with its engine and a store, without a port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.agent.parts import parts_of
from dragoman.backend import Backend, BackendPeer
from dragoman.core.errors import Unsupported
from dragoman.core.events import Stamped
from dragoman.core.model import Json, Message, Role, Task
from dragoman.core.operations import (
    CancelTask,
    GetTask,
    Invoke,
    ListTasks,
    Resolve,
    SendMessage,
    Streamed,
    TaskPage,
    Watch,
)
from dragoman.core.peer import ANYONE, Context
from dragoman.engine import Engine, EngineSettings
from dragoman.engine.task_ids import new_id
from dragoman.security.card_enforcement import held
from dragoman.server.engines import mcp_servers
from dragoman.server.remote_agents import RemoteAgents
from dragoman.settings import McpServer, Settings
from dragoman.store import open_store
from dragoman.store.interface import Store


class Client:
    """Calls an agent in this process.

    >>> async with Client(agent) as client:
    ...     task = await client.send("hello")
    ...     assert task.text == "HELLO"
    """

    def __init__(
        self,
        agent: Agent,
        *,
        store: str | Store = "memory:",
        settings: EngineSettings | None = None,
        context: Context = ANYONE,
        mcp: Mapping[str, McpServer] | None = None,
    ) -> None:
        """`mcp` holds MCP servers by name, in the form of `[mcp.NAME]` in the settings."""
        self.store = open_store(store) if isinstance(store, str) else store
        self._agent = agent
        world = RemoteAgents(allow_private=True, mcp=mcp_servers(Settings(mcp=dict(mcp or {}))))
        self._serve(
            agent.peer(store=self.store)
            if isinstance(agent, Backend)
            else Engine(agent, self.store, settings, outside=world)
        )
        self.context = context

    def _serve(self, served: Engine | BackendPeer) -> None:
        self._served = served
        # Media types and other declarations are enforced here too.
        self._peer = held(self._agent, served)

    @property
    def engine(self) -> Engine:
        """The engine of the agent; a `Backend` has none."""
        if not isinstance(self._served, Engine):
            raise Unsupported("A backend keeps its tasks itself; it has no engine")
        return self._served

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._serve(engine)

    async def __aenter__(self) -> Client:
        await self._served.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._served.stop(grace=0)

    async def send(self, *what: object, wait: bool = True, **about: Any) -> Task:
        """Sends a message, and returns the task when it ends or asks a question.

        `what` is str, bytes, Path, dict... The options are `skill=`, `task=` (continues it),
        `context_id=`, `metadata=`, `key=` (idempotency) and others. For a skill that replies
        directly, use `ask`.
        """
        answer = await self.ask(*what, wait=wait, **about)
        if isinstance(answer, Message):
            raise AssertionError(f"The agent replied without a task: {answer.text!r}")
        return answer

    async def ask(self, *what: object, wait: bool = True, **about: Any) -> Task | Message:
        """Like `send`, but the agent may reply with a message instead of a task."""
        op, ctx = self._message(what, about)
        return await self._peer.call(replace(op, wait=wait), ctx)

    async def stream(self, *what: object, **about: Any) -> AsyncGenerator[Stamped | Message, None]:
        """Sends a message and yields every event."""
        op, ctx = self._message(what, about)
        async with aclosing(self._events(op, ctx)) as events:
            async for event in events:
                yield event

    async def watch(self, task_id: str, cursor: int | None = None) -> AsyncGenerator[Stamped, None]:
        """Yields the current task and its later events, or the events after a cursor."""
        ctx = replace(self.context, cursor=cursor)
        async with aclosing(self._events(Watch(task_id=task_id), ctx)) as events:
            async for event in events:
                if isinstance(event, Stamped):  # a direct reply makes no task
                    yield event

    async def _events(self, op: Streamed, ctx: Context) -> AsyncGenerator[Stamped | Message, None]:
        async with aclosing(self._peer.stream(op, ctx)) as batches:
            async for batch in batches:
                for entry in batch.entries:
                    yield entry

    async def get(self, task_id: str, history_length: int | None = None) -> Task:
        """Returns the current state of a task."""
        op = GetTask(task_id=task_id, history_length=history_length)
        return await self._peer.call(op, self.context)

    async def list(self, **filters: Any) -> TaskPage:
        """Returns a page of tasks. The filters are the fields of `ListTasks`."""
        return await self._peer.call(ListTasks(**filters), self.context)

    async def cancel(self, task_id: str) -> Task:
        """Cancels a task."""
        return await self._peer.call(CancelTask(task_id=task_id), self.context)

    async def resolve(self, task_id: str, question: str, value: Json) -> Task:
        """Answers an open question by its name."""
        op = Resolve(task_id=task_id, question=question, value=value)
        return await self._peer.call(op, self.context)

    async def invoke(self, method: str, /, **params: Json) -> Json:
        """Calls a method that the agent defines beyond the protocol."""
        return await self._peer.call(Invoke(method=method, params=params), self.context)

    def _message(
        self,
        what: tuple[object, ...],
        about: dict[str, Any],
    ) -> tuple[SendMessage, Context]:
        skill, task = about.pop("skill", ""), about.pop("task", "")
        metadata = dict(about.pop("metadata", None) or {})
        if skill:
            metadata["skillId"] = skill
        ctx = replace(self.context, idempotency_key=about.pop("key", ""))
        message = Message(
            message_id=about.pop("message_id", "") or new_id(),
            role=Role.USER,
            parts=parts_of(list(what)),
            task_id=task.id if isinstance(task, Task) else task,
            context_id=about.pop("context_id", ""),
            metadata=metadata or None,
        )
        return SendMessage(message=message, **about), ctx
