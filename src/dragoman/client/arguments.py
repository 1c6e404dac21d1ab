"""Validates arguments and results of skills against the schemas that an agent publishes.

The schemas come from the agent and are not trusted: references are not fetched, and patterns run in
an engine with bounded time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dragoman.core.errors import BadParams, PeerMisbehaved
from dragoman.core.model import AnyPart, Data, Json, Text


def check_arguments(schema: Json, arguments: dict[str, Json], skill: str) -> None:
    """Raises `BadParams`, which names the first invalid argument."""
    wrong = _wrong(schema, arguments)
    if wrong is not None:
        path, message = wrong
        raise BadParams(f"{skill}: {message}", field=path)


def fitting(schema: Json, parts: Sequence[AnyPart], skill: str) -> Json:
    """Returns the result in these parts: one value, or several. Raises `PeerMisbehaved` if it does
    not match the schema.

    Data takes precedence over text. A result of text alone is accepted without validation: adjacent
    texts of an artifact are one text (DESIGN §4.1), so a list of strings looks like a string.
    """
    values = [part.value for part in parts if isinstance(part, Data)]
    text = "".join(part.text for part in parts if isinstance(part, Text))
    all_of_them = [
        part.value if isinstance(part, Data) else part.text
        for part in parts
        if isinstance(part, Data | Text)
    ]
    candidates = [values[0] if len(values) == 1 else values] if values else [text]
    for value in (*candidates, all_of_them):
        if _wrong(schema, value) is None:
            return value
    if not values:
        return text
    wrong = _wrong(schema, candidates[0])
    raise PeerMisbehaved(f"{skill} gave what its card does not say: {wrong[1] if wrong else ''}")


def _wrong(schema: Json, value: Json) -> tuple[str, str] | None:
    if not isinstance(schema, dict | bool):
        return None
    import jsonschema_rs  # three megabytes, which callers of agents without schemas need not carry

    try:
        validator: Any = jsonschema_rs.validator_for(
            schema,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
        for error in validator.iter_errors(value):
            return ".".join(map(str, error.instance_path)), str(error.message)[:500]
    except jsonschema_rs.ValidationError as exc:
        raise PeerMisbehaved(f"The card has a schema that is none: {exc.message}"[:300]) from None
    except (ValueError, jsonschema_rs.ReferencingError) as exc:
        raise PeerMisbehaved(f"The card has a schema that cannot be used: {exc}"[:300]) from None
    return None
