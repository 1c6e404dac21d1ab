"""UpstreamAgent: an agent of ours whose work is done by an agent elsewhere.

It is an `Agent`, so it is mounted, stored, authenticated, streamed, canceled and resumed by the
same code as every agent. Its only skill relays; which of the skills on its card is meant the agent
elsewhere decides.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from dragoman.agent import Agent, Shape, Skill, Turn
from dragoman.agent.remote_calls import MOST_HOPS, StartedCall
from dragoman.agent.run_api import RunApi
from dragoman.agent.turn import access_of
from dragoman.core.card import Card, Interface
from dragoman.core.errors import (
    BadParams,
    ConfigError,
    DragomanError,
    NotCancelable,
    TaskFinished,
    TaskNotFound,
    Unsupported,
)
from dragoman.core.log import Logger
from dragoman.core.model import Json
from dragoman.core.operations import CancelTask, GetExtendedCard, Invoke
from dragoman.core.peer import ANYONE, Context
from dragoman.engine.circuit_breaker import BreakerState
from dragoman.files import FileDoor
from dragoman.files.transfer import FileForm
from dragoman.relay import Relay, RelayedTask
from dragoman.relay.known_ids import KnownIds
from dragoman.store.registry import AgentHealth

from .agent_health import HasHealth
from .cards import changes, relayed
from .service import UpstreamService
from .token_exchange import ActingFor, TokenExchange
from .upstream import PREFIX, RELAY, RemoteUpstream, parsed
from .upstream_address import told
from .upstream_peer import UpstreamPeer
from .upstream_pool import UpstreamPool

log = Logger("gateway")
MOST_ID = 200
"""The longest id of a skill. It is recorded with every task."""
SKILL_ID = "metadata.skillId"
MOST_ATTEMPTS = 1000
"""A run that starts again follows the same task, so it may do so often."""


class UpstreamAgent(Agent, HasHealth):
    """An agent elsewhere, served as one of ours."""

    def __init__(
        self,
        name: str,
        pool: UpstreamPool,
        *,
        repeat: bool = False,
        timeout: float = 3600.0,
        patience: float = 120.0,
        reply_within: float = 2.0,
        refresh: float = 60.0,
        files: FileForm = "auto",
        result_files: FileForm = "auto",
        inline_size: int = 0,
        fallbacks: Sequence[UpstreamAgent] = (),
        exchange: TokenExchange | None = None,
    ) -> None:
        """`name` is what it is called here. Until its card is known, that is all its card says."""
        super().__init__(name, description=f"{name} (its card is not known yet)")
        self.served_as = name
        self.pool = pool
        self.exchange = exchange
        self.acts_for_callers = self.needs_caller_token = exchange is not None
        self.repeat, self.patience, self.refresh = repeat, patience, refresh
        self.reply_within = reply_within
        self.files, self.result_files, self.inline_size = files, result_files, inline_size
        self.door: FileDoor | None = None
        """Where files are offered for download, while the agent is served."""
        self.dialect = ""
        """The dialect in which it is called; empty until it was reached."""
        self.theirs: Card | None = None
        """Its own card, once it is known."""
        self.fallbacks: tuple[UpstreamAgent, ...] = tuple(fallbacks)
        """The agents that are asked in this order when this one cannot be reached."""
        self._read: dict[str, Card] = {}
        """The card that each address showed last."""
        self.tasks, self.contexts = KnownIds(), KnownIds()
        self.extended = self._extended_card
        self.skill(
            RELAY,
            name=name,
            description=f"Asks {name}",
            default=True,
            may_reply=True,
            max_attempts=MOST_ATTEMPTS,
            timeout=timeout,
        )(self._relay)
        # `_relay` returns a coroutine without being one, so its shape cannot be seen.
        self.skills[RELAY] = replace(self.skills[RELAY], shape=Shape.COROUTINE)

    @property
    def health(self) -> AgentHealth:
        """How the agent is, by what its calls and health checks told."""
        pool = self.pool
        if self.elsewhere:
            return AgentHealth.UP
        if all(pool.state(each) is BreakerState.OPEN for each in pool.addresses):
            return AgentHealth.DOWN
        return AgentHealth.UP if self.dialect else AgentHealth.UNKNOWN

    @property
    def last_seen(self) -> int:
        """When one of its addresses answered last, in milliseconds."""
        return int(max(each.seen_at for each in self.pool.addresses) * 1000)

    def _relay(self, turn: Turn) -> Coroutine[Any, Any, None]:
        # It is awaited as it is: a coroutine around it would take part in each of its steps.
        return Relay(turn, RemoteUpstream(self, turn)).run()

    def file_form(self, peer: UpstreamPeer) -> FileForm:
        """Returns the form in which this peer gets files."""
        return self.files

    def use_files(self, door: FileDoor) -> None:
        """Offers files at the door of the server, where agents or callers take them by reference.
        Raises `ConfigError` if they always do, and the door has no address."""
        if "reference" in (self.files, self.result_files) and not door.offers:
            raise ConfigError(
                f"[agents.{self.served_as}]: files by reference need the address of this server: "
                "set public_url in [server]."
            )
        self.door = door

    def choose(self, skill_id: str) -> Skill:
        """Returns the skill that relays. A skill that is not on the card is refused here, unless
        the agent has more skills than it shows to everyone."""
        if not skill_id or skill_id == RELAY:
            return self.skills[RELAY]
        theirs = self.theirs
        if theirs is not None and theirs.skills:
            known = {skill.id for skill in theirs.skills}
            if skill_id not in known and not theirs.extended:
                raise self.unknown(skill_id)
        if len(skill_id) > MOST_ID:
            raise BadParams(f"A skill id has at most {MOST_ID} characters", field=SKILL_ID)
        return self._relaying(skill_id)

    def _relaying(self, skill_id: str) -> Skill:
        """Returns the skill that relays, under a name that tells which skill elsewhere is meant. It
        is recorded with the task, since later calls are judged by it too."""
        relay = self.skills[RELAY]
        return replace(relay, id=f"{RELAY}/{skill_id}") if skill_id else relay

    def recorded_skill(self, skill_id: str) -> Skill | None:
        """Returns the skill that relays, for tasks that it opened."""
        if skill_id.startswith(f"{RELAY}/"):
            return self._relaying(skill_id.removeprefix(f"{RELAY}/"))
        return super().recorded_skill(skill_id)

    def skill_asked(self, skill: Skill) -> str:
        """Returns the skill elsewhere that is meant; empty if the agent there chooses one."""
        named = skill.id.removeprefix(RELAY).removeprefix("/")
        if not named and self.theirs is not None and len(self.theirs.skills) == 1:
            return self.theirs.skills[0].id
        return named

    def card(self, interfaces: Iterable[Interface] = (), also: Container[str] = ()) -> Card:
        """Returns the card of the agent elsewhere as ours, with these addresses."""
        own = super().card(interfaces, also)
        if self.theirs is None:
            return own
        return replace(relayed(self.theirs, own.extensions), interfaces=own.interfaces)

    def learn(self, card: Card, dialect: str, at: str = "") -> None:
        """Takes over the card of the agent, which it showed at this address, and says in the log
        what changed."""
        if self.has_learned(card, dialect, at):
            return
        self.dialect = dialect
        if self._read.get(at) is card:
            return
        self._read[at] = card
        before = self.theirs
        if before is not None and len(self.pool.addresses) > 1:
            card = replace(card, interfaces=before.interfaces)  # each address has its own
        if card == before or not (card.version or card.skills):
            return  # the same as before, or made of nothing but its address
        if before is None:
            log.info("The card of an agent is known", agent=self.served_as, dialect=dialect)
        else:
            changed = ", ".join(changes(before, card)) or "something else"
            log.warning("The card of an agent changed", agent=self.served_as, changed=changed)
        self.theirs = card
        self.may_extend = card.extended
        self.name = card.name or self.served_as
        self.description = card.description or self.name
        self.version = card.version
        self.provider = card.provider
        self.documentation_url, self.icon_url = card.documentation_url, card.icon_url
        self.card_changed()

    def has_learned(self, card: Card, dialect: str, at: str) -> bool:
        """Returns whether nothing is new about the agent at this address."""
        return self._read.get(at) is card and self.dialect == dialect

    async def _extended_card(self, caller: Context) -> Card:
        """Returns the extended card that the agent shows to us, as ours."""
        try:
            async with self.pool.peer(acting=self.acting_for(lambda: caller)) as peer:
                card = await peer.call(GetExtendedCard(), Context(hops=caller.hops + 1))
        except DragomanError as exc:
            raise told(self.name, exc) from exc
        return relayed(card, super().card().extensions)

    async def invoke_elsewhere(self, op: Invoke, ctx: Context) -> Json:
        """Has the agent answer a method that it has beyond the protocol."""
        if ctx.hops >= MOST_HOPS:
            raise Unsupported(f"More than {MOST_HOPS} agents call each other in a row")
        about = Context(hops=ctx.hops + 1, trace=ctx.trace, deadline=ctx.deadline)
        try:
            async with self.pool.peer(acting=self.acting_for(lambda: ctx)) as peer:
                return await peer.call(op, about)
        except DragomanError as exc:
            raise told(self.name, exc) from exc

    def service(self) -> UpstreamService:
        """Returns the service that reads the card while the agent is served."""
        return UpstreamService(self)

    async def check(self) -> None:
        """Looks at each address now: whether the agent is there, and what its card says."""
        for address in self.pool.addresses:
            found = await self.pool.check(address)
            if found is not None:
                self.learn(found.card, found.dialect, address.label)

    def acting_for(self, caller: Callable[[], Context]) -> ActingFor | None:
        """Returns for whom the agent is called; None: for ourselves, with our own credentials."""
        if self.exchange is None:
            return None
        return ActingFor(self.exchange, lambda: caller().token)

    async def cancel(self, task_id: str, at: str = "", acting: ActingFor | None = None) -> None:
        """Cancels a task at the address with this label. It is no error if the task has ended."""
        async with self.pool.peer(at=at or self.pool.url, urgent=True, acting=acting) as peer:
            with suppress(NotCancelable, TaskNotFound, TaskFinished):
                if acting is not None:
                    await peer.call(CancelTask(task_id=task_id), ANYONE)
                else:
                    await peer.agent.cancel(task_id)

    async def stop_unrecorded(self, run: RunApi) -> None:
        """Cancels the task of a run that did not learn its id, if the agent lists it."""
        turn = Turn(run, RELAY)
        await RelayedTask(access_of(turn), RemoteUpstream(self, turn)).stop_unrecorded()

    async def stop_remote(self, call: StartedCall, caller: Context) -> bool:
        """Cancels what the agent does for a task of ours, also after a restart. Where it acts for
        our callers, it is the caller's token that cancels, and never our own credentials."""
        if not call.address.startswith(PREFIX):
            return False
        name, label = parsed(call.address)
        known = (each for each in self.fallbacks if each.served_as == name)
        asked = next(known, self)
        await asked.cancel(call.task_id, label, asked.acting_for(lambda: caller))
        return True
