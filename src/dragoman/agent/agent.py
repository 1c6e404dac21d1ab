"""Agent: a name, a description and skills, written once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack

from msgspec import Struct

from dragoman.core import card as cards
from dragoman.core.auth_schemes import Scheme
from dragoman.core.errors import BadParams, ConfigError, UnknownMethod
from dragoman.core.extensions import CURSOR, IDEMPOTENCY, SKILLS, TRANSITIONS, WORK
from dragoman.core.model import Json
from dragoman.core.operations import Invoke
from dragoman.core.peer import Context
from dragoman.workspace import Space, space_of

from .lifespan import LifespanHooks
from .parameters import Params
from .remote_calls import StartedCall
from .serve_options import ServeOptions
from .skill import Shape, Skill

F = TypeVar("F", bound=Callable[..., Any])

_NAMESPACED = re.compile(r"[\w-]+(\.[\w-]+)+/[\w.-]+")

MODES = ("text/plain", "application/json")
"""The media types on the card of an agent that names none. They are not enforced then: see
`security.card_enforcement`."""

_ABOUT = {
    CURSOR: "SSE events carry their place in the task's log; Last-Event-ID resumes after it",
    IDEMPOTENCY: "A send with the same Idempotency-Key header is executed once",
    WORK: "Thoughts, logs and usage of a run, for callers that activate it; "
    "progress and questions carry data under its name for everyone",
    TRANSITIONS: "The states a task was in, for callers that activate it",
    SKILLS: "JSON Schemas of the parameters and results of the skills",
}


def own_extensions(extensions: Iterable[cards.Extension]) -> dict[str, cards.Extension]:
    """Returns an author's extensions by URI. Raises `ConfigError` if one is listed twice or has no
    URI."""
    found: dict[str, cards.Extension] = {}
    for each in extensions:
        if not each.uri or re.search(r"[\s,]", each.uri):
            raise ConfigError(
                f"An extension needs a URI without spaces or commas, not {each.uri!r}"
            )
        if each.uri in found:
            raise ConfigError(f"There are two extensions `{each.uri}`")
        found[each.uri] = each
    return found


class Method(Struct, frozen=True, kw_only=True):
    """A function that answers calls beyond the protocol (A2A 0.3 §3.5.5)."""

    name: str
    function: Callable[..., Any]
    params: Params
    shape: Shape


class Agent:
    """An agent. Its skills are functions with the decorator `@agent.skill(...)`."""

    needs_caller_token = False
    """Whether nothing is done elsewhere for a caller without a token of that caller."""
    acts_for_callers = False
    """Whether it needs the tokens of its callers, to call other agents for them."""
    is_backend = False
    """Whether it is a `Backend`, which has functions in place of skills."""
    keeps_tasks = False
    """Whether it keeps all tasks itself, so that it needs no store of ours."""
    linked = False
    """Whether its tasks need a link that one process has, such as a WebSocket."""
    elsewhere = False
    """Whether another process has this link now, so that the tasks must run there."""

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        version: str = "1.0.0",
        provider: cards.Provider | None = None,
        documentation_url: str = "",
        icon_url: str = "",
        input_modes: Iterable[str] = MODES,
        output_modes: Iterable[str] = MODES,
        auth: Mapping[str, Scheme] | None = None,
        scopes: Iterable[str] = (),
        anonymous: Iterable[str] = (),
        extensions: Iterable[cards.Extension] = (),
        streaming: bool = True,
        push: bool = True,
        extended_card: bool = True,
        workspace: Space | Path | str | None = None,
    ) -> None:
        if not name.strip():
            raise ConfigError("An agent needs a name: Agent('Travel desk')")
        self.name = name
        self.description = description or name
        self.version = version
        self.provider = provider
        self.documentation_url = documentation_url
        self.icon_url = icon_url
        self.input_modes = tuple(input_modes)
        self.output_modes = tuple(output_modes)
        self.skills: dict[str, Skill] = {}
        self.methods: dict[str, Method] = {}
        self.auth = dict(auth or {})
        """The authentication schemes by name; `[auth.NAME]` of the settings adds to them."""
        self.scopes = tuple(scopes)
        """The scopes that every caller needs."""
        self.anonymous = tuple(anonymous)
        """Operations (by their A2A 1.0 names), methods and skills that need no credentials, while
        everything else does. `server.anonymous` of the settings replaces them."""
        self.extensions = own_extensions(extensions)
        """The extensions of the author, by URI."""
        self.streaming, self.push, self.may_extend = streaming, push, extended_card
        """The capabilities that are not switched off: streams, webhooks and the extended card."""
        self.workspace = space_of(workspace)
        """The folder that the tools of the agent may use, unless `[workspace]` of the settings
        names another."""
        self.on_card_change: list[Callable[[], None]] = []
        """Called when the card changes while the agent is served."""
        self.hooks = LifespanHooks([], [], [])
        """The functions that are called before the first task and after the last."""
        self.authorizer: Callable[..., Any] | None = None
        self.extended: Callable[..., Any] | None = None
        self._default = ""

    def skill(
        self,
        id: str,
        *,
        name: str = "",
        description: str = "",
        tags: Iterable[str] = (),
        examples: Iterable[str] = (),
        input_modes: Iterable[str] = (),
        output_modes: Iterable[str] = (),
        default: bool = False,
        may_reply: bool = False,
        join: float = 0.0,
        on_crash: Literal["resume", "fail"] = "resume",
        max_attempts: int = 10,
        timeout: float = 3600.0,
        cancel_grace: float = 10.0,
        max_runs: int = 0,
        scopes: Iterable[str] = (),
        extended: bool = False,
        anonymous: bool = False,
    ) -> Callable[[F], F]:
        """Registers a function as a skill: an async function, an async generator or a plain
        function."""
        if not isinstance(id, str):
            raise ConfigError('A skill needs an id: write @agent.skill("plan"), not @agent.skill')
        if on_crash not in ("resume", "fail"):
            raise ConfigError(f'Skill `{id}`: on_crash is "resume" or "fail", not {on_crash!r}')
        if max_attempts < 1 or timeout <= 0 or min(cancel_grace, join, max_runs) < 0:
            raise ConfigError(
                f"Skill `{id}`: max_attempts and timeout must be positive, "
                "cancel_grace, join and max_runs not negative"
            )

        def add(function: F) -> F:
            if not inspect.isroutine(function):
                raise ConfigError(f"Skill `{id}` must be a function, not {function!r}")
            if id in self.skills:
                raise ConfigError(f"There are two skills `{id}`; ids are unique within an agent")
            if default and self._default:
                raise ConfigError(f"Skills `{self._default}` and `{id}` are both default")
            words = inspect.getdoc(function) or ""
            self.skills[id] = Skill(
                id=id,
                name=name or id,
                description=description or words.partition("\n")[0] or id,
                function=function,
                params=Params(id, function),
                shape=Shape.of(function),
                tags=tuple(tags) or (id,),
                examples=tuple(examples),
                input_modes=tuple(input_modes),
                output_modes=tuple(output_modes),
                may_reply=may_reply,
                join=join,
                on_crash=on_crash,
                max_attempts=max_attempts,
                timeout=timeout,
                cancel_grace=cancel_grace,
                max_runs=max_runs,
                scopes=tuple(scopes),
                extended=extended,
                anonymous=anonymous,
            )
            if default:
                self._default = id
            return function

        return add

    def on_start(self, function: F) -> F:
        """Registers a function that is called before the agent takes its first task, with the
        `turn.state` of all later turns if it has a parameter. It may be async."""
        self.hooks.starts.append(function)
        return function

    def on_stop(self, function: F) -> F:
        """Registers a function that is called when the last task of the agent has ended, like
        `on_start`; the last one registered comes first."""
        self.hooks.stops.append(function)
        return function

    def lifespan(self, function: F) -> F:
        """Registers an async generator, or a function that returns an async context manager, which
        is entered before the first task and left after the last. What it yields as a dict is on
        `turn.state`."""
        self.hooks.lifespans.append(function)
        return function

    def authorize(self, function: F) -> F:
        """Registers the function that authorizes callers, in every binding.

        It is called as `function(caller, operation, skill, task)` with the caller's `Context`, the
        operation, and the ids of skill and task as far as they are known. To refuse, it raises
        `Forbidden` or returns False. It may be async.
        """
        if self.authorizer is not None:
            raise ConfigError(f"Agent `{self.name}` has two functions that authorize")
        self.authorizer = function
        return function

    def extended_card(self, function: F) -> F:
        """Registers the function that creates the extended card: `function(caller) -> Card`.

        It can start from `agent.card()`; addresses, schemes, capabilities and the agent's
        extensions are filled in. It may be async, and may return None for a caller without one.
        """
        if not self.may_extend:
            raise ConfigError(f"Agent `{self.name}` has its extended card switched off")
        self.extended = function
        return function

    def method(self, name: str) -> Callable[[F], F]:
        """Registers a function for calls beyond the protocol: `@agent.method("myorg.x/do")`.

        Its first parameter is the `Context` of the caller; the others are checked like those of a
        skill. The name must have a namespace, so that it can never be a method of the protocol.
        """
        if not isinstance(name, str) or not _NAMESPACED.fullmatch(name):
            raise ConfigError(
                f"Method {name!r} needs a name with a namespace, such as 'myorg.x/do': "
                "names without one belong to the protocol"
            )
        if name in self.methods:
            raise ConfigError(f"There are two methods `{name}`; names are unique within an agent")

        def add(function: F) -> F:
            shape = Shape.of(function)
            if shape not in (Shape.COROUTINE, Shape.PLAIN):
                raise ConfigError(f"Method `{name}` must return its answer, not yield it")
            self.methods[name] = Method(
                name=name, function=function, params=Params(name, function), shape=shape
            )
            return function

        return add

    def choose(self, skill_id: str) -> Skill:
        """Returns the skill that a caller named, or the default one, or the first one (DESIGN
        §4)."""
        if skill_id:
            found = self.skills.get(skill_id)
            if found is None:
                raise self.unknown(skill_id)
            return found
        if self._default:
            return self.skills[self._default]
        if not self.skills:
            raise ConfigError(f"Agent `{self.name}` has no skills; add one with @agent.skill")
        # A caller that names no skill must not get one that is only on the extended card.
        public = (skill for skill in self.skills.values() if not skill.extended)
        return next(public, None) or next(iter(self.skills.values()))

    def recorded_skill(self, skill_id: str) -> Skill | None:
        """Returns the skill that a stored task has; None if there is no such skill any more."""
        return self.skills.get(skill_id)

    def skill_asked(self, skill: Skill) -> str:
        """Returns the id by which callers choose this skill, for policies and the audit log."""
        return skill.id

    def unknown(self, skill_id: str) -> BadParams:
        """Returns the error for a skill that does not exist, or not for this caller."""
        known = ", ".join(each.id for each in self.skills.values() if not each.extended)
        return BadParams(f"There is no skill `{skill_id}`; this agent has: {known}")

    def card(
        self, interfaces: Iterable[cards.Interface] = (), also: Container[str] = ()
    ) -> cards.Card:
        """Returns the card of the agent with these addresses. `also` names the extended skills that
        it shows."""
        return cards.Card(
            name=self.name,
            description=self.description,
            version=self.version,
            interfaces=tuple(interfaces),
            provider=self.provider,
            documentation_url=self.documentation_url,
            icon_url=self.icon_url,
            streaming=self.streaming,
            extensions=self._extensions(also),
            input_modes=self.input_modes,
            output_modes=self.output_modes,
            skills=tuple(
                cards.CardSkill(
                    id=skill.id,
                    name=skill.name,
                    description=skill.description,
                    tags=skill.tags,
                    examples=skill.examples,
                    # They are listed even if they are the agent's own: some clients require them.
                    input_modes=skill.input_modes or self.input_modes,
                    output_modes=skill.output_modes or self.output_modes,
                )
                for skill in self.skills.values()
                if not skill.extended or skill.id in also
            ),
        )

    def _extensions(self, also: Container[str]) -> tuple[cards.Extension, ...]:
        schemas: dict[str, Json] = {}
        for skill in self.skills.values():
            if skill.extended and skill.id not in also:
                continue
            published = {"input": skill.params.input_schema, "output": skill.params.output_schema}
            found = {side: schema for side, schema in published.items() if schema is not None}
            if found:
                schemas[skill.id] = found
        uris = [CURSOR, IDEMPOTENCY, WORK, TRANSITIONS, *([SKILLS] if schemas else [])]
        ours = {
            uri: cards.Extension(
                uri=uri,
                description=_ABOUT[uri],
                params={"schemas": schemas} if uri == SKILLS else None,
            )
            for uri in uris
        }
        # An author may redefine one of ours, for example to make it required.
        return tuple((ours | self.extensions).values())

    async def invoke_elsewhere(self, op: Invoke, ctx: Context) -> Json:
        """Answers a method that the agent does not have. An agent whose work is done elsewhere
        overrides this to forward the call."""
        raise UnknownMethod(f"There is no method {op.method[:80]!r}")

    def card_changed(self) -> None:
        """Notifies the servers of this agent that its card has changed."""
        for changed in self.on_card_change:
            changed()

    async def stop_remote(self, call: StartedCall, caller: Context) -> bool:
        """Cancels a task that a relay of this agent opened elsewhere for this caller. Returns
        False, without doing anything, if the task can be canceled by connecting to its address."""
        return False

    def serve(self, **options: Unpack[ServeOptions]) -> None:
        """Serves the agent in every dialect until Ctrl-C. The options are those of `dragoman
        serve`."""
        from dragoman.server.serve import serve  # the one import from a higher layer, for brevity

        serve(self, **options)

    def join(self, host: str, /, **options: Unpack[ServeOptions]) -> None:
        """Registers with an IAT host and works for it until Ctrl-C. It registers again by itself
        when the connection breaks.

        A host at `ws://` or `wss://` calls us over the WebSocket that we open, one at `http://` or
        `https://` at our own address. The options are those of `serve`; any free port is used."""
        options = {"port": 0, "grpc": False, **options, "iat_host": host}
        self.serve(**options)

    def link(self, agent_id: str, *servers: str, pin: str = "", **options: Any) -> None:
        """Dials XiaoYi and works for its phones until Ctrl-C, without a port; options as above, and
        the keys of `[agents.NAME.xiaoyi]` that begin with `media`."""
        media = {key: options.pop(key) for key in [*options] if key.startswith("media")}
        from dragoman.server.serve import serve

        about = {"agent_id": agent_id, "servers": servers, "pin": pin, **media}
        serve(self, xiaoyi=about, **options)
