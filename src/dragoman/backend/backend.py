"""A backend serves tasks that live in another system, in every version and binding.

An author with an existing task system provides plain functions for what that system supports:

    backend = Backend("Orders", send=send, get=get, cancel=cancel)

Each function takes the operation (`dragoman.core.operations`) and, if it has a second parameter,
the caller (`Context`). It is sync or async, and returns canonical types (`dragoman.core.model`). A
missing send, get or cancel uses a store of ours; any other missing operation is refused as
unsupported, and the card says so. Authentication, rate limits, size limits and the enforcement of
the card are those of any agent. The functions themselves decide which tasks belong to which caller:
they receive the tenant and the principal.

If a function returns an invalid value, the log explains it; the caller gets only an error id.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.card import Card, CardSkill, Interface
from dragoman.core.errors import ConfigError
from dragoman.core.peer import Context
from dragoman.settings import EngineSettings
from dragoman.store import Store, open_store

from .fallback import FallbackTasks
from .function import Function
from .peer import OWN, BackendPeer

KEEP = EngineSettings().keep_tasks


class Backend(Agent):
    """An agent whose tasks live in another system, accessed by functions of its author."""

    is_backend = True

    def __init__(
        self,
        name: str,
        *,
        send: Callable[..., Any] | None = None,
        stream: Callable[..., Any] | None = None,
        get: Callable[..., Any] | None = None,
        list: Callable[..., Any] | None = None,
        cancel: Callable[..., Any] | None = None,
        resubscribe: Callable[..., Any] | None = None,
        set_hook: Callable[..., Any] | None = None,
        get_hook: Callable[..., Any] | None = None,
        list_hooks: Callable[..., Any] | None = None,
        delete_hook: Callable[..., Any] | None = None,
        card: Card | Callable[[], Card] | None = None,
        extended_card: Callable[[Context], Any] | None = None,
        skills: Iterable[CardSkill] = (),
        start: Callable[[], Any] | None = None,
        stop: Callable[[], Any] | None = None,
        timeout: float = 300.0,
        **about: Any,
    ) -> None:
        """`about` are the arguments of `Agent`: description, version, auth, extensions...

        `timeout` is the number of seconds that a function may take; streams may take longer.
        """
        given = {
            "send": send,
            "stream": stream,
            "get": get,
            "list": list,
            "cancel": cancel,
            "resubscribe": resubscribe,
            "set_hook": set_hook,
            "get_hook": get_hook,
            "list_hooks": list_hooks,
            "delete_hook": delete_hook,
        }
        self.functions = {
            what: Function(what, function)
            for what, function in given.items()
            if function is not None
        }
        if not self.functions:
            raise ConfigError(f"Backend `{name}` has no functions: Backend({name!r}, send=...)")
        if timeout <= 0:
            raise ConfigError(f"Backend `{name}`: timeout must be positive")
        streams = stream is not None or resubscribe is not None
        super().__init__(name, streaming=streams, push=set_hook is not None, **about)
        self.extended = extended_card
        self.listed = tuple(skills)
        """The skills as they stand on the card. The functions decide how each is done."""
        self.keeps_tasks = set(self.functions) >= OWN
        """Whether the functions keep all tasks; if not, a store of ours holds some."""
        self.timeout = timeout
        if start is not None:
            self.on_start(start)
        if stop is not None:
            self.on_stop(stop)
        self._card = card

    def skill(self, id: str, **about: Any) -> Any:
        """Refuses: a backend runs no skills here, so it only lists them with
        `Backend(skills=[...])`."""
        raise ConfigError(f"Backend `{self.name}` runs no skills; list them: skills=[Skill(...)]")

    def card(self, interfaces: Iterable[Interface] = (), also: Container[str] = ()) -> Card:
        """Returns its own card, or one made from its settings. The capabilities follow from its
        functions."""
        own = tuple(self.extensions.values())
        if self._card is None:
            skills = tuple(
                replace(
                    skill,
                    input_modes=skill.input_modes or self.input_modes,
                    output_modes=skill.output_modes or self.output_modes,
                )
                for skill in self.listed
            )
            return replace(super().card(interfaces), skills=skills, extensions=own)
        given = self._card() if callable(self._card) else self._card
        if not isinstance(given, Card):
            raise ConfigError(f"Backend `{self.name}`: card gave a {type(given).__name__}")
        return replace(
            given,
            interfaces=tuple(interfaces),
            streaming=self.streaming,
            extensions=(*given.extensions, *own),
        )

    def peer(
        self,
        *,
        push: bool = True,
        store: Store | str = "memory:",
        keep: float = KEEP,
        name: str = "",
        opens_store: bool = True,
    ) -> BackendPeer:
        """Returns the peer that executes operations with the functions. `push` allows webhooks.

        `store` keeps what the functions do not, and finished tasks for `keep` seconds. `name` and
        `opens_store` are for agents that share a store, as in `Engine`.
        """
        store = open_store(store) if isinstance(store, str) else store
        return BackendPeer(
            self,
            self.functions,
            FallbackTasks(store, name or self.name, keep, opens_store=opens_store),
            push=push and self.push,
            timeout=self.timeout,
        )
