"""JSON Schemas: those that cards publish for skills, and whether values are valid against them.

The schemas come from the other side, so they are treated as untrusted data: nothing that they
refer to is fetched, and patterns run in an engine without exponential backtracking.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from .card import Card
from .errors import BadParams
from .extensions import SKILLS
from .model import Json

MOST_CHARS = 300
"""The maximum length of an explanation, in characters."""
MOST_KEPT = 65_536
"""The size of the largest schema whose validator is kept, in bytes."""

_encode = msgspec.json.Encoder(order="deterministic").encode


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


def wrong(schema: Json, value: Json) -> str:
    """Returns what is wrong with a value and where, or an empty text if it is valid. Raises
    `BadParams` if the schema itself is not valid."""
    if schema is None:
        return ""
    for error in _validator_for(schema).iter_errors(value):
        path = "".join(f"[{step!r}]" for step in error.instance_path)
        return f"{str(error.message)[:MOST_CHARS]}{f' (at {path})' if path else ''}"
    return ""


def check(schema: Json) -> None:
    """Raises `BadParams` if this is not a JSON Schema."""
    if schema is not None:
        _validator_for(schema)


def _validator_for(schema: Json) -> Any:
    """Returns the validator of a schema. That of a large one is not kept: callers bring schemas of
    their own, and all that are kept must fit into memory."""
    encoded = _encode(schema)
    return _kept_validator(encoded) if len(encoded) <= MOST_KEPT else _validator(encoded)


def _validator(schema: bytes) -> Any:
    import jsonschema_rs  # three megabytes, which agents without schemas need not carry

    try:
        return jsonschema_rs.validator_for(
            msgspec.json.decode(schema),
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except jsonschema_rs.ValidationError as exc:
        raise BadParams(f"This is no JSON Schema: {exc.message}"[:MOST_CHARS]) from None
    except (TypeError, ValueError, jsonschema_rs.ReferencingError) as exc:
        raise BadParams(f"This JSON Schema cannot be used: {exc}"[:MOST_CHARS]) from None


_kept_validator = lru_cache(256)(_validator)
