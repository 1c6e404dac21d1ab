"""`/agents/-/skills/{id}`: calls the best agent that has a skill, in every dialect.

Each such path has a mount like that of an agent. Its peer chooses one of the agents that have the
skill and forwards the call to it, on behalf of the same caller. A task belongs to the agent that
was chosen for it, so later calls about the task, or in its context, reach the same agent.

A card can claim any skill. So a new task goes only to agents of the most trusted source that has
the skill, even while all of them are away, or to those that the operator lists (`[skills]`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core import operations as ops
from dragoman.core.errors import BadParams, Forbidden, PeerUnreachable, TaskNotFound, Unsupported
from dragoman.core.events import Stamped
from dragoman.core.model import Message, Task
from dragoman.core.peer import Batch, Context
from dragoman.engine import Engine
from dragoman.gateway.agent_health import health_of
from dragoman.net.http.asgi import Scope
from dragoman.net.http.mount_point import AGENTS, IN_PATHS, MountPoint, below
from dragoman.net.http.router import Router
from dragoman.net.service import Service
from dragoman.security.authorization import task_in
from dragoman.store.registry import AgentHealth, Source

from ..agent_mount import AgentMount, Shared
from ..agent_names import NO_AGENT, Naming
from .agent_index import AgentIndex, Search

if TYPE_CHECKING:
    from dragoman.observability.audit_log import AuditLog

PREFIX = f"{AGENTS}/-/skills/"
MOST_MOUNTS = 256
"""The maximum number of skills with a mount; the least recently used mount is dropped first."""
MOST_REMEMBERED = 10_000
"""The number of tasks and contexts whose agents are remembered. For any other task, the agents are
asked."""
MOST_ASKED = 32
"""The maximum number of agents that are asked for a task whose agent is not remembered."""

Online = Callable[[str], bool]
"""Returns whether an agent is online, as far as is known."""
SourceOf = Callable[[str], Source]
"""Returns where an agent comes from."""


class SkillAgents:
    """The agents that have a skill, and those of them that may be asked for it."""

    def __init__(
        self,
        skill: str,
        mounts: Mapping[str, AgentMount],
        index: AgentIndex,
        source_of: SourceOf,
        listed: tuple[str, ...] | None,
    ) -> None:
        """`listed` are the agents that the operator names for the skill, if any."""
        self._skill, self._mounts, self._index = skill, mounts, index
        self._source_of, self._listed = source_of, listed

    def all(self) -> list[AgentMount]:
        """Returns the agents that have the skill. An agent whose code defines security schemes of
        its own authenticates callers differently, so it can be called only at its own address."""
        found = (self._mounts.get(name) for name in self._index.find(Search(skill=self._skill)))
        return [each for each in found if each is not None and not each.agent.auth]

    def trusted(self) -> tuple[list[AgentMount], str]:
        """Returns the agents that may be asked for a new task, and why those."""
        found = self.all()
        if self._listed is not None:
            chosen = [each for each in found if each.name in self._listed]
            return chosen, f"listed in [skills], {len(chosen)} of {len(found)} agents"
        sources = {each.name: self._source_of(each.name) for each in found}
        least = min((each.distrust for each in sources.values()), default=0)
        chosen = [each for each in found if sources[each.name].distrust == least]
        named = " or ".join(sorted({sources[each.name].value for each in chosen}))
        return chosen, f"source {named}, {len(chosen)} of {len(found)} agents"

    def distrust_of(self, mount: AgentMount) -> int:
        """Returns how little an agent is trusted with the skill."""
        listed = self._listed is not None and mount.name in self._listed
        return 0 if listed else self._source_of(mount.name).distrust


class SkillPeer:
    """Forwards the calls for a skill to one of the agents that have it."""

    def __init__(
        self,
        skill: str,
        mounts: Mapping[str, AgentMount],
        agents: SkillAgents,
        online: Online,
        audit: AuditLog | None,
    ) -> None:
        self._skill, self._mounts, self._agents, self._online = skill, mounts, agents, online
        self._audit = audit
        self._chosen: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        """The agents that were chosen for tasks, contexts and names of tasks, by caller."""
        self._turn = 0

    async def start(self) -> None:
        """Does nothing: the agents are started separately."""

    async def stop(self, grace: float) -> None:
        """Does nothing: the agents run the tasks."""

    async def counts(self) -> Mapping[str, int]:
        """Returns nothing: the agents have the tasks."""
        return {}

    async def call(self, op: ops.Operation[ops.R], ctx: Context) -> ops.R:
        """Calls the agent of the task, or the best agent for a new task."""
        mount = await self._mount_for(op, ctx)
        answer: ops.R = await mount.server.peer.call(self._told(op), ctx)
        if isinstance(answer, Task):
            self._remember(ctx, mount.name, answer.id, answer.context_id)
        return answer

    async def stream(self, op: ops.Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields the events of the agent of the task, or of the best agent for a new task."""
        mount = await self._mount_for(op, ctx)
        known = False
        async with aclosing(mount.server.peer.stream(self._told(op), ctx)) as batches:
            async for batch in batches:
                if not known and batch.entries:
                    first = batch.entries[0]
                    if isinstance(first, Stamped):
                        self._remember(ctx, mount.name, first.task_id, first.context_id)
                    known = True
                yield batch

    def _told(self, op: Any) -> Any:
        """Adds the skill of this mount to a message that creates a task."""
        if not isinstance(op, ops.SendMessage) or op.message.task_id:
            return op
        named = (op.message.metadata or {}).get("skillId") or (op.metadata or {}).get("skillId")
        if named not in (None, self._skill):
            raise BadParams(
                f"This address is for the skill {self._skill}.", field="metadata.skillId"
            )
        return replace(op, metadata={**(op.metadata or {}), "skillId": self._skill})

    # The choice of the agent.

    async def _mount_for(self, op: ops.Operation[Any], ctx: Context) -> AgentMount:
        if isinstance(op, ops.ListTasks | ops.GetExtendedCard | ops.Invoke):
            raise Unsupported(f"Ask one of the agents at {AGENTS} for this; a skill has several.")
        task_id = task_in(op)
        if task_id:
            return await self._mount_of_task(task_id, ctx)
        message = op.message if isinstance(op, ops.SendMessage) else None
        assert message is not None  # noqa: S101  all others are about a task
        open_as = op.open_as if isinstance(op, ops.SendMessage) else ""
        for key in filter(None, (open_as, message.context_id)):
            mount = self._remembered(ctx, key)
            if mount is not None:
                return mount
        best = await self._best(op, ctx)
        self._remember(ctx, best.name, open_as, message.context_id)
        return best

    async def _mount_of_task(self, task_id: str, ctx: Context) -> AgentMount:
        mount = self._remembered(ctx, task_id)
        if mount is not None:
            return mount
        for mount in self._agents.all()[:MOST_ASKED]:
            try:
                await mount.guarded.call(ops.GetTask(task_id=task_id, history_length=0), ctx)
            except TaskNotFound:
                continue
            except Forbidden:
                pass  # it is there, and the policies judge what is really asked
            self._remember(ctx, mount.name, task_id)
            return mount
        raise TaskNotFound(taskId=task_id)

    async def _best(self, op: ops.Operation[Any], ctx: Context) -> AgentMount:
        """Returns the healthy agent that runs the fewest tasks, of those that may be asked for the
        skill, and by this caller; equal agents take turns."""
        trusted, why = self._agents.trusted()
        well = [each for each in trusted if self._is_well(each)]
        if not well:
            raise PeerUnreachable(f"No agent with the skill {self._skill} can be reached now.")
        found = [each for each in well if await each.access.permits(op, ctx, self._skill)]
        if not found:
            raise Forbidden("The policy of this server does not allow this.")
        self._turn += 1
        turned = found[self._turn % len(found) :] + found[: self._turn % len(found)]
        best = min(turned, key=_load)
        if self._audit is not None:
            from dragoman.observability.audit_log import audited_change

            self._audit.check()
            self._audit.record(
                audited_change(ctx, "ChooseAgent", best.name, skill=self._skill, why=why)
            )
        return best

    def _is_well(self, mount: AgentMount) -> bool:
        return health_of(mount.agent) is not AgentHealth.DOWN and self._online(mount.name)

    def _remembered(self, ctx: Context, key: str) -> AgentMount | None:
        name = self._chosen.get((ctx.tenant, ctx.principal, key))
        return self._mounts.get(name) if name is not None else None

    def _remember(self, ctx: Context, name: str, *keys: str) -> None:
        for key in filter(None, keys):
            place = (ctx.tenant, ctx.principal, key)
            self._chosen[place] = name
            self._chosen.move_to_end(place)
        while len(self._chosen) > MOST_REMEMBERED:
            self._chosen.popitem(last=False)


