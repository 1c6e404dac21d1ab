"""Skills as MCP tools: their names, descriptions and schemas, and the message that a call becomes.

Everything here is plain data, so that it needs no `mcp` package.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from uuid import uuid4

from msgspec import Struct

from dragoman.core import json_schema
from dragoman.core.card import Card, CardSkill
from dragoman.core.errors import BadParams
from dragoman.core.json_schema import schemas_of
from dragoman.core.model import AnyPart, Data, Json, Message, Role, Text
from dragoman.core.peer import Context, Peer

MOST_CHARS = 64
"""The length of a tool's name. MCP allows 128, but many models only 64."""
MOST_PREFIX = 40
"""The part of it that is the name of the agent."""
BETWEEN = "__"
"""What stands between the name of an agent and the id of its skill."""
ANSWER = "answer_task"
"""The tool that answers a task which waits, for clients that cannot be asked themselves."""
MESSAGE: dict[str, Json] = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What to say to the agent."}},
    "required": ["message"],
    "additionalProperties": False,
}
"""The arguments of a skill that publishes no schema."""
ANSWERS: dict[str, Json] = {
    "type": "object",
    "properties": {
        "task_id": {"type": "string", "description": "The task_id in the result that asks."},
        "answer": {
            "type": "string",
            "description": "The answer in words. An approval is answered with yes or no.",
        },
    },
    "required": ["task_id", "answer"],
    "additionalProperties": False,
}


class OfferedAgent(Struct, frozen=True, kw_only=True):
    """An agent whose skills are offered as tools."""

    name: str
    """What the names of its tools begin with, if there are several agents."""
    peer: Peer
    card: Callable[[Context], Awaitable[Card]]
    """Returns the card as this caller may see it."""


class SkillTool(Struct, frozen=True, kw_only=True):
    """A skill as a tool."""

    title: str
    description: str
    schema: dict[str, Json]
    """The JSON Schema of its arguments."""
    skill: str
    """The id of the skill; empty for an agent that lists none."""
    takes_text: bool
    """Whether the arguments are the text of a message, since the skill publishes no schema."""

    def message(self, arguments: Mapping[str, Json]) -> Message:
        """Returns the message that a call of the tool sends. Raises `BadParams`, which says what is
        wrong with the arguments."""
        check(self.schema, arguments)
        part: AnyPart = Data(dict(arguments))
        if self.takes_text:
            part = Text(arguments["message"])
        metadata = {"skillId": self.skill} if self.skill else None
        return Message(message_id=uuid4().hex, role=Role.USER, parts=(part,), metadata=metadata)


def check(schema: Mapping[str, Json], arguments: Mapping[str, Json]) -> None:
    """Raises `BadParams`, which says what is wrong with the arguments."""
    if wrong := json_schema.wrong(schema, dict(arguments)):
        raise BadParams(f"These arguments do not fit: {wrong}")


def tools_of(name: str, card: Card) -> dict[str, SkillTool]:
    """Returns the skills of an agent as tools, by their names. `name` is that of the agent, which
    the names begin with; empty if the ids of the skills are enough."""
    skills: Sequence[CardSkill] = card.skills
    if not skills:  # some dialects have no list of skills
        skills = (CardSkill(id="", name=card.name, description=card.description),)
    found: dict[str, SkillTool] = {}
    for skill in skills:
        found[_tool_name(name, skill.id or ("" if name else card.name), found)] = _tool(
            name, card, skill
        )
    return found


def prefix_of(name: str) -> str:
    """Returns what the names of an agent's tools begin with: its name, if that is not too long."""
    return name if len(name) <= MOST_PREFIX else f"{name[: MOST_PREFIX - 9]}-{_digest(name)}"


def _tool_name(name: str, skill: str, taken: Container[str]) -> str:
    """Returns the name of a tool as MCP and models accept it."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", skill).strip("_")
    if skill and not plain:
        plain = "skill"
    full = BETWEEN.join(filter(None, (prefix_of(name), plain)))
    if len(full) > MOST_CHARS or full in taken or full == ANSWER:
        full = f"{full[: MOST_CHARS - 9]}_{_digest(skill)}"  # the same in every list
    return full


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _tool(name: str, card: Card, skill: CardSkill) -> SkillTool:
    takes, _ = schemas_of(card, skill.id)
    # IAT writes an object without properties where a skill takes no arguments but the message.
    typed = isinstance(takes, dict) and takes.get("type") == "object" and takes.get("properties")
    words = [skill.description or skill.name]
    if name:
        words.append(f"Skill of the agent {card.name}.")
    if skill.examples:
        words.append("Examples: " + " | ".join(skill.examples[:3]))
    return SkillTool(
        title=skill.name,
        description="\n".join(words),
        schema=takes if typed else MESSAGE,
        skill=skill.id,
        takes_text=not typed,
    )
