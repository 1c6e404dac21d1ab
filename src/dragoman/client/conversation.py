"""Messages that belong together: the context goes along, open questions are answered."""

from __future__ import annotations

from typing import Any, Protocol

from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Message, Task

from .event_stream import Events


class Says(Protocol):
    """What a conversation needs of an agent."""

    async def send(self, *what: object, **about: Any) -> Task | Message:
        """Says something."""

    def stream(self, *what: object, **about: Any) -> Events:
        """Says something and tells every event."""

    async def cancel(self, task: Task) -> Task:
        """Stops a task."""


class Conversation:
    """Messages of one context. What is said next answers the open question, if there is one."""

    def __init__(self, agent: Says, context_id: str = "", skill: str = "") -> None:
        self._agent = agent
        self._skill = skill
        self.context_id = context_id
        """Given by the agent with its first answer."""
        self.task: Task | None = None
        """The last one."""

    @property
    def waits(self) -> bool:
        """Whether the last task waits for an answer."""
        return self.task is not None and self.task.state in WAITING

    async def send(self, *what: object, **about: Any) -> Task | Message:
        """Says the next thing; arguments as `RemoteAgent.send`."""
        return self._heard(await self._agent.send(*what, **self._about(about)))

    def stream(self, *what: object, **about: Any) -> Events:
        """Says the next thing and tells every event."""
        events = self._agent.stream(*what, **self._about(about))
        events.on_end = self._heard
        return events

    async def cancel(self) -> Task | None:
        """Stops the last task, if it runs or waits."""
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
