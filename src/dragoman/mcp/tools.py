"""Skills as MCP tools: their names, descriptions and schemas, and the message that a call becomes.

Everything here is plain data, so that it needs no `mcp` package.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from uuid import uuid4

from msgspec import Struct

from dragoman.client.arguments import schemas_of
from dragoman.core import json_schema
from dragoman.core.card import Card, CardSkill
from dragoman.core.errors import BadParams
from dragoman.core.model import AnyPart, Data, Json, Message, Role, Text
from dragoman.core.peer import Context, Peer

MOST_CHARS = 64
"""The length of a tool's name. MCP allows 128, but many models only 64."""
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

    name: str
    title: str
    description: str
    schema: dict[str, Json]
    """The JSON Schema of its arguments."""
    skill: str
    """The id of the skill; empty for an agent that lists none."""
    takes_text: bool
    """Whether the arguments are the text of a message, since the skill publishes no schema."""
    streaming: bool
    """Whether the agent streams."""

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


def tools_of(name: str, card: Card) -> list[SkillTool]:
    """Returns the skills of an agent as tools. `name` is what their names begin with; empty if the
    ids of the skills are enough."""
    skills: Sequence[CardSkill] = card.skills
    if not skills:  # some dialects have no list of skills
        skills = (CardSkill(id="", name=card.name, description=card.description),)
    return [_tool(name, card, skill) for skill in skills]


def _tool(name: str, card: Card, skill: CardSkill) -> SkillTool:
    takes, _ = schemas_of(card, skill.id)
    typed = isinstance(takes, dict) and takes.get("type") == "object"
    words = [skill.description or skill.name]
    if name:
        words.append(f"Skill of the agent {card.name}.")
    if skill.examples:
        words.append("Examples: " + " | ".join(skill.examples[:3]))
    return SkillTool(
        name="__".join(filter(None, (name, skill.id))) or card.name,
        title=skill.name,
        description="\n".join(words),
        schema=takes if typed else MESSAGE,
        skill=skill.id,
        takes_text=not typed,
        streaming=card.streaming,
    )


def tool_names(names: Iterable[str]) -> list[str]:
    """Returns the names as MCP and models accept them, each only once, in the same order."""
    taken = {ANSWER}
    found = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "skill"
        if len(plain) > MOST_CHARS or plain in taken:
            # The digest keeps the name the same in every list.
            plain = f"{plain[: MOST_CHARS - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        taken.add(plain)
        found.append(plain)
    return found
