"""Typed parameters of a skill: taken from a message, checked, and published as JSON Schemas."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_origin

import msgspec

from dragoman.core.errors import AgentMisbehaved, BadParams, ConfigError
from dragoman.core.model import Data, Json, Message, Part
from dragoman.core.nesting import unfit

from .models import Mode, decode_model, schema_hook


class Params:
    """The parameters and the result of a skill, read once from its signature."""

    __slots__ = ("_arguments", "_returns", "_words", "names")

    def __init__(self, skill: str, function: Callable[..., Any]) -> None:
        try:
            signature = inspect.signature(function, eval_str=True)
        except (NameError, TypeError, ValueError) as exc:
            raise ConfigError(f"Skill `{skill}`: its annotations cannot be read: {exc}") from exc
        given = list(signature.parameters.values())
        if not given:
            raise ConfigError(
                f"Skill `{skill}` takes no parameters; its first one is the turn: "
                f"def {function.__name__}(turn: Turn)"
            )
        fields: list[tuple[str, Any, Any]] = []
        for parameter in given[1:]:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ConfigError(f"Skill `{skill}`: *args and **kwargs have no schema; name them")
            fields.append((parameter.name, *_field(parameter)))
        self.names = tuple(name for name, *_ in fields)
        # Words: str parameters that may take the message's text, required ones first.
        words = [(name, default) for name, kind, default in fields if _is_text(kind)]
        self._words = [name for name, default in words if _missing(default)]
        if not self._words:
            self._words = [name for name, _ in words]
        self._arguments = (
            msgspec.defstruct(
                f"{skill}-arguments", fields, kw_only=True, forbid_unknown_fields=True
            )
            if fields
            else None
        )
        returns = signature.return_annotation
        self._returns = returns if _has_schema(returns) else None
        if self._arguments is not None and not _has_schema(self._arguments):
            raise ConfigError(f"Skill `{skill}`: a parameter's type has no JSON Schema")

    def read(self, message: Message) -> dict[str, Any]:
        """Returns the arguments that a message holds. Raises `BadParams`, which says what is wrong
        and where."""
        if self._arguments is None:
            return {}
        found = next(
            (p.value for p in message.parts if isinstance(p, Data) and isinstance(p.value, dict)),
            None,
        )
        text = message.text.strip()
        if found is None and text.startswith("{") and not _unfit(text):
            try:
                found = msgspec.json.decode(text)
                text = ""
            except msgspec.DecodeError:
                found = None
        given: dict[str, Json] = dict(found or {})
        missing = [name for name in self._words if name not in given]
        if text and len(missing) == 1:
            given[missing[0]] = text
        return self.take(given)

    def take(self, given: Json) -> dict[str, Any]:
        """Returns the arguments that an object holds. Raises `BadParams`, which says what is wrong
        and where."""
        if self._arguments is None:
            return {}
        try:
            arguments = msgspec.convert(given, self._arguments, dec_hook=decode_model)
        except msgspec.ValidationError as exc:
            raise BadParams(str(exc)) from exc
        return {name: getattr(arguments, name) for name in self.names}

    def check_result(self, value: object) -> None:
        """Raises `AgentMisbehaved` if the value is not what the skill's annotation promises."""
        if self._returns is None:
            return
        try:
            msgspec.convert(value, self._returns, dec_hook=decode_model)
        except msgspec.ValidationError as exc:
            raise AgentMisbehaved(f"The skill's result breaks its annotation: {exc}") from exc

    @property
    def input_schema(self) -> Json:
        """Returns the JSON Schema of the arguments, or None if there are none."""
        return None if self._arguments is None else _schema(self._arguments, "validation")

    @property
    def output_schema(self) -> Json:
        """Returns the JSON Schema of the result, or None if the annotation has none."""
        return None if self._returns is None else _schema(self._returns, "serialization")


def _field(parameter: inspect.Parameter) -> tuple[Any, Any]:
    kind = Any if parameter.annotation is parameter.empty else parameter.annotation
    default = parameter.default
    if default is parameter.empty:
        return kind, msgspec.NODEFAULT
    if isinstance(default, list | dict | set):  # Structs refuse shared mutable defaults
        return kind, msgspec.field(default_factory=default.copy)
    return kind, default


def _is_text(kind: Any) -> bool:
    return kind is str or (get_origin(kind) is Annotated and kind.__origin__ is str)


def _missing(default: Any) -> bool:
    return default is msgspec.NODEFAULT


def _schema(kind: Any, mode: Mode) -> Json:
    """Returns a self-contained schema: the definition replaces msgspec's `$ref` to it."""
    inner: dict[str, Json] = {}
    (schema,), definitions = msgspec.json.schema_components(
        [kind], schema_hook=schema_hook(mode, inner), ref_template="#/$defs/{name}"
    )
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in definitions:
        schema = definitions.pop(name)
    definitions |= inner
    return {**schema, "$defs": definitions} if definitions else schema


def _has_schema(kind: Any) -> bool:
    """Returns whether a type can be written as JSON Schema; parts, paths and generators cannot."""
    if kind in (inspect.Signature.empty, None, type(None), Any, object):
        return False
    try:
        _schema(kind, "validation")
    except (TypeError, NameError, NotImplementedError, msgspec.MsgspecError):
        return False
    # Parts are Structs too, but content, not an author's data.
    return f"'{Part.__module__}." not in repr(msgspec.inspect.type_info(kind))


def _unfit(text: str) -> bool:
    return bool(unfit(text.encode("utf-8", "replace")))
