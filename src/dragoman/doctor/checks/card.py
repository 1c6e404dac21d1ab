"""Checks the agent card. Clients read it before anything else, so mistakes in it cost the most.

The rules are those of `dragoman card validate` (`dialects.a2a.cards.validate`), so that both always
agree. This table says which of them are checks, at which level, and when they do not apply.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.dialects.a2a.cards.validate import Problem, problems

from ..card_fields import dicts, interfaces, parts_of
from ..check import Broken, Level, check, given, need
from ..subject import AgentUnderTest

LOCAL = ("127.0.0.1", "localhost", "::1")


class CardRule(Struct, frozen=True):
    """One rule of `validate` as a check of the doctor."""

    rule: str
    says: str
    spec: str
    level: Level = Level.MUST
    needs: tuple[str, ...] = ()
    """Members of the card; without any of them there is nothing to check."""
    old: bool = False
    """Whether the rule is one of 0.3, so that a card of 1.0 alone has nothing to check."""

    def check(self, it: AgentUnderTest) -> None:
        """Raises `Broken` if the card breaks this rule."""
        given(it.old or not self.old, "the card has no part for 0.3")
        here = not self.needs or any(_holds(it.card, path) for path in self.needs)
        given(here, f"the card has no {' or '.join(self.needs)}")
        found = [each for each in problems(it.card) if each.rule == self.rule]
        if found:
            raise Broken("; ".join(map(_sentence, found)))


REQUIRED = tuple(
    f"{where}{member}"
    for where in ("", "skills.*.")
    for member in ("securityRequirements", "security")
)
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
        "A binding is one of the three core ones, or a URI.",
        "1.0 §4.4.6; 0.3 §3.2.4",
        Level.SHOULD,
    ),
    CardRule(
        "protocol-version",
        "Every interface has a protocol version: Major.Minor.",
        "1.0 §3.6.1; 0.3 §5.5",
    ),
    CardRule("twice", "No interface is listed twice.", "1.0 §4.4.6; 0.3 §5.6.4", Level.SHOULD),
    CardRule(
        "preferred",
        "0.3: preferredTransport is given for the main url.",
        "0.3 §5.6.4",
        old=True,
    ),
    CardRule(
        "main-listed",
        "0.3: additionalInterfaces names the main url with its transport too.",
        "0.3 §5.6.4",
        Level.SHOULD,
        needs=("additionalInterfaces",),
        old=True,
    ),
    CardRule(
        "conflict",
        "0.3: no address is declared both for gRPC and for HTTP.",
        "0.3 §5.6.4",
        old=True,
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
        needs=("capabilities.extensions",),
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
        needs=("skills", "url"),  # protobuf, which writes cards of 1.0, omits an empty list
    ),
    CardRule("skill-ids", "No two skills share an id.", "1.0 §4.4.5; 0.3 §5.5.4"),
    CardRule(
        "provider",
        "A provider is named with organization and url.",
        "1.0 §4.4.2; 0.3 §5.5.1",
        needs=("provider",),
    ),
    CardRule(
        "links",
        "documentationUrl and iconUrl are absolute addresses.",
        "1.0 §4.4.1; 0.3 §5.5",
        Level.SHOULD,
        needs=("documentationUrl", "iconUrl"),
    ),
    CardRule(
        "schemes",
        "Every security scheme is one of the specification, with its members.",
        "1.0 §4.5; 0.3 §5.5.3",
        needs=("securitySchemes",),
    ),
    CardRule(
        "security",
        "Every requirement names schemes that the card declares.",
        "1.0 §4.4.1; 0.3 §5.5.3",
        needs=REQUIRED,
    ),
    CardRule(
        "signatures",
        "Every signature is base64url with a protected header that names alg and kid.",
        "1.0 §8.4; 0.3 §5.5.6",
        needs=("signatures",),
    ),
    CardRule("secrets", "The card holds no credentials.", "1.0 §7.4; 0.3 §5.4"),
)


def _holds(value: Any, path: str) -> bool:
    """Returns whether the card has a value at this path; `*` means any element of a list."""
    if not path:
        return bool(value)
    name, _, rest = path.partition(".")
    if name == "*":
        return any(_holds(each, rest) for each in value) if isinstance(value, list) else False
    return _holds(value.get(name), rest) if isinstance(value, dict) else False


def _sentence(problem: Problem) -> str:
    """Returns a problem as a sentence: `skills is missing`, or `url: '/a2a' is no address of
    JSONRPC`."""
    plain = problem.text[0].islower()
    return f"{problem.field} {problem.text}" if plain else str(problem)


for _rule in RULES:
    check(f"card.{_rule.rule}", _rule.spec, _rule.level, once=True, says=_rule.says)(_rule.check)


@check("card.examples", "1.0 §4.4.5; 0.3 §5.5.4", Level.MAY, once=True)
def examples(it: AgentUnderTest) -> None:
    """Skills have examples of what to ask."""
    listed = dicts(it.card.get("skills"))
    given(listed, "no skills")
    need(any(skill.get("examples") for skill in listed), "no skill has an example")


@check("card.https", "1.0 §7.1; 0.3 §4.1", once=True)
def https(it: AgentUnderTest) -> None:
    """Addresses on the network use TLS."""
    for url, _, _ in interfaces(it.card):
        parts = parts_of(url)
        safe = parts.scheme != "http" or parts.hostname in LOCAL
        need(safe, f"{url} is not https")
