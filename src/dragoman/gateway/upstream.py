"""An agent elsewhere as the upstream of a relay: what it is asked, and with which ids."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dragoman.agent import Turn
from dragoman.agent.remote_calls import TurnAccess
from dragoman.agent.turn import run_of
from dragoman.client.connection_cache import Entered
from dragoman.core.dialect import Dialect
from dragoman.core.errors import (
    Conflict,
    DragomanError,
    PeerUnreachable,
    TaskFinished,
    Unsupported,
)
from dragoman.core.events import Asked
from dragoman.core.extensions import (
    CURSOR,
    IDEMPOTENCY,
    SENDER_KEY,
    TOOLS,
    TRANSITIONS,
    WORK,
)
from dragoman.core.lifecycle import FINAL
from dragoman.core.log import Logger
from dragoman.core.model import Json, Message, Role
from dragoman.core.operations import GetTask, ListTasks, SendMessage, Streamed
from dragoman.core.peer import Begun, Context, Peer
from dragoman.core.questions import waits_for
from dragoman.core.session import Call
from dragoman.dialects import DIALECTS
from dragoman.dialects.losses import ADDRESS, CONTENT, is_plain_text, lost_from
from dragoman.relay import QuestionAnswer, Upstream
from dragoman.relay.known_ids import recall, task_key
from dragoman.relay.remote_task import context_for

from .relayed_files import converts_results, prepare_files
from .token_exchange import ActingFor
from .upstream_address import told
from .upstream_peer import UpstreamPeer

if TYPE_CHECKING:
    from .upstream_agent import UpstreamAgent

log = Logger("gateway")
PREFIX = "upstream:"
"""What the address of a relayed task begins with, in the journal."""
RELAY = "relay"
"""The id of the only skill that an upstream agent runs."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between attempts to reach an agent whose connection broke."""
REFERENCES = "references to other tasks"
_OF_OURS = frozenset(("the id of a message", "a send that does not wait"))
"""Features of the message that are ours, and not our caller's."""
_BESIDE_PARTS: dict[str, Callable[[Message], object]] = {
    "the metadata of a message": lambda said: said.metadata,
    "the extensions of a message": lambda said: said.extensions,
    REFERENCES: lambda said: said.references,
}
"""Features of an answer that is no message in the dialect of the agent, and has only parts."""
_FILES = frozenset((CONTENT, ADDRESS))
"""Features that are converted into each other."""
_BETWEEN_US = frozenset((CURSOR, IDEMPOTENCY, TRANSITIONS))
"""Extensions of ours that hold between two sides; each side has its own."""


