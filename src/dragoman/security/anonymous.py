"""What callers without credentials may do where all others show some: named operations and skills.

Such callers are all the one principal `anonymous` of tenant ``, as they are where no authentication
is set up, so they share what they own: whoever knows the id of a task that a stranger opened may
read it, if reading is open. Wrong credentials are never taken for none.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dragoman.agent import Agent, Skill
from dragoman.core import operations as ops
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError

OPERATIONS = {name: op for name, op in ops.NAMES.items() if op is not ops.GetExtendedCard}
"""The extended card is for callers we know, and cannot be here."""
_OF_A_SKILL = frozenset((ops.SendMessage, ops.Resolve, ops.GetTask, ops.Watch, ops.CancelTask))
"""The operations that go with an open skill: to use it, and to see to the tasks that were opened
so."""


class Anonymous:
    """The operations and skills that are open to callers without credentials."""

    def __init__(self, agent: Agent, said: tuple[str, ...] | None) -> None:
        """Reads the settings, or else the agent's code. Raises `ConfigError` for unknown names."""
        names = agent.anonymous if said is None else said
        self._skills = {name for name in names if name in agent.skills}
        if said is None:
            self._skills |= {each.id for each in agent.skills.values() if each.anonymous}
        self._operations = {OPERATIONS[name] for name in names if name in OPERATIONS}
        self._methods = {name for name in names if name in agent.methods}
        for name in names:
            if name not in (*self._skills, *OPERATIONS, *self._methods):
                known = ", ".join((*OPERATIONS, *agent.skills, *agent.methods))
                raise ConfigError(f"anonymous: '{name}' is none of: {known}.")
        for skill in map(agent.skills.__getitem__, sorted(self._skills)):
            if skill.scopes or skill.extended:
                raise ConfigError(
                    f"Skill `{skill.id}` cannot be open to anyone and ask for scopes, or stand "
                    "only on the extended card."
                )
        self._agent = agent

    def __bool__(self) -> bool:
        return bool(self._skills or self._operations or self._methods)

    def opens(self, op: ops.Operation[Any]) -> bool:
        """Returns whether this operation is open by its name."""
        if isinstance(op, ops.Invoke):
            return op.method in self._methods
        if (
            isinstance(op, ops.SendMessage)
            and op.hook is not None
            and ops.SetHook not in self._operations
        ):
            return False  # a webhook that is set in the same breath is one all the same
        kind = ops.SendMessage if isinstance(op, ops.Resolve) else type(op)
        return kind in self._operations

    def does(self, op: ops.Operation[Any], skill: Skill | None) -> bool:
        """Returns whether the skill that this operation is about is open."""
        if skill is None or skill.id not in self._skills or type(op) not in _OF_A_SKILL:
            return False
        return not (
            isinstance(op, ops.SendMessage) and op.hook and ops.SetHook not in self._operations
        )

    def on_card(self, card: Card) -> Card:
        """Returns the card with an empty requirement where no credentials are needed, as in
        OpenAPI."""
        if ops.SendMessage in self._operations:
            hidden = {each.id for each in self._agent.skills.values() if each.extended}
            skills = tuple(
                replace(skill, security=skill.security or card.security)
                if skill.id in hidden
                else skill
                for skill in card.skills
            )
            return replace(card, skills=skills, security=(*card.security, {}))
        skills = tuple(
            replace(skill, security=({},)) if skill.id in self._skills else skill
            for skill in card.skills
        )
        return replace(card, skills=skills)
