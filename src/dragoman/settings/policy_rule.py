"""`[[policy]]`: what callers may do, rule by rule, and how mistakes in it are told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from dragoman.core.errors import ConfigError
from dragoman.core.operations import METHOD, NAMES


class PolicyRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[policy]]`. A list that is left out fits everything, and a name may end in `*`. The
    first rule that fits a call decides; a call that no rule fits is refused."""

    callers: tuple[str, ...] | None = None
    """Principals, such as `alice`, `sso:*` or `anonymous`."""
    tenants: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    skills: tuple[str, ...] | None = None
    """The ids of skills. Calls that are about no skill fit only `*`."""
    operations: tuple[str, ...] | None = None
    """By their names in A2A 1.0, for every dialect; `method:NAME` for methods beyond the
    protocol."""
    allow: bool = True
    calls_per_minute: Annotated[int, Meta(ge=0)] = 0
    """How often each caller may make calls that this rule allows; 0: as often as it likes."""


_LISTS = ("callers", "tenants", "agents", "skills", "operations")


def check_rules(path: Path, text: str, rules: object) -> None:
    """Raises `ConfigError`, which names the line, if something is wrong with the rules."""
    if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
        line = _line(text, 0, "")
        raise ConfigError(f"{path}:{line}: write [[policy]], in double brackets, for each rule.")
    for index, rule in enumerate(rules):
        if found := _problem(rule):
            key, what = found
            where = f"[[policy]] {key}" if key else "[[policy]]"
            raise ConfigError(f"{path}:{_line(text, index, key)}: {where}: {what}.")
    if rules and not any(rule.get("allow", True) for rule in rules):
        line = _line(text, len(rules) - 1, "")
        raise ConfigError(
            f"{path}:{line}: [[policy]]: every rule refuses, and a call that no rule fits is "
            "refused too: nobody could do anything. Add a last [[policy]] with allow = true."
        )


def _problem(rule: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns the key that is wrong, and what to write instead."""
    for key in rule:
        if key not in PolicyRule.__struct_fields__:
            known = PolicyRule.__struct_fields__
            return key, f"this is not a key here{_near(key, known)}; known are: {', '.join(known)}"
    for key, value in rule.items():
        if key in _LISTS and isinstance(value, str):
            return key, f'write a list: {key} = ["{value}"]'
        try:
            msgspec.convert({key: value}, PolicyRule)
        except msgspec.ValidationError as exc:
            return key, str(exc).partition(" - at ")[0]
    for key in _LISTS:
        for name in rule.get(key, ()):
            if what := _wrong_name(key, name):
                return key, what
        if rule.get(key) == []:
            return key, "an empty list fits nothing; leave it out to fit everything"
    if rule.get("calls_per_minute") and not rule.get("allow", True):
        return "calls_per_minute", "a rule that refuses allows no calls; delete it"
    return None


def _wrong_name(key: str, name: str) -> str:
    if "*" in name[:-1]:
        return f"'{name}': a * may only stand at the end"
    if key == "agents" and not re.fullmatch(r"[a-z0-9-]{1,63}\*?|\*", name):
        return f"'{name}' cannot be the name of an agent: a-z, 0-9 and -, at most 63 characters"
    if key == "operations" and not name.startswith(METHOD):
        start = name.removesuffix("*")
        fits = (each.startswith(start) if name != start else each == name for each in NAMES)
        if not any(fits):
            return (
                f"'{name}' is not an operation{_near(name, NAMES)}; known are: "
                f"{', '.join(NAMES)}, {METHOD}NAME"
            )
    return ""


def _near(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = nearest(name, known)
    return f"; did you mean `{near}`?" if near else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the known name that a misspelt one is nearest to; empty if none is near."""
    from difflib import get_close_matches  # only mistakes need it

    return next(iter(get_close_matches(name, list(known), 1)), "")


def _line(text: str, index: int, key: str) -> int:
    """Returns the line of a key in this rule, else of its header. tomllib does not tell."""
    header = re.compile(r"\s*\[+\s*\"?policy\"?\s*\]")
    word = re.compile(rf"\s*\"?{re.escape(key)}\"?\s*=") if key else None
    count, found = -1, 1
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            is_rule = header.match(line) is not None
            count += is_rule
            if is_rule and count == index:
                found = number
            elif count == index:
                break
        elif count == index and word is not None and word.match(line):
            return number
    return found
