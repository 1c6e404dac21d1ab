"""The agent card: it is read before anything else, so a fault here costs the most."""

from __future__ import annotations

import json
import re

from ..card_fields import absolute, dicts, filled, interfaces, items
from ..check import Level, check, given, need
from ..subject import AgentUnderTest

CORE = ("JSONRPC", "GRPC", "HTTP+JSON")
_MEDIA = re.compile(r"[\w.+*-]+/[\w.+*-]+(;.*)?|text|file|data")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")


@check("card.name", "The agent has a name.", "1.0 §4.4.1; 0.3 §5.5", once=True)
def name(it: AgentUnderTest) -> None:
    need(filled(it.card.get("name")), f"name is {it.card.get('name')!r}")


@check("card.description", "The agent is described.", "1.0 §4.4.1; 0.3 §5.5", once=True)
def description(it: AgentUnderTest) -> None:
    need(filled(it.card.get("description")), f"description is {it.card.get('description')!r}")


@check("card.version", "The agent's own version is given.", "1.0 §4.4.1; 0.3 §5.5", once=True)
def version(it: AgentUnderTest) -> None:
    need(filled(it.card.get("version")), f"version is {it.card.get('version')!r}")


@check(
    "card.interfaces",
    "At least one interface is declared, each with address and binding.",
    "1.0 §4.4.6; 0.3 §5.6.4",
    once=True,
)
def declares(it: AgentUnderTest) -> None:
    listed = list(interfaces(it.card))
    need(listed, "no interface is declared")
    for url, binding, _ in listed:
        need(filled(url) and filled(binding), f"an interface has url {url!r}, binding {binding!r}")


@check(
    "card.addresses",
    "Every interface has an absolute address.",
    "1.0 §4.4.6; 0.3 §5.5.5",
    once=True,
)
def addresses(it: AgentUnderTest) -> None:
    for url, binding, _ in interfaces(it.card):
        if binding == "GRPC" and isinstance(url, str) and re.fullmatch(r"[^/\s]+:\d+", url):
            continue
        need(absolute(url), f"{url!r} is no absolute address")


@check(
    "card.bindings",
    "A binding is one of the three, or named by a URI.",
    "1.0 §4.4.6; 0.3 §3.2.4",
    Level.SHOULD,
    once=True,
)
def bindings(it: AgentUnderTest) -> None:
    for _, binding, _ in interfaces(it.card):
        need(binding in CORE or ":" in str(binding), f"{binding!r} is no known binding")


@check(
    "card.protocol-version",
    "Every interface says which version it speaks: Major.Minor.",
    "1.0 §3.6.1; 0.3 §5.5",
    once=True,
)
def protocol_version(it: AgentUnderTest) -> None:
    for url, binding, spoken in interfaces(it.card):
        right = isinstance(spoken, str) and _VERSION.fullmatch(spoken)
        need(right, f"{binding} at {url} has version {spoken!r}")


@check(
    "card.twice",
    "No interface is listed twice.",
    "1.0 §4.4.6; 0.3 §5.6.4",
    Level.SHOULD,
    once=True,
)
def twice(it: AgentUnderTest) -> None:
    for member in ("supportedInterfaces", "additionalInterfaces"):
        listed = it.card.get(member)
        seen = [json.dumps(one, sort_keys=True) for one in items(listed)]
        need(len(seen) == len(set(seen)), f"{member} names one more than once")


@check(
    "card.preferred",
    "0.3: preferredTransport is given for the main url.",
    "0.3 §5.6.4",
    once=True,
)
def preferred(it: AgentUnderTest) -> None:
    given(it.old, "the card has no part for 0.3")
    need(filled(it.card.get("preferredTransport")), "preferredTransport is missing")


@check(
    "card.main-listed",
    "0.3: additionalInterfaces names the main url with its transport too.",
    "0.3 §5.6.4",
    Level.SHOULD,
    once=True,
)
def main_listed(it: AgentUnderTest) -> None:
    more = it.card.get("additionalInterfaces")
    given(it.old and more, "no additionalInterfaces")
    main = (it.card.get("url"), it.card.get("preferredTransport"))
    listed = [(one.get("url"), one.get("transport")) for one in dicts(more)]
    need(main in listed, f"{main} is not among them")


