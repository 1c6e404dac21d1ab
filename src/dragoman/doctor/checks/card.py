"""Checks the agent card: it is read before anything else, so a fault here costs the most.

The rules themselves are those of `dragoman card validate` (`dialects.a2a.cards.validate`), so that
both always agree; this table says which of them are checks, how much each one matters, and when a
card has nothing to check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.dialects.a2a.cards.validate import Problem, problems

from ..card_fields import dicts, interfaces, parts_of, required
from ..check import Broken, Level, check, given, need
from ..subject import AgentUnderTest

LOCAL = ("127.0.0.1", "localhost", "::1")


class CardRule(Struct, frozen=True):
    """One rule of `validate` as a check of the doctor."""

    rule: str
    says: str
    spec: str
    level: Level = Level.MUST
    applies: Callable[[AgentUnderTest], object] = lambda it: True
    otherwise: str = ""
    """Why there is nothing to check."""


def _capability(it: AgentUnderTest, name: str) -> Any:
    value = it.card.get("capabilities")
    return value.get(name) if isinstance(value, dict) else None


def _wanted(it: AgentUnderTest) -> set[str]:
    """The schemes that the card and its skills require."""
    wanted = set(required(it.card))
    for skill in dicts(it.card.get("skills")):
        wanted |= set(required(skill))
    return wanted


RULES = (
    CardRule("name", "The agent has a name.", "1.0 §4.4.1; 0.3 §5.5"),
    CardRule("description", "The agent is described.", "1.0 §4.4.1; 0.3 §5.5"),
    CardRule("version", "The agent's own version is given.", "1.0 §4.4.1; 0.3 §5.5"),
    CardRule(
        "interfaces",
        "At least one interface is declared, each with address and binding.",
        "1.0 §4.4.6; 0.3 §5.6.4",
    ),
    CardRule("addresses", "Every interface has an absolute address.", "1.0 §4.4.6; 0.3 §5.5.5"),
    CardRule(
        "bindings",
        "A binding is one of the three, or named by a URI.",
        "1.0 §4.4.6; 0.3 §3.2.4",
        Level.SHOULD,
    ),
    CardRule(
        "protocol-version",
        "Every interface says which version it speaks: Major.Minor.",
        "1.0 §3.6.1; 0.3 §5.5",
    ),
    CardRule("twice", "No interface is listed twice.", "1.0 §4.4.6; 0.3 §5.6.4", Level.SHOULD),
    CardRule(
        "preferred",
        "0.3: preferredTransport is given for the main url.",
        "0.3 §5.6.4",
        applies=lambda it: it.old,
        otherwise="the card has no part for 0.3",
    ),
    CardRule(
        "main-listed",
        "0.3: additionalInterfaces names the main url with its transport too.",
        "0.3 §5.6.4",
        Level.SHOULD,
        applies=lambda it: it.old and it.card.get("additionalInterfaces"),
        otherwise="no additionalInterfaces",
    ),
    CardRule(
        "conflict",
        "0.3: no address is declared both for gRPC and for HTTP.",
        "0.3 §5.6.4",
        applies=lambda it: it.old,
        otherwise="the card has no part for 0.3",
    ),
    CardRule(
        "capabilities",
        "capabilities is an object whose flags are booleans.",
        "1.0 §4.4.3; 0.3 §5.5.2",
    ),
    CardRule(
        "extensions",
        "Every extension has a URI.",
        "1.0 §4.4.4; 0.3 §5.5.2.1",
        applies=lambda it: _capability(it, "extensions"),
        otherwise="no extensions",
    ),
    CardRule(
        "modes",
        "Input and output modes are given, as arrays of strings.",
        "1.0 §4.4.1; 0.3 §5.5",
    ),
    CardRule("media-types", "Modes are media types.", "1.0 §4.4.1", Level.SHOULD),
    CardRule(
        "skills",
        "Every skill has id, name, description and tags.",
        "1.0 §4.4.5; 0.3 §5.5.4",
        # 1.0 is written by protobuf, which leaves an empty list out.
        applies=lambda it: it.card.get("skills") is not None or it.old,
        otherwise="no skills are listed",
    ),
    CardRule("skill-ids", "No two skills share an id.", "1.0 §4.4.5; 0.3 §5.5.4"),
    CardRule(
        "provider",
        "A provider is named with organization and url.",
        "1.0 §4.4.2; 0.3 §5.5.1",
        applies=lambda it: it.card.get("provider") is not None,
        otherwise="no provider",
    ),
    CardRule(
        "links",
        "documentationUrl and iconUrl are absolute addresses.",
        "1.0 §4.4.1; 0.3 §5.5",
        Level.SHOULD,
        applies=lambda it: it.card.get("documentationUrl") or it.card.get("iconUrl"),
        otherwise="neither is given",
    ),
    CardRule(
        "schemes",
        "Every security scheme is one that the spec knows, with its members.",
        "1.0 §4.5; 0.3 §5.5.3",
        applies=lambda it: it.card.get("securitySchemes"),
        otherwise="no security schemes",
    ),
    CardRule(
        "security",
        "Every requirement names schemes that the card declares.",
        "1.0 §4.4.1; 0.3 §5.5.3",
        applies=_wanted,
        otherwise="no security requirements",
    ),
    CardRule(
        "signatures",
        "Every signature is base64url with a protected header that names alg and kid.",
        "1.0 §8.4; 0.3 §5.5.6",
        applies=lambda it: it.card.get("signatures"),
        otherwise="the card is not signed",
    ),
    CardRule("secrets", "The card holds no credentials.", "1.0 §7.4; 0.3 §5.4"),
)


def _checked(rule: CardRule) -> Callable[[AgentUnderTest], None]:
    def run(it: AgentUnderTest) -> None:
        given(rule.applies(it), rule.otherwise)
        found = [each for each in problems(it.card) if each.rule == rule.rule]
        if found:
            raise Broken("; ".join(map(_sentence, found)))

    return run


def _sentence(problem: Problem) -> str:
    """`skills is missing`, but `url: '/a2a' is no address of JSONRPC`."""
    plain = problem.text[0].islower()
    return f"{problem.field} {problem.text}" if plain else str(problem)


for _rule in RULES:
    check(f"card.{_rule.rule}", _rule.says, _rule.spec, _rule.level, once=True)(_checked(_rule))


@check(
    "card.examples",
    "Skills give examples, so that a stranger knows what to say.",
    "1.0 §4.4.5; 0.3 §5.5.4",
    Level.MAY,
    once=True,
)
def examples(it: AgentUnderTest) -> None:
    listed = dicts(it.card.get("skills"))
    given(listed, "no skills")
    need(any(skill.get("examples") for skill in listed), "no skill has an example")


@check("card.https", "Addresses on the network use TLS.", "1.0 §7.1; 0.3 §4.1", once=True)
def https(it: AgentUnderTest) -> None:
    for url, _, _ in interfaces(it.card):
        parts = parts_of(url)
        safe = parts.scheme != "http" or parts.hostname in LOCAL
        need(safe, f"{url} is not https")
