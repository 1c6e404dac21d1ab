"""The public API of a remote agent, over a `Peer`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Unpack, overload
from uuid import uuid4

from msgspec.structs import replace

from dragoman.agent.parts import builtins_of
from dragoman.agent.remote_calls import SendOptions, as_task
from dragoman.core import operations as ops
from dragoman.core.card import Card
from dragoman.core.errors import BadParams, DragomanError, PeerMisbehaved
from dragoman.core.json_schema import schemas_of
from dragoman.core.model import AnyPart, Hook, Json, Message, Role, Task
from dragoman.core.peer import ANYONE, Batch, BearerToken, Begun, Context
from dragoman.core.questions import answer_value
from dragoman.files.download import Progress

from .conversation import Conversation
from .event_stream import Events, TaskEvents, result_parts, text_of
from .failover import FailoverPeer
from .files import Files, Source, parts_to_send
from .limits import ClientLimits

Paths = list[Path]
_USER = Role.USER


class RemoteAgent:
    """A remote agent. `connect(address)` returns one.

    It is also a `Peer`: `call(op, ctx)` and `stream(op, ctx)` accept operations.
    """

    def __init__(
        self,
        remote: FailoverPeer,
        files: Files,
        url: str,
        extensions: Sequence[str] = (),
        changed: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`changed` reads the card again, where there is one."""
        self._remote = remote
        self._changed = changed
        self._files = files
        self.url = url
        """The address of its card, or of the agent itself if it has no card."""
        self._context = replace(ANYONE, extensions=tuple(extensions))

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.card.name!r} {self.dialect} at {self.url}>"

    @property
    def card(self) -> Card:
        """The card of the agent; after `extended_card`, its extended card."""
        return self._remote.card

    @property
    def dialect(self) -> str:
        """The dialect in use; it changes when an interface fails and another one is used."""
        return self._remote.transport.dialect.name

    @property
    def remembers(self) -> bool:
        """Whether the agent recognises a repeated message by its idempotency key."""
        return self._remote.remembers

    @property
    def address(self) -> tuple[str, str]:
        """The address that calls go to, and that of the agent whose card names it, or "" if it is
        the address that the agent was found at."""
        transport = self._remote.transport
        return transport.interface.url, transport.source

    @property
    def on_retry(self) -> Callable[[DragomanError], object] | None:
        """A function that is called with the error of each attempt that is repeated."""
        return self._remote.on_retry

    @on_retry.setter
    def on_retry(self, function: Callable[[DragomanError], object] | None) -> None:
        self._remote.on_retry = function

    async def changed(self) -> bool:
        """Asks the agent for a sign of life, and returns whether its card is another one than when
        we connected. An agent without a card is only asked whether it is there."""
        if self._changed is not None:
            return await self._changed()
        await self._remote.ping()
        return False

    @property
    def limits(self) -> ClientLimits:
        """The limits of this connection."""
        return self._remote.limits

    # Messages.

    async def send(
        self,
        *what: object,
        wait: bool = True,
        history_length: int | None = None,
        key: str = "",
        **about: Unpack[SendOptions],
    ) -> Task:
        """Sends a message, and returns the task when it ends or asks a question. An agent that
        replies directly, without a task, gives a completed task whose id is empty.

        `what` is any number of str, bytes, Path, dict, Part... With `wait=False` the task is
        returned at once. Options of the message are `skill=`, `task=` (continues it),
        `context_id=`, `metadata=`, `references=`, `accepts=` (media types), `hook=` (a webhook) and
        `message_id=`; `key=` is the idempotency key, by default a new one for every call.
        """
        return as_task(
            await self.ask(*what, wait=wait, history_length=history_length, key=key, **about)
        )

    async def ask(
        self,
        *what: object,
        wait: bool = True,
        history_length: int | None = None,
        key: str = "",
        **about: Unpack[SendOptions],
    ) -> Task | Message:
        """Sends a message like `send`, but returns a direct reply of the agent as the message that
        it is."""
        message, options = await self._message(what, {**about})
        op = ops.SendMessage(message=message, wait=wait, history_length=history_length, **options)
        return await self._remote.call(op, self._keyed(key or message.message_id))

    @overload
    def stream(  # type: ignore[overload-overlap]  # nobody says an operation to an agent
        self, op: ops.Streamed, ctx: Context, /
    ) -> AsyncGenerator[Batch, None]: ...

    @overload
    def stream(self, *what: object, key: str = "", **about: Unpack[SendOptions]) -> Events: ...

    def stream(self, *what: Any, key: str = "", **about: Any) -> Any:
        """Sends a message and yields every event once and in order, even if the connection breaks.
        It takes the arguments of `send`."""
        if len(what) == 2 and isinstance(what[0], ops.SendMessage | ops.Watch):
            return self._remote.stream(what[0], what[1])

        async def begin() -> tuple[ops.Streamed, Context]:
            message, options = await self._message(what, about)
            op = ops.SendMessage(message=message, **options)
            return op, self._keyed(key or message.message_id)

        return Events(self._remote, begin)

    def stream_text(
        self, *what: object, key: str = "", **about: Unpack[SendOptions]
    ) -> AsyncGenerator[str, None]:
        """Sends a message and yields the text of the answer as it arrives. It takes the arguments
        of `send`.

        A task that does not complete raises `PeerRefused` with its id and state in `public`.
        """
        return text_of(self.stream(*what, key=key, **about))

    def begin(self, op: ops.Streamed, ctx: Context) -> Awaitable[Begun]:
        """Returns the first events of a stream, and the stream of all that follow, for a caller
        that resumes it itself if it breaks."""
        return self._remote.begin(op, ctx)

    def watch(self, task: Task | str, cursor: int | None = None) -> TaskEvents:
        """Yields the current task and its later events, or the events after a cursor."""
        op = ops.Watch(task_id=_id(task))
        ctx = replace(self._context, cursor=cursor)

        async def begin() -> tuple[ops.Streamed, Context]:
            return op, ctx

        return TaskEvents(self._remote, begin)

    async def answer(self, task: Task | str, value: object, *, question: str = "") -> Task:
        """Answers the question of a task with text, data or files; True or False answers an
        approval."""
        value = answer_value(value)
        if question:
            return await self.resolve(task, question, value)
        answer = await self.ask(value, task=task)
        if isinstance(answer, Message):
            raise PeerMisbehaved("The agent answered with a message about no task")
        return answer

    async def resolve(self, task: Task | str, question: str, value: Json) -> Task:
        """Answers one question of a task by its name."""
        op = ops.Resolve(
            task_id=_id(task),
            question=question,
            value=value,
            context_id=await self._context_of(task),
        )
        return await self._remote.call(op, self._context)

    @overload
    async def call(self, what: str, /, **arguments: Json) -> Json: ...

    @overload
    async def call(self, what: ops.Operation[ops.R], ctx: Context, /) -> ops.R: ...

    async def call(self, what: Any, ctx: Context | None = None, /, **arguments: Json) -> Any:
        """Calls a skill with arguments and returns its result.

        Both are validated against the schemas on the card, if it has any (`urn:dragoman:skills:1`).
        A task that does not complete raises `PeerRefused` with its id and state in `public`.
        """
        if isinstance(what, ops.Operation):
            return await self._remote.call(what, ctx or self._context)
        from .arguments import check_arguments, fitting

        takes, gives = schemas_of(self.card, what)
        given = builtins_of(arguments)
        check_arguments(takes, given, what)
        answer = await self.ask(given, skill=what)
        return fitting(gives, result_parts(answer, what), what)

    async def invoke(self, method: str, /, **params: Json) -> Json:
        """Calls a method that the agent defines, such as `myorg.billing/refund`."""
        return await self._remote.call(ops.Invoke(method=method, params=params), self._context)

    def conversation(self, context_id: str = "", *, skill: str = "") -> Conversation:
        """Starts a conversation: its messages share a context, and the next one answers an open
        question."""
        return Conversation(self, context_id, skill)

    # Tasks.

    async def get(self, task: Task | str, history_length: int | None = None) -> Task:
        """Returns the current state of a task."""
        op = ops.GetTask(task_id=_id(task), history_length=history_length)
        return await self._remote.call(op, self._context)

    async def list(self, **filters: Any) -> ops.TaskPage:
        """Returns a page of your tasks. The filters are the fields of `ops.ListTasks`."""
        return await self._remote.call(ops.ListTasks(**filters), self._context)

    async def tasks(self, **filters: Any) -> AsyncGenerator[Task, None]:
        """Yields all your tasks that match the filters, page by page."""
        token = ""
        while True:
            page = await self.list(**filters, page_token=token)
            for task in page.tasks:
                yield task
            if not page.next_token or page.next_token == token:
                return
            token = page.next_token

    async def cancel(self, task: Task | str, metadata: Mapping[str, Json] | None = None) -> Task:
        """Cancels a task."""
        op = ops.CancelTask(task_id=_id(task), metadata=dict(metadata) if metadata else None)
        return await self._remote.call(op, self._context)

    # Webhooks.

    async def set_hook(
        self,
        task: Task | str,
        url: str,
        *,
        token: str = "",
        hook_id: str = "",
        scheme: str = "",
        credentials: str = "",
    ) -> Hook:
        """Registers a webhook for the events of a task. It replaces the one with the same id."""
        hook = Hook(
            hook_id=hook_id,
            task_id=_id(task),
            url=url,
            token=token,
            scheme=scheme,
            credentials=credentials,
        )
        return await self._remote.call(ops.SetHook(hook=hook), self._context)

    async def get_hook(self, task: Task | str, hook_id: str = "") -> Hook:
        """Returns one webhook of a task, by default the first."""
        return await self._remote.call(
            ops.GetHook(task_id=_id(task), hook_id=hook_id), self._context
        )

    async def list_hooks(self, task: Task | str) -> ops.HookPage:
        """Returns the webhooks of a task."""
        return await self._remote.call(ops.ListHooks(task_id=_id(task)), self._context)

    async def delete_hook(self, task: Task | str, hook_id: str) -> None:
        """Deletes a webhook. It is no error if there is none."""
        await self._remote.call(ops.DeleteHook(task_id=_id(task), hook_id=hook_id), self._context)

    # The card, and files.

    async def extended_card(self) -> Card:
        """Fetches the extended card, which is the agent's card from now on (1.0 §3.1.11).

        The interfaces in use stay the same.
        """
        card = await self._remote.call(ops.GetExtendedCard(), self._context)
        self._remote.card = card
        return card

    async def fetch(
        self, part: AnyPart, *, max_size: int | None = None, progress: Progress | None = None
    ) -> bytes:
        """Returns the content of a part. A link is downloaded through the guarded HTTP client, up
        to a size."""
        return await self._files.fetch(part, max_size=max_size, progress=progress)

    def download(
        self,
        url: str,
        *,
        max_size: int | None = None,
        progress: Progress | None = None,
        bearer: BearerToken | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yields a linked file as it comes, through the guarded HTTP client, up to a size."""
        return self._files.chunks(url, max_size, progress, bearer)

    async def save(
        self,
        source: Source,
        folder: Path | str = ".",
        *,
        max_size: int | None = None,
        progress: Progress | None = None,
    ) -> Paths:
        """Saves the files of a task, message, artifact or part in a folder, and returns their
        paths."""
        return await self._files.save(source, folder, max_size=max_size, progress=progress)

    # For other modules of the client.

    def bearing(self, **about: Any) -> RemoteAgent:
        """Returns the same agent with fields for every call: `trace=`, `hops=`, `deadline=`."""
        found = copy(self)
        found._context = replace(self._context, **about)
        return found

    def _keyed(self, key: str) -> Context:
        return replace(self._context, idempotency_key=key)

    async def _message(
        self, what: Iterable[object], about: dict[str, Any]
    ) -> tuple[Message, dict[str, Any]]:
        about = dict(about)
        metadata = dict(about.pop("metadata", None) or {})
        if skill := about.pop("skill", ""):
            metadata["skillId"] = skill
        task = about.pop("task", "")
        context_id = about.pop("context_id", "")
        if task and not context_id:
            context_id = await self._context_of(task)
        message = Message(
            message_id=about.pop("message_id", "") or uuid4().hex,
            role=_USER,
            parts=await parts_to_send(what, self.limits.file_size),
            task_id=_id(task) if task else "",
            context_id=context_id,
            metadata=metadata or None,
            references=tuple(map(_id, about.pop("references", ()))),
        )
        return message, _options(about)

    async def _context_of(self, task: Task | str) -> str:
        """Returns the context of a task. A message to a task names both (1.0 §3.4.3): servers that
        know only the task may begin a new context, and fail the task for that. A task that is given
        by its id is looked up; where that fails, the message itself tells what is wrong."""
        if isinstance(task, Task):
            return task.context_id
        dialect = self._remote.transport.dialect
        if dialect.names_tasks or dialect.conversation is not None:
            return ""  # the name of the task is all that its messages need
        try:
            return (await self.get(task, history_length=0)).context_id
        except DragomanError:
            return ""


def _options(about: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "accepts" in about:
        options["accepts"] = tuple(about.pop("accepts"))
    if (hook := about.pop("hook", None)) is not None:
        options["hook"] = (
            hook if isinstance(hook, Hook) else Hook(hook_id="", task_id="", url=str(hook))
        )
    if about:
        raise TypeError(f"unknown: {', '.join(sorted(about))}")
    return options


def _id(task: Task | str) -> str:
    found = task.id if isinstance(task, Task) else task
    if not found:
        raise BadParams("There is no task: the agent replied directly", field="task")
    return found
