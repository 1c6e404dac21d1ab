"""The half of a turn that only reads: the request, its caller and the circumstances of the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from dragoman.core.extensions import SENDER_KEY
from dragoman.core.model import AnyPart, File, Json, Message, Task
from dragoman.core.peer import Context

from .run_api import RunApi

if TYPE_CHECKING:
    from dragoman.workspace import Workspace


class TurnRequest:
    """What a turn knows about its request."""

    _run: RunApi
    _skill: str

    # What the caller said.

    @property
    def message(self) -> Message:
        """Returns the message that opened the task."""
        return self._run.opened.message

    @property
    def text(self) -> str:
        """Returns the text of the message."""
        return self.message.text

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        """Returns the parts of the message."""
        return self.message.parts

    @property
    def files(self) -> tuple[File, ...]:
        """Returns the files of the message: `Blob` with its content, or `Link` with an address."""
        return self.message.files

    @property
    def data(self) -> Json:
        """Returns the value of the first data part of the message, or None."""
        return self.message.data

    @property
    def history(self) -> tuple[Message, ...]:
        """Returns what both sides said in this task so far."""
        return self._run.history()

    async def conversation(self, limit: int = 50) -> tuple[Message, ...]:
        """Returns the caller's latest messages in this context, across tasks, oldest first."""
        return await self._run.conversation(limit)

    @property
    def metadata(self) -> dict[str, Json]:
        """Returns the metadata of the request, merged over that of the message. What a gateway adds
        to find its own messages again is not part of it."""
        found = {**(self.message.metadata or {}), **(self._run.opened.metadata or {})}
        found.pop(SENDER_KEY, None)
        return found

    @property
    def accepts(self) -> tuple[str, ...]:
        """Returns the output modes that the caller can read; empty means any."""
        return self._run.opened.accepts

    @property
    def references(self) -> tuple[str, ...]:
        """Returns the ids of other tasks that the caller refers to."""
        return self.message.references

    async def referenced(self) -> tuple[Task, ...]:
        """Returns the tasks that the caller refers to, without those of other callers."""
        return await self._run.tasks(self.references)

    @property
    def extensions(self) -> tuple[str, ...]:
        """Returns the URIs of the extensions that the caller activated."""
        return self._run.opened.extensions

    @property
    def context(self) -> tuple[Json, ...]:
        """Returns the fragments of context that the caller sent along, such as files."""
        return self._run.opened.context

    @property
    def context_id(self) -> str:
        """Returns the id of the context, which is the conversation that this task belongs to."""
        return self._run.context_id

    @property
    def task_id(self) -> str:
        """Returns the id of the task."""
        return self._run.task_id

    @property
    def caller(self) -> Context:
        """Returns the context of the caller: its tenant, principal, scopes and the like."""
        return self._run.caller

    @property
    def state(self) -> SimpleNamespace:
        """Returns what the functions of `@agent.on_start` and `@agent.lifespan` have opened."""
        return self._run.shared.state

    @property
    def skill(self) -> str:
        """Returns the id of the skill that runs."""
        return self._skill

    @property
    def attempt(self) -> int:
        """Returns the number of this run of the task: 1 at first, and more after a crash."""
        return self._run.attempt

    @property
    def cancelled(self) -> bool:
        """Returns whether the caller has canceled the task, so that a skill that does not await
        anything can stop."""
        return self._run.cancelled

    @property
    def workspace(self) -> Workspace:
        """Returns the folder that tools may use. Raises `Unsupported` if none is granted."""
        from dragoman.workspace import Workspace

        return Workspace(self._run.folder())