@check(
    "card.conflict",
    "0.3: no address is declared both for gRPC and for HTTP.",
    "0.3 §5.6.4",
    once=True,
)
def conflict(it: AgentUnderTest) -> None:
    # JSON-RPC and REST may share an address, as the spec's own example does; gRPC is another port
    # or path in every implementation.
    given(it.old, "the card has no part for 0.3")
    more = dicts(it.card.get("additionalInterfaces"))
    seen = {str(one.get("url")).rstrip("/") for one in more if one.get("transport") == "GRPC"}
    others = [it.card.get("url")] if it.card.get("preferredTransport") != "GRPC" else []
    others += [one.get("url") for one in more if one.get("transport") != "GRPC"]
    both = seen & {str(url).rstrip("/") for url in others}
    need(not both, f"{sorted(both)} is declared for both")


@check(
    "card.capabilities",
    "capabilities is an object whose flags are booleans.",
    "1.0 §4.4.3; 0.3 §5.5.2",
    once=True,
)
def capabilities(it: AgentUnderTest) -> None:
    value = it.card.get("capabilities")
    need(isinstance(value, dict), f"capabilities is {value!r}")
    for flag in ("streaming", "pushNotifications", "extendedAgentCard", "stateTransitionHistory"):
        held = (value or {}).get(flag, False)
        need(held is None or isinstance(held, bool), f"{flag} is {held!r}")


@check(
    "card.extensions",
    "Every extension has a URI.",
    "1.0 §4.4.4; 0.3 §5.5.2.1",
    once=True,
)
def extensions(it: AgentUnderTest) -> None:
    value = it.card.get("capabilities")
    listed = value.get("extensions") if isinstance(value, dict) else None
    given(listed, "no extensions")
    for one in items(listed):
        uri = one.get("uri") if isinstance(one, dict) else None
        need(filled(uri) and ":" in str(uri), f"an extension has uri {uri!r}")


@check(
    "card.modes",
    "Input and output modes are given, as arrays of strings.",
    "1.0 §4.4.1; 0.3 §5.5",
    once=True,
)
def modes(it: AgentUnderTest) -> None:
    for member in ("defaultInputModes", "defaultOutputModes"):
        value = it.card.get(member)
        right = isinstance(value, list) and value and all(map(filled, value))
        need(right, f"{member} is {value!r}")


@check("card.media-types", "Modes are media types.", "1.0 §4.4.1", Level.SHOULD, once=True)
def media_types(it: AgentUnderTest) -> None:
    for member in ("defaultInputModes", "defaultOutputModes"):
        for mode in items(it.card.get(member)):
            need(_MEDIA.fullmatch(str(mode)), f"{member} holds {mode!r}")


@check(
    "card.skills",
    "Every skill has id, name, description and tags.",
    "1.0 §4.4.5; 0.3 §5.5.4",
    once=True,
)
def skills(it: AgentUnderTest) -> None:
    value = it.card.get("skills")
    # 1.0 is written by protobuf, which leaves an empty list out.
    given(value is not None or it.old, "no skills are listed")
    need(value is not None, "skills is missing")
    need(isinstance(value, list), f"skills is {type(value).__name__}, not an array")
    for skill in items(value):
        need(isinstance(skill, dict), "a skill is not an object")
        for member in ("id", "name", "description"):
            need(filled(skill.get(member)), f"skill {skill.get('id')!r} has no {member}")
        tags = skill.get("tags")
        need(isinstance(tags, list), f"skill {skill.get('id')!r} has no tags")


@check("card.skill-ids", "No two skills share an id.", "1.0 §4.4.5; 0.3 §5.5.4", once=True)
def skill_ids(it: AgentUnderTest) -> None:
    ids = [skill.get("id") for skill in dicts(it.card.get("skills"))]
    need(len(ids) == len(set(map(str, ids))), f"the ids are {ids}")


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


@check(
    "card.provider",
    "A provider is named with organization and url.",
    "1.0 §4.4.2; 0.3 §5.5.1",
    once=True,
)
def provider(it: AgentUnderTest) -> None:
    value = it.card.get("provider")
    given(value is not None, "no provider")
    right = isinstance(value, dict) and filled(value.get("organization")) and value.get("url")
    need(right, f"provider is {value!r}")


@check(
    "card.links",
    "documentationUrl and iconUrl are absolute addresses.",
    "1.0 §4.4.1; 0.3 §5.5",
    Level.SHOULD,
    once=True,
)
def links(it: AgentUnderTest) -> None:
    held = [it.card[key] for key in ("documentationUrl", "iconUrl") if it.card.get(key)]
    given(held, "neither is given")
    for url in held:
        need(absolute(url), f"{url!r} is no absolute address")
