"""Pydantic models as parameters and results of skills.

msgspec reads and writes Structs, dataclasses, TypedDicts and attrs classes by itself. For a
Pydantic model it asks the functions here, which let the model do the work. A model is recognised by
its methods, so Pydantic is never imported by us: whoever uses a model has imported it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from dragoman.core.model import Json

Mode = Literal["validation", "serialization"]
"""Whether a schema describes what is read or what is written; they differ for defaults."""
MOST_ERRORS = 3
"""The number of mistakes in a value that are named."""


def is_model(value: object) -> bool:
    """Returns whether this is a Pydantic model (v2), or an instance of one."""
    return hasattr(value, "__pydantic_validator__") and hasattr(value, "model_validate_json")


def decode_model(kind: type, value: Any) -> Any:
    """Returns the value as an instance of a model; msgspec calls it for types that it does not
    know. Raises `ValueError`, which says what is wrong and where."""
    if not is_model(kind) or isinstance(value, kind):
        return value  # msgspec refuses it unless it is an instance
    model: Any = kind
    try:
        # The value came as JSON. So dates and the like are text, which a strict model accepts only
        # from JSON.
        return model.model_validate_json(msgspec.json.encode(value))
    except ValueError as exc:
        raise ValueError(_explained(exc)) from exc


def encode_model(value: Any) -> Json:
    """Returns the plain data of an instance of a model."""
    return value.model_dump(mode="json", by_alias=True)


def schema_hook(mode: Mode, definitions: dict[str, Json]) -> Callable[[type], dict[str, Any]]:
    """Returns a function that gives msgspec the schema of a model. The definitions that the schema
    refers to are added to `definitions`."""

    def schema(kind: type) -> dict[str, Any]:
        if not is_model(kind):  # this error tells msgspec that we have none
            raise NotImplementedError(f"{kind.__name__} has no schema")
        model: Any = kind
        # Two models may have inner models of one name.
        prefix = f"{kind.__name__}."
        found: dict[str, Any] = model.model_json_schema(
            mode=mode, by_alias=True, ref_template=f"#/$defs/{prefix}{{model}}"
        )
        for name, inner in found.pop("$defs", {}).items():
            definitions[prefix + name] = inner
        return found

    return schema


def _explained(error: Any) -> str:
    """Returns the mistakes in a value without the value itself."""
    try:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    except AttributeError:  # it is raised by the author's own validator
        return str(error)
    told = []
    for each in found[:MOST_ERRORS]:
        where = ".".join(map(str, each["loc"]))
        told.append(f"{where}: {each['msg']}" if where else str(each["msg"]))
    return "; ".join(told)
