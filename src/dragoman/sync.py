"""The client for scripts and notebooks: the same methods, without `await`.

    from dragoman.sync import connect

    with connect("https://agent.example.com") as agent:
        print(agent.send("Three days in Kyoto").text)

An event loop in its own thread does the work, and every method waits for its result there. Ctrl-C
cancels the work that is being waited for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from dragoman import client
from dragoman.client.files import Source
from dragoman.core.card import Card
from dragoman.core.events import Stamped
from dragoman.core.model import AnyPart, Hook, Json, Message, Task
from dragoman.core.operations import HookPage, TaskPage
from dragoman.files.download import Progress

__all__ = ["SyncAgent", "SyncConversation", "SyncEvents", "SyncTaskEvents", "connect"]

T = TypeVar("T")
Target = TypeVar("Target", bound=client.RemoteAgent | client.Conversation)
Paths = list[Path]


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="dragoman-sync", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for a coroutine; an interruption of the wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancels the remaining work of the loop and ends the thread."""
        with suppress(Exception):
            self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._loop.is_running():
            self._loop.close()


class SyncEvents:
    """Iterates over every event of a task, each once and in order."""

    def __init__(self, loop: _Loop, events: client.Events) -> None:
        self._loop = loop
        self._events = events

    def __iter__(self) -> Iterator[Stamped | Message]:
        return self

    def __next__(self) -> Stamped | Message:
        async def step() -> Stamped | Message | None:
            return await anext(self._events, None)

        found = self._loop.run(step())
        if found is None:
            raise StopIteration
        return found

    @property
    def task(self) -> Task | None:
        """The task, built from the events so far."""
        return self._events.task

    @property
    def reply(self) -> Message | None:
        """The direct reply, if the agent gave one instead of a task."""
        return self._events.reply

    def result(self) -> Task:
        """Returns the task when the stream has ended; a direct reply is a completed task without an
        id."""
        return self._loop.run(self._events.result())

    def close(self) -> None:
        """Stops reading; the task continues."""
        self._loop.run(self._events.aclose())


class SyncTaskEvents(SyncEvents):
    """The events of a task that exists already, as `watch` returns them."""

    def __iter__(self) -> Iterator[Stamped]:
        return self

    def __next__(self) -> Stamped:
        entry = super().__next__()
        assert isinstance(entry, Stamped)  # noqa: S101  as `TaskEvents` promises
        return entry


class SyncSender(Generic[Target]):
    """What an agent and a conversation with it have in common: messages are sent to both."""

    def __init__(self, loop: _Loop, target: Target) -> None:
        self._loop = loop
        self._target = target

    def send(self, *what: object, **about: Any) -> Task:
        """Sends a message. Returns the task when it finishes or asks back; a direct reply is a
        completed task without an id."""
        return self._loop.run(self._target.send(*what, **about))

    def ask(self, *what: object, **about: Any) -> Task | Message:
        """Sends a message like `send`, but returns a direct reply as the message that it is."""
        return self._loop.run(self._target.ask(*what, **about))

    def stream(self, *what: object, **about: Any) -> SyncEvents:
        """Sends a message and returns every event of its task as it comes."""
        return SyncEvents(self._loop, self._target.stream(*what, **about))


class SyncConversation(SyncSender[client.Conversation]):
    """Messages of one context. The next message answers the open question, if there is one."""

    @property
    def context_id(self) -> str:
        """The id of the context, from the agent's first response."""
        return self._target.context_id

    @property
    def task(self) -> Task | None:
        """The last task."""
        return self._target.task

    @property
    def waits(self) -> bool:
        """Whether the last task waits for an answer."""
        return self._target.waits

    def cancel(self) -> Task | None:
        """Cancels the last task, if it runs or waits."""
        return self._loop.run(self._target.cancel())


class SyncAgent(SyncSender[client.RemoteAgent]):
    """A remote agent, with the methods of `client.RemoteAgent` in blocking form."""

    @property
    def card(self) -> Card:
        """The card of the agent."""
        return self._target.card

    @property
    def dialect(self) -> str:
        """The dialect in use."""
        return self._target.dialect

    def stream_text(self, *what: object, **about: Any) -> Iterator[str]:
        """Sends a message and yields the text of the answer as it arrives."""
        pieces = self._target.stream_text(*what, **about)

        async def step() -> str | None:
            return await anext(pieces, None)

        while (piece := self._loop.run(step())) is not None:
            yield piece

    def watch(self, task: Task | str, cursor: int | None = None) -> SyncTaskEvents:
        """Yields the current task and its later events, or the events after a cursor."""
        return SyncTaskEvents(self._loop, self._target.watch(task, cursor))

    def answer(self, task: Task | str, value: object, *, question: str = "") -> Task:
        """Answers the question of a task."""
        return self._loop.run(self._target.answer(task, value, question=question))

    def call(self, skill: str, /, **arguments: Json) -> Json:
        """Calls a skill with arguments and returns its result."""
        return self._loop.run(self._target.call(skill, **arguments))

    def invoke(self, method: str, /, **params: Json) -> Json:
        """Calls a method that the agent defines beyond the protocol."""
        return self._loop.run(self._target.invoke(method, **params))

    def conversation(self, context_id: str = "", *, skill: str = "") -> SyncConversation:
        """Starts a conversation: messages that share a context."""
        return SyncConversation(self._loop, self._target.conversation(context_id, skill=skill))

    def get(self, task: Task | str, history_length: int | None = None) -> Task:
        """Returns the current state of a task."""
        return self._loop.run(self._target.get(task, history_length))

    def list(self, **filters: Any) -> TaskPage:
        """Returns a page of your tasks."""
        return self._loop.run(self._target.list(**filters))

    def cancel(self, task: Task | str, metadata: Mapping[str, Json] | None = None) -> Task:
        """Cancels a task."""
        return self._loop.run(self._target.cancel(task, metadata))

    def set_hook(self, task: Task | str, url: str, **about: str) -> Hook:
        """Registers a webhook for the events of a task."""
        return self._loop.run(self._target.set_hook(task, url, **about))

    def get_hook(self, task: Task | str, hook_id: str = "") -> Hook:
        """Returns one webhook of a task."""
        return self._loop.run(self._target.get_hook(task, hook_id))

    def list_hooks(self, task: Task | str) -> HookPage:
        """Returns the webhooks of a task."""
        return self._loop.run(self._target.list_hooks(task))

    def delete_hook(self, task: Task | str, hook_id: str) -> None:
        """Deletes a webhook."""
        self._loop.run(self._target.delete_hook(task, hook_id))

    def extended_card(self) -> Card:
        """Fetches the extended card."""
        return self._loop.run(self._target.extended_card())

    def fetch(self, part: AnyPart, **options: Any) -> bytes:
        """Returns the content of a part; a link is downloaded."""
        return self._loop.run(self._target.fetch(part, **options))

    def save(
        self, source: Source, folder: Path | str = ".", progress: Progress | None = None
    ) -> Paths:
        """Saves the files of a task, message, artifact or part in a folder, and returns their
        paths."""
        return self._loop.run(self._target.save(source, folder, progress=progress))


@contextmanager
def connect(address: str, **options: Any) -> Iterator[SyncAgent]:
    """Connects to an agent; it takes the options of `dragoman.connect`."""
    loop = _Loop()
    opening = client.connect(address, **options)
    try:
        agent = loop.run(opening.__aenter__())
        try:
            yield SyncAgent(loop, agent)
        finally:
            loop.run(opening.__aexit__(None, None, None))
    finally:
        loop.close()
