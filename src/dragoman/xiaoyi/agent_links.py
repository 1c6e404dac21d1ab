"""The links of one agent that dials out: a service that runs as long as the agent is served.

It dials all servers at once. A request that arrives over two links is handled once, an answer goes
over the link of its session or else over any other link, and answers that a phone has not received
before a restart are found in the store.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from dragoman.core.errors import DragomanError, TaskFinished, TaskNotFound, TooMany
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.log import Logger
from dragoman.core.model import Role, Task
from dragoman.core.operations import CancelTask, GetTask, Invoke, SendMessage, Streamed, Watch
from dragoman.core.peer import Context, Peer
from dragoman.core.session import Call, End, Fault, Frame, Id, Result
from dragoman.core.task_names import called
from dragoman.dialects.xiaoyi.wire import RequestIn
from dragoman.engine.background_work import BackgroundWork
from dragoman.files import FileDoor
from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.net.service import Service
from dragoman.observability.metrics import Family
from dragoman.security.rate_limits import Meter
from dragoman.store.interface import Store
from dragoman.store.owed_answers import OwedAnswers
from dragoman.store.sessions import OWED, SentMarks, SessionStore

from .answers import KEEP_ALIVE, LinkAnswer, round_of
from .link_figures import LinkReporter, families
from .media import MediaReceiver
from .outbound_link import (
    DEAD,
    HEARTBEAT,
    PING,
    LinkEnded,
    LinkLost,
    LinkServer,
    OutboundLink,
    SigningKeys,
)
from .session_routes import SessionRoutes

log = Logger("xiaoyi")

DIALECT = "xiaoyi"
MOST_ANSWERS = 1_000
"""The maximum number of concurrent answers."""
MOST_HEARD = 10_000
"""The number of requests that are recognised when they arrive again."""
TASK = "taskId"
"""The metadata key of a message that answers a question under another name of the task."""


class AgentLinks(Service):
    """The links of one agent."""

    name = DIALECT

    def __init__(
        self,
        peer: Peer,
        keys: SigningKeys,
        servers: Iterable[LinkServer],
        sessions: SessionStore,
        clock: Callable[[], int],
        *,
        store: Store | None = None,
        reports: Callable[[], Awaitable[Store]] | None = None,
        kept_as: str = "",
        scopes: tuple[str, ...] = (),
        meter: Meter | None = None,
        message_size: int = 4 * 1024 * 1024,
        policy: Callable[[], ReconnectPolicy] = ReconnectPolicy,
        keep_alive: float = KEEP_ALIVE,
        heartbeat: float = HEARTBEAT,
        pings: tuple[float, float] = (PING, DEAD),
        files: FileDoor | None = None,
        media: MediaReceiver | None = None,
    ) -> None:
        """`store` holds the tasks of the agent, under the name `kept_as`. Without a store they are
        not kept, and no answer is sent after a restart. `reports` returns the open store that gets
        the status of the links. Files in answers are offered for download at the door of the
        server, if there is one that phones reach; else they are sent with their content. `meter`
        counts the calls of each session. `media` is the receiver of the engine, which keeps the
        files that phones send; it is closed with the links."""
        self._files, self._media = files, media
        self._peer, self._keys, self._clock, self._scopes = peer, keys, clock, scopes
        self._meter = meter
        self._store, self._kept_as, self._keep_alive = store, kept_as, keep_alive
        self._marks = SentMarks(sessions, clock, DIALECT, keys.agent_id)
        self.session_routes = SessionRoutes()
        self.links = {
            server.label: OutboundLink(
                server,
                keys,
                self._hear,
                self._changed,
                policy=policy(),
                message_size=message_size,
                heartbeat=heartbeat,
                pings=pings,
            )
            for server in servers
        }
        self._figures = [each.figures for each in self.links.values()]
        self._reporter: LinkReporter | None = None
        if reports is not None:
            self._reporter = LinkReporter(reports, lambda: self._figures)
            for each in self._figures:
                each.on_change = self._reporter.changed
        self._news = asyncio.Event()
        """Set when a link was opened or closed."""
        self._heard: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._beginning: dict[asyncio.Task[None], str] = {}
        """The sessions of the requests whose answers have not begun."""
        self._answers: set[LinkAnswer] = set()
        self._waiting: dict[str, str] = {}
        """The task of each session that waits for an answer to its question."""
        self._cleared: dict[str, int] = {}
        """The number of times that each session was cleared, as far as it is known."""
        self._work = BackgroundWork()
        self._draining = False
        self.ended: asyncio.Future[LinkEnded] | None = None
        """Done when no link is left; holds the reason why the last one ended."""

    # Life

    async def start(self) -> None:
        """Dials, and continues to send the answers that phones have not received."""
        self.ended = asyncio.get_running_loop().create_future()
        self._left = len(self.links)
        if self._reporter is not None:
            self._reporter.start()
        for link in self.links.values():
            self._work.spawn(self._keep(link))
        self._work.spawn(self._resume())

    async def drain(self) -> None:
        """Accepts no more requests. Answers are still sent while their tasks end."""
        self._draining = True
        if self._reporter is not None:
            await self._reporter.stop()

    async def stop(self) -> None:
        """Closes the links."""
        self._draining = True
        await self._work.cancel()
        if self._media is not None:
            await self._media.close()

    def metrics(self) -> Iterable[Family]:
        """Returns the figures of the links."""
        return families(self._figures)

    async def _keep(self, link: OutboundLink) -> None:
        try:
            await link.run()
        except LinkEnded as exc:
            log.error(exc.message, agent=self._keys.agent_id)
            self._left -= 1
            if not self._left and self.ended is not None and not self.ended.done():
                self.ended.set_result(exc)

    # Links

    def _changed(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def link_of(self, session: str) -> OutboundLink:
        """Waits for a link over which this session can be answered."""
        while True:
            open_links = {name: link for name, link in self.links.items() if link.is_open}
            found = self.session_routes.find(session, open_links)
            if found is not None:
                return open_links[found]
            await self._news.wait()

    # Requests

    async def _hear(self, link: OutboundLink, frame: Frame) -> None:
        callee = link.callee
        for signal in callee.receive(frame):
            if isinstance(signal, Fault):
                log.warning("A frame was refused", server=link.name, why=signal.error)
                if signal.id is not None and callee.heard.session:
                    await link.send(callee.send(signal))
                continue
            if not isinstance(signal, Call) or self._draining:
                continue
            request = callee.heard
            self.session_routes.record(request.session, link.name)
            match signal.op:
                case SendMessage() | Watch():
                    list(callee.send(End(signal.id)))  # each answer has a session of its own
                    await self._ask(link, request, signal.op)
                case CancelTask():
                    self._work.spawn(self._cancel(link, signal.id, request))
                case Invoke():
                    self._work.spawn(self._clear(link, signal.id, request.session))
        for note in callee.notes():
            log.debug("A frame was ignored", server=link.name, why=note.get("ignored"))

    def _context(self, session: str, key: str = "", hops: int = 0) -> Context:
        principal = f"{DIALECT}:{self._keys.agent_id}:{session}"
        return Context(
            principal=principal,
            scopes=self._scopes,
            schemes=(DIALECT,),
            dialect=DIALECT,
            idempotency_key=key,
            hops=hops,
        )

    async def _ask(self, link: OutboundLink, request: RequestIn, op: SendMessage | Watch) -> None:
        session, task = request.session, request.task
        if isinstance(op, Watch):
            for each in self._answers:
                if (each.session, each.task) == (session, task):
                    each.tell_again()
                    return
            self._answer(request.id, session, task, op, self._context(session))
            return
        message = op.message
        key = (session, task, message.message_id)
        if key in self._heard:
            log.debug("A request came again", session=session, task=task, server=link.name)
            return
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        ctx = self._context(session, digest, request.hop_count)
        try:
            if len(self._answers) >= MOST_ANSWERS:
                raise TooMany
            self._heard[key] = None  # before the count, which may take a moment
            await self._count(ctx)
        except TooMany as error:
            self._heard.pop(key, None)
            link.callee.resume(request.id, session, task)
            await link.send(link.callee.send(Fault(request.id, error)))
            return
        if len(self._heard) > MOST_HEARD:
            self._heard.popitem(last=False)
        begin = self._work.spawn(self._begin(request, op, ctx))
        self._beginning[begin] = session
        begin.add_done_callback(self._beginning.pop)

    async def _count(self, ctx: Context) -> None:
        """Counts a call of a session, but not one of a server of its own. Raises `TooMany`."""
        if self._meter is not None and (counted := self._meter.take(ctx)) is not None:
            await counted

    async def _begin(self, request: RequestIn, op: SendMessage, ctx: Context) -> None:
        session, message = request.session, op.message
        waiting = self._waiting.pop(session, "")
        if waiting and await self._still_waits(waiting, ctx):
            named = {TASK: request.task} if called(waiting) != request.task else None
            message = replace(message, task_id=waiting, context_id="", metadata=named)
            op = replace(op, message=message, open_as="")
        else:
            cleared = await self._times_cleared(session)
            context_id = f"{session}~{cleared}" if cleared else session
            op = replace(op, message=replace(message, context_id=context_id))
        self._answer(request.id, session, request.task, op, ctx)

    async def _still_waits(self, task_id: str, ctx: Context) -> bool:
        with suppress(DragomanError):
            return (await self._peer.call(GetTask(task_id=task_id), ctx)).state in WAITING
        return False

    def _answer(self, request_id: Id, session: str, task: str, op: Streamed, ctx: Context) -> None:
        answer = LinkAnswer(
            self._peer,
            ctx,
            op,
            agent_id=self._keys.agent_id,
            link=self.link_of,
            request_id=request_id,
            session=session,
            task=task,
            marks=self._marks,
            on_question=self._waiting.__setitem__,
            keep_alive=self._keep_alive,
            files=self._files,
        )
        self._answers.add(answer)
        self._work.spawn(self._send(answer))

    async def _send(self, answer: LinkAnswer) -> None:
        try:
            await answer.run()
        except Exception as exc:  # one answer must not end the link
            log.error("An answer could not be sent", exc, task=answer.task_id)
        finally:
            answer.opened.set()
            self._answers.discard(answer)

    async def _open_answers(self, session: str, task: str = "") -> list[LinkAnswer]:
        """Returns the answers of a session, or of one task of it, whose tasks are open. Waits for
        all earlier requests."""
        if begin := [each for each, its in self._beginning.items() if its == session]:
            await asyncio.wait(begin)
        found = [each for each in self._answers if each.session == session]
        found = [each for each in found if task in ("", each.task)]
        for answer in found:
            await answer.opened.wait()
        return found

    async def _cancel(self, link: OutboundLink, id: Id, request: RequestIn) -> None:
        ctx = self._context(request.session)
        result: Result | Fault
        try:
            await self._count(ctx)
            answers = await self._open_answers(request.session, request.task)
            known = next((each.task_id for each in answers), "")
            op = CancelTask(task_id=known or request.task)
            task = await self._peer.call(op, ctx)
            result = Result(id, task)
        except DragomanError as error:
            result = Fault(id, error)
        with suppress(LinkLost):
            await link.send(link.callee.send(result))

    async def _clear(self, link: OutboundLink, id: Id, session: str) -> None:
        """Ends the running and waiting tasks of the session, and starts a new context."""
        ctx = self._context(session)
        try:
            await self._count(ctx)
        except TooMany as error:
            with suppress(LinkLost):
                await link.send(link.callee.send(Fault(id, error)))
            return
        answers = await self._open_answers(session)
        running = {each.task_id for each in answers}
        asked = self._waiting.pop(session, "")
        for task_id in filter(None, (*running, asked)):
            with suppress(TaskFinished, TaskNotFound, DragomanError):
                await self._peer.call(CancelTask(task_id=task_id), ctx)
        times = await self._times_cleared(session) + 1
        await self._marks.add("cleared", session, times)
        self._cleared[session] = times
        self.session_routes.drop(session)
        with suppress(LinkLost):
            await link.send(link.callee.send(Result(id, None)))

    async def _times_cleared(self, session: str) -> int:
        times = self._cleared.get(session)
        if times is None:
            times = 0
            while await self._marks.has("cleared", session, times + 1):
                times += 1
            self._cleared[session] = times
            if len(self._cleared) > MOST_HEARD:
                del self._cleared[next(iter(self._cleared))]
        return times

    # After a restart

    async def _resume(self) -> None:
        """Continues the answers that an earlier process has not sent."""
        if self._store is None:
            return
        now = self._clock()
        prefix = self._context("").principal
        owed = OwedAnswers(
            self._store,
            self._kept_as,
            DIALECT,
            lambda task_id: self._marks.has("sent", task_id, ""),
        )
        async for row in owed.rows(now):
            session = row.principal.removeprefix(prefix)
            if session == row.principal:
                continue
            if row.state in WAITING:
                self._waiting.setdefault(session, row.task_id)
                if now - row.status_at > OWED:
                    continue
            if not any(each.task_id == row.task_id for each in self._answers):
                with suppress(DragomanError):
                    await self._resume_answer(session, row.task_id)

    async def _resume_answer(self, session: str, task_id: str) -> None:
        ctx = self._context(session)
        task = await self._peer.call(GetTask(task_id=task_id), ctx)
        rests = task.state in FINAL | WAITING
        if not rests or not await self._marks.has("sent", task_id, round_of(task.status)):
            self._answer(None, session, wire_name(task), Watch(task_id=task_id), ctx)


def wire_name(task: Task) -> str:
    """Returns the server's name for a task: that of the request for which its caller waits now."""
    for message in reversed(task.history):
        if message.role is Role.USER:
            named = (message.metadata or {}).get(TASK)
            return named if isinstance(named, str) else called(task.id)
    return called(task.id)
