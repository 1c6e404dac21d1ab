"""Conversations: messages that share a context and answer open questions."""

from __future__ import annotations

from typing import Any, Protocol, Unpack

from dragoman.agent.remote_calls import SendOptions, as_task
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Message, Task

from .event_stream import Events


class Says(Protocol):
    """The part of an agent that a conversation uses."""

    async def ask(
        self, *what: object, wait: bool = True, key: str = "", **about: Unpack[SendOptions]
    ) -> Task | Message:
        """Sends a message."""

    def stream(self, *what: object, key: str = "", **about: Unpack[SendOptions]) -> Events:
        """Sends a message and yields every event."""

    async def cancel(self, task: Task) -> Task:
        """Cancels a task."""


class Conversation:
    """Messages of one context. The next message answers the open question, if there is one."""

    def __init__(self, agent: Says, context_id: str = "", skill: str = "") -> None:
        self._agent = agent
        self._skill = skill
        self.context_id = context_id
        """The id of the context, from the agent's first response."""
        self.task: Task | None = None
        """The last task."""

    @property
    def waits(self) -> bool:
        """Whether the last task waits for an answer."""
        return self.task is not None and self.task.state in WAITING

    async def send(
        self, *what: object, wait: bool = True, key: str = "", **about: Unpack[SendOptions]
    ) -> Task:
        """Sends the next message; it takes the arguments of `RemoteAgent.send`."""
        return as_task(await self.ask(*what, wait=wait, key=key, **about))

    async def ask(
        self, *what: object, wait: bool = True, key: str = "", **about: Unpack[SendOptions]
    ) -> Task | Message:
        """Sends the next message like `send`, but returns a direct reply as the message that it
        is."""
        return self._heard(
            await self._agent.ask(*what, wait=wait, key=key, **self._about({**about}))
        )

    def stream(self, *what: object, key: str = "", **about: Unpack[SendOptions]) -> Events:
        """Sends the next message and yields every event."""
        events = self._agent.stream(*what, key=key, **self._about({**about}))
        events.on_end = self._heard
        return events

    async def cancel(self) -> Task | None:
        """Cancels the last task, if it runs or waits."""
        if self.task is None or self.task.state in FINAL:
            return None
        self.task = await self._agent.cancel(self.task)
        return self.task

    def _about(self, about: dict[str, Any]) -> dict[str, Any]:
        task = self.task
        if task is not None and task.state not in FINAL:
            return {"task": task, "context_id": task.context_id, **about}
        told = {"context_id": self.context_id, **about}
        if self._skill:
            told.setdefault("skill", self._skill)
        if task is not None:  # 1.0 §3.4.3: a refinement is a new task that refers to the old one
            told.setdefault("references", (task,))
        return told

    def _heard(self, answer: Task | Message) -> Task | Message:
        self.context_id = answer.context_id or self.context_id
        if isinstance(answer, Task):
            self.task = answer
        return answer
