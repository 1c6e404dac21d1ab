"""An agent elsewhere, as one talks to it: the pleasant side of a `Peer`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, overload
from uuid import uuid4

from msgspec.structs import replace

from dragoman.core import operations as ops
from dragoman.core.card import Card
from dragoman.core.errors import PeerMisbehaved, PeerRefused
from dragoman.core.model import AnyPart, Hook, Json, Message, Role, State, Task
from dragoman.core.peer import ANYONE, Batch, Context
from dragoman.core.questions import answer_value

from .conversation import Conversation
from .event_stream import Events
from .failover import FailoverPeer
from .files import Files, Progress, Source, parts_to_send
from .limits import ClientLimits

Paths = list[Path]


class RemoteAgent:
    """An agent somewhere else. `connect(address)` gives one.

    It is a `Peer` too: `call(op, ctx)` and `stream(op, ctx)` take operations as they are.
    """

    def __init__(
        self, remote: FailoverPeer, files: Files, url: str, extensions: Sequence[str] = ()
    ) -> None:
        self._remote = remote
        self._files = files
        self.url = url
        """Where its card lies, or it itself where it has none."""
        self._context = replace(ANYONE, extensions=tuple(extensions))

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.card.name!r} {self.dialect} at {self.url}>"

    @property
    def card(self) -> Card:
        """What the agent says about itself; after `extended_card` what it says to us."""
        return self._remote.card

    @property
    def dialect(self) -> str:
        """What is spoken now; it changes when a way fails and another one is taken."""
        return self._remote.transport.dialect.name

    @property
    def limits(self) -> ClientLimits:
        """What holds for this connection."""
        return self._remote.limits

    # Saying something.

    async def send(
        self,
        *what: object,
        wait: bool = True,
        history_length: int | None = None,
        key: str = "",
        **about: Any,
    ) -> Task | Message:
        """Says something: the task when it finishes or asks back, or the agent's direct reply.

        `what` is str, bytes, Path, dict, Part..., in any number. `wait=False` does not wait for the
        task. About the message: `skill=`, `task=` (continues it), `context_id=`, `metadata=`,
        `references=`, `accepts=` (media types), `hook=` (a webhook), `message_id=`; `key=` is the
        idempotency key, else there is a new one for every call.
        """
        message, options = await self._message(what, about)
        op = ops.SendMessage(message=message, wait=wait, history_length=history_length, **options)
        return await self._remote.call(op, self._keyed(key or message.message_id))

    @overload
    def stream(  # type: ignore[overload-overlap]  # nobody says an operation to an agent
        self, op: ops.Streamed, ctx: Context, /
    ) -> AsyncGenerator[Batch, None]: ...

    @overload
    def stream(self, *what: object, key: str = "", **about: Any) -> Events: ...

    def stream(self, *what: Any, key: str = "", **about: Any) -> Any:
        """Says something and tells every event, each once and in order, whatever happens to the
        connection. Arguments as `send`."""
        if len(what) == 2 and isinstance(what[0], ops.SendMessage | ops.Watch):
            return self._remote.stream(what[0], what[1])

        async def begin() -> tuple[ops.Streamed, Context]:
            message, options = await self._message(what, about)
            op = ops.SendMessage(message=message, **options)
            return op, self._keyed(key or message.message_id)

        return Events(self._remote, begin)

    def watch(self, task: Task | str, cursor: int | None = None) -> Events:
        """Follows a task: as it stands, then what happens, or what happened behind a cursor."""
        op = ops.Watch(task_id=_id(task))
        ctx = replace(self._context, cursor=cursor)

        async def begin() -> tuple[ops.Streamed, Context]:
            return op, ctx

        return Events(self._remote, begin)

    async def answer(self, task: Task | str, value: object, *, question: str = "") -> Task:
        """Answers what a task waits for: text, data, files; True or False where it asks for
        approval."""
        value = answer_value(value)
        if question:
            return await self.resolve(task, question, value)
        answer = await self.send(value, task=task)
        if isinstance(answer, Message):
            raise PeerMisbehaved("The agent answered with a message about no task")
        return answer

    async def resolve(self, task: Task | str, question: str, value: Json) -> Task:
        """Answers one question of a task by its name."""
        op = ops.Resolve(task_id=_id(task), question=question, value=value)
        return await self._remote.call(op, self._context)

    @overload
    async def call(self, what: str, /, **arguments: Json) -> Json: ...

    @overload
    async def call(self, what: ops.Operation[ops.R], ctx: Context, /) -> ops.R: ...

    async def call(self, what: Any, ctx: Context | None = None, /, **arguments: Json) -> Any:
        """Calls a skill with arguments and gives its result.

        Both are checked against the schemas on the card, if it has them (`urn:dragoman:skills:1`).
        A task that does not complete raises `PeerRefused` with its id and state in `public`.
        """
        if isinstance(what, ops.Operation):
            return await self._remote.call(what, ctx or self._context)
        from .arguments import check_arguments, fitting, schemas_of

        takes, gives = schemas_of(self.card, what)
        check_arguments(takes, arguments, what)
        answer = await self.send(arguments, skill=what)
        return fitting(gives, result_parts(answer, what), what)

    async def invoke(self, method: str, /, **params: Json) -> Json:
        """Calls a method of the agent's own, such as `myorg.billing/refund`."""
        return await self._remote.call(ops.Invoke(method=method, params=params), self._context)

    def conversation(self, context_id: str = "", *, skill: str = "") -> Conversation:
        """Several messages that belong together; the open questions in it are answered."""
        return Conversation(self, context_id, skill)

    # Tasks.

    async def get(self, task: Task | str, history_length: int | None = None) -> Task:
        """The task as it stands."""
        op = ops.GetTask(task_id=_id(task), history_length=history_length)
        return await self._remote.call(op, self._context)

    async def list(self, **filters: Any) -> ops.TaskPage:
        """A page of our tasks; filters as `ops.ListTasks` has them."""
        return await self._remote.call(ops.ListTasks(**filters), self._context)

    async def tasks(self, **filters: Any) -> AsyncGenerator[Task, None]:
        """All our tasks that fit, page by page."""
        token = ""
        while True:
            page = await self.list(**filters, page_token=token)
            for task in page.tasks:
                yield task
            if not page.next_token or page.next_token == token:
                return
            token = page.next_token

    async def cancel(self, task: Task | str, metadata: Mapping[str, Json] | None = None) -> Task:
        """Stops a task."""
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
        """Has a task's events sent to a webhook; under the same id it replaces the one before."""
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
        """One webhook of a task; the first if it is not named."""
        return await self._remote.call(
            ops.GetHook(task_id=_id(task), hook_id=hook_id), self._context
        )

    async def list_hooks(self, task: Task | str) -> ops.HookPage:
        """The webhooks of a task."""
        return await self._remote.call(ops.ListHooks(task_id=_id(task)), self._context)

    async def delete_hook(self, task: Task | str, hook_id: str) -> None:
        """Ends a webhook; fine if there was none."""
        await self._remote.call(ops.DeleteHook(task_id=_id(task), hook_id=hook_id), self._context)

    # The card, and files.

    async def extended_card(self) -> Card:
        """What the agent says about itself to callers it knows; it holds from now on (1.0 §3.1.11).

        Where to reach it stays as it was.
        """
        card = await self._remote.call(ops.GetExtendedCard(), self._context)
        self._remote.card = card
        return card

    async def fetch(
        self, part: AnyPart, *, max_size: int | None = None, progress: Progress | None = None
    ) -> bytes:
        """The content of a part; a link is fetched, guarded and within a size."""
        return await self._files.fetch(part, max_size=max_size, progress=progress)

    async def save(
        self,
        source: Source,
        folder: Path | str = ".",
        *,
        max_size: int | None = None,
        progress: Progress | None = None,
    ) -> Paths:
        """Writes the files of a task, message, artifact or part into a folder."""
        return await self._files.save(source, folder, max_size=max_size, progress=progress)

    # Inside.

    def bearing(self, **about: Any) -> RemoteAgent:
        """The same agent, told this with every call: `trace=`, `hops=`, `deadline=`."""
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
        message = Message(
            message_id=about.pop("message_id", "") or uuid4().hex,
            role=Role.USER,
            parts=await parts_to_send(what, self.limits.file_size),
            task_id=_id(task) if task else "",
            context_id=about.pop("context_id", ""),
            metadata=metadata or None,
            references=tuple(map(_id, about.pop("references", ()))),
        )
        return message, _options(about)


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
    return task.id if isinstance(task, Task) else task


def result_parts(answer: Task | Message, skill: str) -> Sequence[AnyPart]:
    """What a finished skill gave."""
    if isinstance(answer, Message):
        return answer.parts
    if answer.state is not State.COMPLETED:
        said = answer.status.message.text if answer.status.message else ""
        raise PeerRefused(
            f"{skill} is {answer.state.value}" + (f": {said}" if said else ""),
            task_id=answer.id,
            state=answer.state.value,
        )
    made = [part for artifact in answer.artifacts for part in artifact.parts]
    return [*made, *answer.answer.parts] if answer.answer is not None else made
