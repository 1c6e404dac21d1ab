"""Authorizes operations in one Peer in front of the engine, so every binding gets the same answer.

The order is fixed: the agent's scopes, the skill's scopes, the author's own function, the policies
of the server, quotas. A task of someone else is looked up in the caller's scope like any other, so
it does not exist and the answer is the one a missing task gets (DESIGN §5.7).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol, cast, runtime_checkable

from msgspec.structs import replace

from dragoman.agent import Agent, Skill
from dragoman.core import operations as ops
from dragoman.core.card import Card, takes_scopes
from dragoman.core.errors import ExtendedCardOff, Forbidden, TaskNotFound, Unauthenticated
from dragoman.core.peer import Batch, Context, Peer

from .anonymous import Anonymous
from .call_policy import CallPolicy, decided
from .rate_limits import CountsTasks, Meter

READS = frozenset(
    (ops.GetTask, ops.ListTasks, ops.Watch, ops.GetHook, ops.ListHooks, ops.GetExtendedCard)
)
"""The operations that need no scopes of a skill, since they read the caller's own tasks."""


@runtime_checkable
class Tells(CountsTasks, Protocol):
    """A peer that knows the tasks of a caller, such as the engine."""

    def skill_of(self, ctx: Context, task_id: str) -> Awaitable[str]:
        """Returns the skill of a caller's task, or raises `TaskNotFound`."""

    def skill_for(self, op: ops.SendMessage) -> Skill:
        """Returns the skill that a new task of this message would have."""


def task_in(op: ops.Operation[Any]) -> str:
    """Returns the id of the task that an operation is about, or an empty text."""
    match op:
        case ops.SendMessage():
            return op.message.task_id
        case ops.SetHook():
            return op.hook.task_id
        case ops.ListTasks() | ops.GetExtendedCard() | ops.Invoke():
            return ""
    return cast(str, getattr(op, "task_id", ""))