class SkillMount(NamedTuple):
    """The mount of a skill."""

    mount: AgentMount
    distrust: int
    """How little the agent is trusted that describes the skill."""


def _load(mount: AgentMount) -> int:
    return len(mount.peer.runner.runs) if isinstance(mount.peer, Engine) else 0


class SkillMounts:
    """The mounts of skills, which are created on the first call."""

    def __init__(
        self,
        mounts: Mapping[str, AgentMount],
        index: AgentIndex,
        shared: Shared,
        base: str,
        online: Online,
        source_of: SourceOf,
    ) -> None:
        self._mounts, self._index, self._online = mounts, index, online
        self._shared, self._base, self._source_of = shared, base, source_of
        self._made: OrderedDict[str, SkillMount] = OrderedDict()

    def find(self, scope: Scope) -> tuple[Router, Scope] | None:
        """Returns the router of the skill that a request is for, and the request relative to its
        mount point, or None if no agent has the skill."""
        path: str = scope["path"]
        if not path.startswith(PREFIX):
            return None
        skill = path[len(PREFIX) :].partition("/")[0]
        if not skill or next(self._index.find(Search(skill=skill)), None) is None:
            return None
        found = self._made.get(skill)
        if found is None or found.distrust:
            found = self._described(skill, found)
        if found is None:
            return None
        self._made.move_to_end(skill)
        return found.mount.router, below(scope, f"{PREFIX}{skill}")

    def _described(self, skill: str, before: SkillMount | None) -> SkillMount | None:
        """Returns the mount of a skill whose card says what the agent says that is trusted most,
        and not what another one said before; None if no agent may be asked."""
        listed = self._shared.settings.skills.get(skill)
        agents = SkillAgents(skill, self._mounts, self._index, self._source_of, listed)
        trusted, _ = agents.trusted()
        if not trusted:
            return None
        found = before
        if found is None or agents.distrust_of(trusted[0]) < found.distrust:
            found = self._made[skill] = self._mount(skill, agents, trusted[0])
            for service in self._grpc():
                service.add_agent(found.mount.name, found.mount.server)
            while len(self._made) > MOST_MOUNTS:
                _, oldest = self._made.popitem(last=False)
                for service in self._grpc():
                    service.remove_agent(oldest.mount.name)
        return found

    def _grpc(self) -> list[Service]:
        # The card names the mount as the tenant of its gRPC interface, like the card of an agent.
        return [each for each in self._shared.services if each.name == "grpc"]

    def _mount(self, skill: str, agents: SkillAgents, first: AgentMount) -> SkillMount:
        """Returns the mount of a skill, which is described as this agent does."""
        shown = next(each for each in first.agent.card(()).skills if each.id == skill)
        agent = Agent(shown.name, description=shown.description, push=first.agent.push)
        agent.acts_for_callers = True  # some of the agents that are asked may need their tokens
        agent.skill(
            skill, name=shown.name, description=shown.description, tags=shown.tags, default=True
        )(_elsewhere)
        peer = SkillPeer(skill, self._mounts, agents, self._online, self._shared.audit)
        point = MountPoint(self._base, quote(f"{PREFIX}{skill}", safe=IN_PATHS))
        name = f"{NO_AGENT}skills/{skill}"
        mount = AgentMount(name, agent, peer, point, self._shared, Naming())
        return SkillMount(mount, agents.distrust_of(first))

    async def stop(self) -> None:
        """Ends the open streams of the mounts."""
        made, self._made = self._made, OrderedDict()
        for each in made.values():
            await each.mount.stop(0.0)


async def _elsewhere(turn: object) -> Message:
    raise AssertionError("the agents that have the skill run its tasks")