class RemoteUpstream(Upstream):
    """The agent elsewhere, for one task of ours."""

    replies = True
    _lost_since, _pause = 0.0, FIRST_PAUSE
    _recalled = False
    _found_at = ""
    """The address at which the task was found after its own was gone."""

    def __init__(self, agent: UpstreamAgent, turn: Turn) -> None:
        self._agent, self._turn = agent, turn
        self.name, self.reply_within = agent.name, agent.reply_within
        self._asked = agent
        """The agent that is asked: ours, or one of its fallbacks."""
        self._run = run = run_of(turn)
        self._opened = opened = run.opened
        self._plain = not opened.tools and is_plain_text(opened)
        """Whether our caller sent text and nothing else."""
        self._whose = conversation_of(agent.served_as, run.caller, run.context_id)
        """Names the conversation there. It is made of the caller too, so that two callers never
        share one."""
        self._peer: UpstreamPeer | None = None
        self._lost: Sequence[str] = ()
        """What of the message the dialect of the agent has no words for."""
        self._passed: frozenset[str] = frozenset()
        """The addresses to which the message could not be sent."""
        self._named = ""
        """The conversation there, as the message called it."""

    @property
    def address(self) -> str:
        """The name of the agent here and its address, for a run that has to find its task without
        us."""
        label = self._peer.label if self._peer is not None else ""
        return f"{PREFIX}{self._asked.served_as}@{label}"

    def peer(self, task_id: str, address: str) -> AbstractAsyncContextManager[Peer]:
        """Returns the agent. A task that it has already waits for it while it is away, and so does
        a message that may have arrived."""
        asked, run, peer = self._asked, self._run, None
        # Of a conversation that began earlier, and of other tasks, there may be more to recall. A
        # new conversation has the id of its first task.
        known = run.context_id == run.task_id or asked.contexts.get(self._whose)
        if known and not (task_id or address or self._passed or self._opened.message.references):
            context_id = self._context_id if asked.pool.sticky else ""
            acting = self._acting if asked.exchange is not None else None
            peer = self._peer = asked.pool.ready_peer(context_id, acting)
        if peer is None:
            return Entered(self._entered(task_id, address))
        may_have_files = asked.door is not None and (
            not self._plain or converts_results(asked, run.caller.dialect)
        )
        if may_have_files or not asked.has_learned(peer.card, peer.agent.dialect, peer.label):
            return Entered(self._prepared(peer))
        return peer

    async def _entered(
        self, task_id: str, address: str
    ) -> tuple[Peer, Callable[[], Awaitable[object]]]:
        label = self._recorded(address)
        if not task_id:
            await self._recall()
        if task_id:
            label = self._found_at or label or self._asked.pool.url
        elif label in self._passed or self._asked.repeat:
            label = ""
        while True:
            try:
                peer = self._peer = await self._way(label).__aenter__()
                break
            except PeerUnreachable as exc:
                if not label:
                    if self._fall_back():
                        continue
                    if self._run.unopened:
                        raise
                elif not task_id:
                    exc.sent = True  # it may have been, by an earlier run
                elif found := await self._asked.pool.find(
                    task_id, besides=label, acting=self._acting
                ):
                    self._found_at = label = found
                    continue
                await self._wait(exc)
        return await self._prepared(peer)

    async def _prepared(self, peer: UpstreamPeer) -> tuple[Peer, Callable[[], Awaitable[object]]]:
        """Learns the card of the agent, and prepares the conversion of files."""
        try:
            self._asked.learn(peer.card, peer.dialect, peer.label)
            prepare_files(self._asked, peer, self._turn, self._turn.message.parts, self.count)
        except BaseException:
            await peer.leave()
            raise
        return peer, peer.leave

    async def _recall(self) -> None:
        """Looks up what the agents called this conversation and these tasks, the first time."""
        if not self._recalled:
            self._recalled = True
            agents = (self._agent, *self._agent.fallbacks)
            await recall(
                self._run, agents, self._whose, self._turn.references, lambda at: parsed(at)[0]
            )

    def _way(self, label: str) -> AbstractAsyncContextManager[UpstreamPeer]:
        caller = self._run.caller
        return self._asked.pool.peer(
            at=label,
            context_id=self._context_id,
            principal=f"{caller.tenant}\0{caller.principal}",
            avoid=self._passed,
            acting=self._acting,
        )

    @property
    def _acting(self) -> ActingFor | None:
        """The caller, if the agent is called for it and not for us."""
        if self._asked.exchange is None:
            return None
        return self._asked.acting_for(lambda: self._turn.caller)

    def _recorded(self, address: str) -> str:
        """Reads a recorded address: the agent becomes the one that is asked. Returns the label of
        its address."""
        name, label = parsed(address)
        if name != self._asked.served_as:
            for each in (self._agent, *self._agent.fallbacks):
                if each.served_as == name:
                    self._asked = each
        return label

    def _fall_back(self) -> bool:
        """Chooses the next agent to ask, when this one cannot be reached. After the last one they
        are all asked again, if the task waits for them."""
        line = (self._agent, *self._agent.fallbacks)
        # The settings may have changed since this task began to ask.
        rest = line[line.index(self._asked) + 1 :] if self._asked in line else ()
        if not rest:
            self._asked, self._passed = self._agent, frozenset()
            return False
        log.warning("A fallback is asked", agent=self._agent.served_as, asks=rest[0].served_as)
        self._asked, self._passed = rest[0], frozenset()
        return True

    def has_another(self) -> bool:
        """Returns whether there is another address, or a fallback, to send the message to."""
        assert self._peer is not None  # noqa: S101  it is what failed
        self._passed |= {self._peer.label}
        if any(each.label not in self._passed for each in self._asked.pool.addresses):
            return True
        return self._fall_back()

    def keeps_address(self) -> bool:
        """Returns whether the agent has several addresses, or fallbacks, each with its own memory
        of what it was sent."""
        alone = len(self._asked.pool.addresses) == 1 and not self._agent.fallbacks
        return not alone and not self._asked.repeat

    def waiting(self) -> AbstractContextManager[None]:
        """Frees the place of the task while it waits for our caller."""
        return self._peer.waiting() if self._peer is not None else nullcontext()

    async def lost(self, *, heard: bool) -> None:
        """Waits a while; raises `PeerUnreachable` when the agent has been away for too long."""
        if heard:
            self._lost_since = 0.0
        await self._wait(PeerUnreachable(f"{self.name} does not answer any more", sent=True))

    async def _wait(self, exc: PeerUnreachable) -> None:
        now = monotonic()
        if not self._lost_since:
            self._lost_since, self._pause = now, FIRST_PAUSE
        elif now - self._lost_since > self._asked.patience:
            raise exc
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def may_repeat(self, peer: Peer) -> bool:
        """Returns whether the agent recognises a repeated message, or may get it twice."""
        return self._asked.repeat or (isinstance(peer, UpstreamPeer) and peer.remembers)

    def context(self, access: TurnAccess) -> Context:
        """Returns the context of calls to the agent. Nothing of the caller's credentials is in it,
        and of its extensions only those that the agent is asked to apply."""
        opened = self._opened
        extensions: tuple[str, ...] = (WORK,)
        if opened.extensions:
            asked = dict.fromkeys((*opened.extensions, WORK))
            extensions = tuple(uri for uri in asked if uri not in _BETWEEN_US)
        return context_for(access, extensions=extensions, tools=opened.tools)

    def told(self, exc: DragomanError) -> DragomanError:
        """Returns an error without our addresses, and without what is between the agent and us."""
        return told(self.name, exc)

    async def started(self, task_id: str, context_id: str) -> None:
        """Remembers what the agent calls our task and our conversation, and notes on our task what
        could not be carried to it."""
        asked = self._asked
        asked.tasks.put(task_key(self._run.caller, self._run.task_id), task_id)
        if context_id and context_id != (self._named or self._context_id):
            asked.contexts.put(self._whose, context_id)
        await self._tell_lost(self._lost)

    async def _tell_lost(self, lost: Sequence[str]) -> None:
        """Notes on our task what could not be carried to the agent."""
        if lost:
            what, dialect = ", ".join(lost), self._asked.dialect
            await self._turn.log(f"{dialect} cannot carry: {what}", level="warning")

    @property
    def _context_id(self) -> str:
        """The conversation there that belongs to ours: the one that the agent made of it, or the
        name that we give it, which is the same after a restart."""
        return self._asked.contexts.get(self._whose) or self._whose[:32]

    def request(self, turn: Turn, key: str) -> SendMessage:
        """Returns our caller's message with ids of the agent's."""
        opened, peer = self._opened, self._peer
        said, metadata = opened.message, opened.metadata
        assert peer is not None  # noqa: S101  it was found just now
        self._named = context_id = self._context_id
        dialect = DIALECTS[peer.dialect]
        message_id, open_as = said.message_id if _is_a2a(dialect) else key, ""
        if dialect.names_tasks:
            open_as = key  # callers use the ids of their messages again
        if self._plain:
            message = replace(
                said,
                message_id=message_id,
                task_id="",
                context_id=context_id,
                metadata=_with_key(None, key, dialect),
            )
            return SendMessage(message=message, open_as=open_as)
        if opened.tools and dialect.conversation is None:
            # Envelopes have a place for tools; elsewhere our extension is it.
            metadata = {**(metadata or {}), TOOLS: msgspec.to_builtins(opened.tools)}
        message = replace(
            said,
            message_id=message_id,
            task_id="",
            context_id=context_id,
            references=self._references(said),
            metadata=_with_key(_without_relay(said.metadata), key, dialect),
        )
        op = SendMessage(
            message=message,
            metadata=_without_relay(metadata),
            accepts=opened.accepts,
            context=opened.context,
            open_as=open_as,
        )
        self._lost = self._lost_of(op, said, peer)
        return op

    def _references(self, said: Message) -> tuple[str, ...]:
        """Returns what the agent calls those of our caller's own tasks that its message refers
        to."""
        caller, known = self._run.caller, self._asked.tasks
        names = (known.get(task_key(caller, each)) for each in said.references)
        return tuple(name for name in names if name)

    def _lost_of(self, op: SendMessage, said: Message, peer: UpstreamPeer) -> list[str]:
        """Returns what of our caller's message does not reach the agent."""
        signal = Call(id=None, op=op, stream=True)
        lost = lost_from(DIALECTS[peer.dialect], signal)
        converted = _FILES if peer.files is not None else _OF_OURS
        found = [each for each in lost if each not in _OF_OURS and each not in converted]
        if len(op.message.references) < len(said.references):
            found += [REFERENCES] * (REFERENCES not in found)
        return found

    def begin(self, peer: Peer, op: Streamed, ctx: Context) -> Awaitable[Begun]:
        """Returns the first events of a task, and the stream of all that follow."""
        assert isinstance(peer, UpstreamPeer)  # noqa: S101  as `peer` gives it
        return peer.begin(op, ctx)

    async def answer(self, peer: Peer, answer: QuestionAnswer, ctx: Context) -> None:
        """Sends the answer to a question: in A2A as a message, with all its parts. There a message
        answers whatever the task waits for, so an agent that may have the answer, and would not
        recognise it, is asked first whether it still waits for this one."""
        assert isinstance(peer, UpstreamPeer)  # noqa: S101  as `peer` gives it
        op = answer.op
        said = answer.message or Message(message_id="", role=Role.USER, parts=())
        dialect = DIALECTS[peer.dialect]
        prepare_files(self._asked, peer, self._turn, answer.parts, self.count)
        if dialect.conversation is not None:
            await peer.call(replace(op, parts=answer.parts), ctx)
            await self._tell_lost([name for name, has in _BESIDE_PARTS.items() if has(said)])
            return
        look = GetTask(task_id=op.task_id)
        unsure = answer.in_doubt and not peer.remembers
        if unsure and not waits_for(await peer.call(look, ctx), op.question):
            raise Conflict(f"{self.name} does not wait for this answer any more")
        # The same key in every run: after a crash nobody knows whether the answer has arrived.
        mark = hashlib.sha256(op.question.encode()).hexdigest()[:24]
        key = f"{self._turn.task_id}.{mark}"
        message = Message(
            message_id=(said.message_id if _is_a2a(dialect) else "") or key,
            role=Role.USER,
            parts=answer.parts,
            task_id=op.task_id,
            context_id=op.context_id,
            metadata=_with_key(said.metadata, key, dialect),
            extensions=said.extensions,
            references=self._references(said),
        )
        send = SendMessage(message=message, wait=False)
        await self._tell_lost(self._lost_of(send, said, peer))
        try:
            await peer.call(send, replace(ctx, idempotency_key=key))
        except Unsupported as exc:  # so A2A says of a task that has ended, and of much else
            if (await peer.call(look, ctx)).state not in FINAL:
                raise
            raise TaskFinished from exc

    def details(self, body: Json) -> Json:
        """Returns the details of the agent: our caller knows whom it has asked."""
        return body

    async def run_tool(self, turn: Turn, asked: Asked) -> Json:
        """Has our caller run its tool, and returns the result or the error."""
        try:
            return {"result": await super().run_tool(turn, asked)}
        except DragomanError as exc:
            return {"error": exc.message}

    async def find_task(self, key: str, address: str) -> str:
        """Looks for the message in the tasks of the conversation, as the agent lists them. Callers
        use the ids of their messages again, so it is known by our own key alone."""
        label = self._recorded(address)
        pool = self._asked.pool
        op = ListTasks(context_id=self._context_id, page_size=100)
        for each in pool.addresses:
            if label and each.label != label:
                continue
            async with pool.peer(at=each.label, urgent=True, acting=self._acting) as peer:
                page = await peer.call(op, Context())
            for task in page.tasks:
                if any((said.metadata or {}).get(SENDER_KEY) == key for said in task.history):
                    self._peer = peer
                    return task.id
        return ""


