"""The JSON Schemas of skills, as the cards of agents publish them (docs/extensions/skills.md)."""

from __future__ import annotations

from .card import Card
from .errors import BadParams
from .extensions import SKILLS
from .model import Json


def schemas_of(card: Card, skill: str) -> tuple[Json, Json]:
    """Returns the input and the output schema of a skill, each None if the card has none. Raises
    `BadParams` if there is no such skill."""
    if card.skills and skill not in (known := [each.id for each in card.skills]):
        raise BadParams(f"There is no skill {skill!r}; there are: {', '.join(known)}")
    for extension in card.extensions:
        if extension.uri == SKILLS:
            schemas = (extension.params or {}).get("schemas")
            found = schemas.get(skill) if isinstance(schemas, dict) else None
            if isinstance(found, dict):
                return found.get("input"), found.get("output")
    return None, None
