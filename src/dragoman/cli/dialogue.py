"""One exchange with an agent: sends a message, shows the events and answers questions.

Ctrl-C cancels what waits here. The first time the task is canceled at the agent, and its end shown;
a second time nobody waits for that either.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dragoman.client import Conversation, Events, RemoteAgent
from dragoman.core.errors import DragomanError
from dragoman.core.events import Asked, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import AnyPart, Message, Task

from . import formatting
from .prompts import TerminalPerson, question_shown
from .view import TaskView
from .waiting import Wait

SaveFolder = Annotated[
    Path | None, Parameter(alias="-o", help="Folder for the files that the agent returns.")
]
ShowWork = Annotated[
    bool, Parameter(help="Show the thoughts and log lines of agents that publish them.")
]
CANCELS = 10.0
"""The seconds for the agent to answer that it has canceled."""


class Left(Exception):
    """The person interrupted the dialogue; `task` is its task at that time, if there is one."""

    def __init__(self, task: Task | None = None) -> None:
        super().__init__()
        self.task = task


class Dialogue:
    """Talks with one agent."""

    def __init__(
        self,
        agent: RemoteAgent,
        view: TaskView,
        person: TerminalPerson | None,
        save: Path | None = None,
        save_hint: str = "--save DIR keeps files.",
        *,
        wait: Wait,
    ) -> None:
        """`save_hint` is shown for files that are not kept because there is no folder `save`."""
        self._wait = wait
        self.agent, self.view, self.person, self.save = agent, view, person, save
        self.files: list[Path] = []
        """Files that go along with the next message."""
        self._save_hint = save_hint

    async def say(self, talk: Conversation, *what: object, **about: Any) -> Task | Message:
        """Sends a message. Returns the task when it has ended or waits for something that nobody
        here can answer, or the direct reply."""
        return await self.go_on(talk, await self._send(talk, what, about))

    async def go_on(self, talk: Conversation, result: Task | Message) -> Task | Message:
        """Has the person answer what the task asks, until it has ended or waits for something that
        nobody here can answer."""
        while (answer := await self._answer(result)) is not None:
            self._wait.restart()
            result = await self._send(talk, answer, {})
        await self._saved(result)
        return result

    async def _send(
        self, talk: Conversation, what: tuple[object, ...], about: dict[str, Any]
    ) -> Task | Message:
        found = await self.follow(talk.stream(*what, *self.files, **about))
        self.files.clear()
        return found

    async def follow(self, events: Events, *, cancel: bool = True) -> Task | Message:
        """Shows a stream to its end."""
        self.view.begin()
        self._wait.begin_work()
        self._wait.print = self.view.note
        try:
            try:
                async for entry in events:
                    if isinstance(entry, Stamped):
                        self._wait.hear(entry.task_id, self.view.shows)
                    self.view.tell(entry)
                    if _waits(entry, whole=not cancel):
                        break
                found = events.reply or events.task or await events.result()
            except asyncio.CancelledError:
                if not cancel or self._wait.expired:
                    raise
                await events.aclose()
                found = await self.canceled(events.task)
                self.view.end(found)
                raise Left(found) from None
            self.view.end(found)
            return found
        finally:
            self.view.stop()
            self._wait.rest()
            await events.aclose()

    async def canceled(self, task: Task | None) -> Task:
        """Cancels the task at the agent after Ctrl-C, and returns it. Another Ctrl-C ends the
        waiting."""
        mine = asyncio.current_task()
        if mine is not None:
            mine.uncancel()
        if task is None:
            self.view.stop()
            self.view.note("You left before the agent answered; it may still do what you said.")
            raise Left
        if task.state in FINAL:
            return task
        self.view.note("Canceling...")
        try:
            async with asyncio.timeout(CANCELS):
                return await self.agent.cancel(task)
        except (DragomanError, TimeoutError) as exc:
            why = exc.message if isinstance(exc, DragomanError) else "it does not answer"
            self.view.stop()
            self.view.note(f"The task was not canceled: {formatting.line(why)}")
            raise Left(task) from None

    async def _answer(self, result: Task | Message) -> tuple[AnyPart, ...] | None:
        if self.person is None or isinstance(result, Message) or question_shown(result) is None:
            return None
        try:
            return self.person.answer(result)
        except KeyboardInterrupt:
            print()
            found = await self.canceled(result)
            self.view.end(found)
            raise Left(found) from None

    async def _saved(self, result: Task | Message) -> None:
        if not formatting.has_files(result):
            return
        if self.save is None:
            self.view.note(self._save_hint)
            return
        self._wait.begin_work()
        for path in await self.agent.save(result, self.save):
            self.view.note(f"Saved {path}")
        self._wait.rest()


def _waits(entry: Stamped | Message, *, whole: bool) -> bool:
    """Returns whether the task waits now. Subscriptions, and streams of a task that needs
    credentials, stay open then (A2A 1.0 §7.6). A snapshot counts only if no message was just sent
    to the task."""
    match entry.event if isinstance(entry, Stamped) else None:
        case StateChanged(state=state):
            return state in WAITING
        case Asked():
            return True
        case Snapshot(task=task):
            return whole and task.state in WAITING
    return False
