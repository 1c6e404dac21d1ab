"""Agent: a name, a description and skills, written once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct

from dragoman.core import card as cards
from dragoman.core.auth_schemes import Scheme
from dragoman.core.errors import BadParams, ConfigError, UnknownMethod
from dragoman.core.extensions import CURSOR, IDEMPOTENCY, SKILLS, TRANSITIONS, WORK
from dragoman.core.model import Json
from dragoman.core.operations import Invoke
from dragoman.core.peer import Context
from dragoman.workspace import Space, space_of

from .parameters import Params
from .remote_calls import StartedCall

F = TypeVar("F", bound=Callable[..., Any])

_NAMESPACED = re.compile(r"[\w-]+(\.[\w-]+)+/[\w.-]+")

MODES = ("text/plain", "application/json")
"""The media types on the card of an agent that names none. They are not enforced then: see
`security.card_enforcement`."""

_ABOUT = {
    CURSOR: "SSE events carry their place in the task's log; Last-Event-ID resumes behind it",
    IDEMPOTENCY: "A send with the same Idempotency-Key header is done once",
    WORK: "Thoughts, logs and usage of a run, for callers that activate it; "
    "progress and questions carry data under its name for everyone",
    TRANSITIONS: "The states a task was in, for callers that activate it",
    SKILLS: "JSON Schemas of what the skills take and give",
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


class Shape(Enum):
    """The kinds of functions that a skill can be."""

    COROUTINE = "async function"
    GENERATOR = "async generator"
    PLAIN = "function in a thread"
    PLAIN_GENERATOR = "generator in a thread"

    @property
    def threaded(self) -> bool:
        """Returns whether a function of this kind holds a thread while it runs."""
        return self in (Shape.PLAIN, Shape.PLAIN_GENERATOR)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Shape:
        """Returns the kind of a function."""
        if inspect.isasyncgenfunction(function):
            return cls.GENERATOR
        if inspect.iscoroutinefunction(function):
            return cls.COROUTINE
        return cls.PLAIN_GENERATOR if inspect.isgeneratorfunction(function) else cls.PLAIN


class Skill(Struct, frozen=True, kw_only=True):
    """A skill: a function of the author, and how it is run."""

    id: str
    """The id by which callers choose the skill."""
    name: str
    description: str
    function: Callable[..., Any]
    params: Params
    shape: Shape
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    """The media types that it reads; empty means those of the agent."""
    output_modes: tuple[str, ...] = ()
    may_reply: bool = False
    """Whether it may answer with a message instead of a task."""
    join: float = 0.0
    """The seconds for which chunks are joined into one event; 0 joins nothing."""
    on_crash: Literal["resume", "fail"] = "resume"
    """What happens to a task whose process died: it runs again, or it fails."""
    max_attempts: int = 10
    timeout: float = 3600.0
    """The seconds of work after which a run is ended."""
    cancel_grace: float = 10.0
    """The seconds that a canceled run has to end by itself."""
    scopes: tuple[str, ...] = ()
    """The scopes that a caller needs to use the skill, beside those of the agent."""
    extended: bool = False
    """Whether the skill stands only on the extended card, for callers that may use it."""
    anonymous: bool = False
    """Whether callers without credentials may use the skill of an agent that otherwise requires
    them."""


class Method(Struct, frozen=True, kw_only=True):
    """A function that answers calls beyond the protocol (A2A 0.3 §3.5.5)."""

    name: str
    function: Callable[..., Any]
    params: Params
    shape: Shape


class Agent:
    """An agent: make one with `Agent(name)`, and put `@agent.skill(...)` over its functions."""

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
        """Operations (by their A2A 1.0 names), methods and skills that need no credentials, where
        all else does; `server.anonymous` of the settings replaces them."""
        self.extensions = own_extensions(extensions)
        """The extensions of the author, by URI."""
        self.streaming, self.push, self.may_extend = streaming, push, extended_card
        """The capabilities that are not switched off: streams, webhooks and the extended card."""
        self.workspace = space_of(workspace)
        """The folder that the tools of the agent may use, unless `[workspace]` of the settings
        names another."""
        self.on_card_change: list[Callable[[], None]] = []
        """Called when the card changes while the agent is served."""
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
        if max_attempts < 1 or timeout <= 0 or cancel_grace < 0 or join < 0:
            raise ConfigError(
                f"Skill `{id}`: max_attempts and timeout must be positive, "
                "cancel_grace and join not negative"
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
                scopes=tuple(scopes),
                extended=extended,
                anonymous=anonymous,
            )
            if default:
                self._default = id
            return function

        return add

    def authorize(self, function: F) -> F:
        """Makes a function the one that decides who may do what, in every binding.

        It is called as `function(caller, operation, skill, task)` with the caller's `Context`, the
        operation, and the ids of skill and task as far as they are known; it raises `Forbidden`,
        or gives False, to refuse. It may be async.
        """
        if self.authorizer is not None:
            raise ConfigError(f"Agent `{self.name}` has two functions that authorize")
        self.authorizer = function
        return function

    def extended_card(self, function: F) -> F:
        """Makes a function the one that writes the extended card: `function(caller) -> Card`.

        Start from `agent.card()`; addresses, schemes, capabilities and the agent's extensions are
        filled in. It may be async. None says that there is none for this caller.
        """
        if not self.may_extend:
            raise ConfigError(f"Agent `{self.name}` has its extended card switched off")
        self.extended = function
        return function

    def method(self, name: str) -> Callable[[F], F]:
        """Makes a function answer calls beyond the protocol: `@agent.method("myorg.x/do")`.

        Its first parameter is who calls (a `Context`), the others are checked like a skill's. The
        name has a namespace, so that it can never be one of the protocol's own.
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
        # A caller that names none must not come upon one that is not shown to everybody.
        public = (skill for skill in self.skills.values() if not skill.extended)
        return next(public, None) or next(iter(self.skills.values()))

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
                    # Said even where they are the agent's own: some clients insist on them.
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
        # An author may say more of one of ours, such as that it is required.
        return tuple((ours | self.extensions).values())

    async def invoke_elsewhere(self, op: Invoke, ctx: Context) -> Json:
        """Answers a method that the agent does not have. An agent whose work is done elsewhere
        asks there."""
        raise UnknownMethod(f"There is no method {op.method[:80]!r}")

    def card_changed(self) -> None:
        """Tells those who serve the agent that its card is another one now."""
        for changed in self.on_card_change:
            changed()

    async def stop_remote(self, call: StartedCall) -> bool:
        """Cancels a task that a relay of this agent opened elsewhere. False: whoever can connect
        to the address can do it, and nothing was done."""
        return False

    def serve(self, **options: Any) -> None:
        """Serves the agent in every dialect until Ctrl-C. Options are those of `dragoman serve`."""
        from dragoman.server.serve import serve  # the one look up the layers: the shortest start

        serve(self, **options)

    def join(self, host: str, **options: Any) -> None:
        """Registers with an IAT host and works for it until Ctrl-C; registers again by itself. A
        `ws://` host is dialed and asks over that socket, an `http://` one is told our address."""
        self.serve(iat_host=host, **{"port": 0, "grpc": False, **options})

    def link(self, agent_id: str, *servers: str, pin: str = "", **options: Any) -> None:
        """Dials XiaoYi and works for its phones until Ctrl-C, without a port; options as above."""
        self.serve(xiaoyi={"agent_id": agent_id, "servers": servers, "pin": pin}, **options)