class AuthorizingPeer:
    """A peer that authorizes each operation before it passes it on. It is left out where nothing is
    to be authorized."""

    def __init__(
        self,
        agent: Agent,
        peer: Peer,
        meter: Meter,
        extended: Callable[[Context], Awaitable[Card]] | None = None,
        *,
        asked: Peer | None = None,
        anonymous: Anonymous | None = None,
        policies: Sequence[CallPolicy] = (),
        name: str = "",
    ) -> None:
        """`policies` know the agent by this `name`."""
        self.agent, self.peer, self.meter = agent, peer, meter
        self._policies, self._name = policies, name
        self._extended, self._anonymous = extended, anonymous
        last = asked or peer  # who knows the tasks stands behind all others
        self._tells = last if isinstance(last, Tells) else None
        asked_by_skill = agent.authorizer is not None or bool(policies)
        scoped = any(skill.scopes for skill in agent.skills.values())
        self._by_skill = asked_by_skill or scoped

    async def call(self, op: ops.Operation[ops.R], ctx: Context) -> ops.R:
        """Returns the answer, if the caller is authorized."""
        if isinstance(op, ops.GetExtendedCard):
            return cast(ops.R, await self._card(op, ctx))  # `Operation[Card]` makes R a Card
        await self._allowed(op, ctx)
        if isinstance(op, ops.SendMessage):
            await self._room(op, ctx)
        return await self.peer.call(op, ctx)

    async def stream(self, op: ops.Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields every event, if the caller is authorized."""
        await self._allowed(op, ctx)
        close = await self.meter.open_stream(ctx)
        try:
            if isinstance(op, ops.SendMessage):
                await self._room(op, ctx)
            async with aclosing(self.peer.stream(op, ctx)) as batches:
                async for batch in batches:
                    yield batch
        finally:
            close()

    async def _card(self, op: ops.GetExtendedCard, ctx: Context) -> Card:
        if self._extended is None:
            raise ExtendedCardOff()
        if not ctx.schemes:
            raise Unauthenticated()  # A2A 1.0 §3.1.11: it is for callers we know
        await self._allowed(op, ctx)
        return await self._extended(ctx)

    async def _room(self, op: ops.SendMessage, ctx: Context) -> None:
        if self.meter.rates.live_tasks and self._tells and not op.message.task_id:
            await self.meter.open_task(ctx, self._tells)

    async def _allowed(self, op: ops.Operation[Any], ctx: Context) -> None:
        """Raises `Forbidden`, `Unauthenticated` for what is not open to callers we do not know, or
        `TaskNotFound` for a task that is not the caller's."""
        stranger = self._is_stranger(ctx)
        if not stranger:
            needs(ctx, self.agent.scopes)
            if not self._by_skill:
                return
        task = task_in(op)
        skill = await self._skill_for(op, ctx, task)
        if not stranger and skill is not None and type(op) not in READS:
            needs(ctx, skill.scopes)
        asked = self.agent.skill_asked(skill) if skill is not None else ""
        authorizer = self.agent.authorizer
        if authorizer is not None:
            await decided(authorizer(ctx, op, asked, task))
        for policy in self._policies:
            await decided(policy(ctx, self._name, op, asked, task))

    def _is_stranger(self, ctx: Context) -> bool:
        """Returns whether the caller showed no credentials where others must."""
        return self._anonymous is not None and not ctx.schemes

    async def _skill_for(self, op: ops.Operation[Any], ctx: Context, task: str) -> Skill | None:
        """Returns the skill that an operation is about, if the caller may do that without
        credentials or has shown some."""
        if self._anonymous is None or ctx.schemes:
            return await self._skill(op, ctx, task)
        opened = self._anonymous.opens(op)
        try:
            skill = await self._skill(op, ctx, task)
        except TaskNotFound:
            if opened:
                raise
            raise Unauthenticated() from None  # perhaps it is there for a caller that says its name
        free = opened and not (skill and skill.scopes)
        if not (free or self._anonymous.does(op, skill)):
            raise Unauthenticated()
        return skill

    async def _skill(self, op: ops.Operation[Any], ctx: Context, task: str) -> Skill | None:
        if self._tells is None:
            return None
        if task:
            return self.agent.recorded_skill(await self._tells.skill_of(ctx, task))
        if not isinstance(op, ops.SendMessage):
            return None
        if op.open_as:  # the caller's name of a task: one it has, or else one to open
            with suppress(TaskNotFound):
                return self.agent.recorded_skill(await self._tells.skill_of(ctx, op.open_as))
        skill = self._tells.skill_for(op)
        if skill.extended and (self._is_stranger(ctx) or not may_use(ctx, skill)):
            raise self.agent.unknown(skill.id)  # as if it did not exist
        return skill


def needs(ctx: Context, scopes: tuple[str, ...]) -> None:
    """Raises `Forbidden` unless the caller has all of these scopes."""
    if scopes and not set(scopes) <= set(ctx.scopes):
        raise Forbidden("The caller lacks a scope.", scope=" ".join(scopes))


def may_use(ctx: Context, skill: Skill) -> bool:
    """Returns whether the caller has the scopes of a skill."""
    return set(skill.scopes) <= set(ctx.scopes)


def with_requirements(card: Card, agent: Agent) -> Card:
    """Returns the card with the requirements of each skill (A2A 0.3 §5.5.4): the schemes of the
    agent, with more scopes where the scheme has any."""
    skills = tuple(
        replace(
            skill,
            security=tuple(
                {
                    name: tuple(dict.fromkeys((*scopes, *agent.skills[skill.id].scopes)))
                    if takes_scopes(card.schemes[name])
                    else scopes
                    for name, scopes in requirement.items()
                }
                for requirement in card.security
            ),
        )
        if skill.id in agent.skills and agent.skills[skill.id].scopes
        else skill
        for skill in card.skills
    )
    return replace(card, skills=skills)