def conversation_of(name: str, caller: Context, context_id: str) -> str:
    """Returns what names a conversation of one caller at the agent that has this name here."""
    whose = f"{name}\0{caller.tenant}\0{caller.principal}\0{context_id}"
    return hashlib.blake2b(whose.encode(), digest_size=32).hexdigest()


def parsed(address: str) -> tuple[str, str]:
    """Returns the name of the agent and the label of its address, from the journal."""
    name, _, label = address.removeprefix(PREFIX).partition("@")
    return name, label


def _is_a2a(dialect: Dialect) -> bool:
    """Returns whether the ids of messages mean nothing but themselves. Elsewhere they name tasks,
    or repeated messages."""
    return bool(dialect.binding) or dialect.names_tasks


def _with_key(
    metadata: dict[str, Json] | None, key: str, dialect: Dialect
) -> dict[str, Json] | None:
    """Returns metadata with our key, in the versions of A2A that have lists of tasks, and without
    the key that our caller may have there for us."""
    if "1.0" in dialect.versions:
        return {**(metadata or {}), SENDER_KEY: key}
    if not metadata or SENDER_KEY not in metadata:
        return metadata
    return {name: value for name, value in metadata.items() if name != SENDER_KEY} or None


def _without_relay(metadata: dict[str, Json] | None) -> dict[str, Json] | None:
    """Returns metadata without a skill that only we have."""
    if not metadata or metadata.get("skillId") != RELAY:
        return metadata or None
    return {key: value for key, value in metadata.items() if key != "skillId"} or None
