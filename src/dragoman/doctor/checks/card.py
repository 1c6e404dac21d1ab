"""The agent card: it is read before anything else, so a fault here costs the most."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ..case import Patient
from ..check import Broken, Level, check, given, need

CORE = ("JSONRPC", "GRPC", "HTTP+JSON")
LOCAL = ("127.0.0.1", "localhost", "::1")
SCHEMES = {
    "apiKeySecurityScheme": ("location", "name"),
    "httpAuthSecurityScheme": ("scheme",),
    "oauth2SecurityScheme": ("flows",),
    "openIdConnectSecurityScheme": ("openIdConnectUrl",),
    "mtlsSecurityScheme": (),
}
OLD_SCHEMES = {
    "apiKey": ("in", "name"),
    "http": ("scheme",),
    "oauth2": ("flows",),
    "openIdConnect": ("openIdConnectUrl",),
    "mutualTLS": (),
}
_MEDIA = re.compile(r"[\w.+*-]+/[\w.+*-]+(;.*)?|text|file|data")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")


def interfaces(card: dict[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Address, binding and version of everything the card declares."""
    listed = card.get("supportedInterfaces")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            yield one.get("url"), one.get("protocolBinding"), one.get("protocolVersion")
    if "url" in card:
        old = card.get("protocolVersion")
        yield card["url"], card.get("preferredTransport", "JSONRPC"), old
        more = card.get("additionalInterfaces")
        for one in more if isinstance(more, list) else ():
            if isinstance(one, dict):
                yield one.get("url"), one.get("transport"), old


@check("card.name", "The agent has a name.", "1.0 §4.4.1; 0.3 §5.5", once=True)
def name(it: Patient) -> None:
    need(_filled(it.card.get("name")), f"name is {it.card.get('name')!r}")


@check("card.description", "The agent is described.", "1.0 §4.4.1; 0.3 §5.5", once=True)
def description(it: Patient) -> None:
    need(_filled(it.card.get("description")), f"description is {it.card.get('description')!r}")


@check("card.version", "The agent's own version is given.", "1.0 §4.4.1; 0.3 §5.5", once=True)
def version(it: Patient) -> None:
    need(_filled(it.card.get("version")), f"version is {it.card.get('version')!r}")


@check(
    "card.interfaces",
    "At least one interface is declared, each with address and binding.",
    "1.0 §4.4.6; 0.3 §5.6.4",
    once=True,
)
def declares(it: Patient) -> None:
    listed = list(interfaces(it.card))
    need(listed, "no interface is declared")
    for url, binding, _ in listed:
        need(
            _filled(url) and _filled(binding), f"an interface has url {url!r}, binding {binding!r}"
        )


@check(
    "card.addresses",
    "Every interface has an absolute address.",
    "1.0 §4.4.6; 0.3 §5.5.5",
    once=True,
)
def addresses(it: Patient) -> None:
    for url, binding, _ in interfaces(it.card):
        if binding == "GRPC" and isinstance(url, str) and re.fullmatch(r"[^/\s]+:\d+", url):
            continue
        need(_absolute(url), f"{url!r} is no absolute address")


@check(
    "card.bindings",
    "A binding is one of the three, or named by a URI.",
    "1.0 §4.4.6; 0.3 §3.2.4",
    Level.SHOULD,
    once=True,
)
def bindings(it: Patient) -> None:
    for _, binding, _ in interfaces(it.card):
        need(binding in CORE or ":" in str(binding), f"{binding!r} is no known binding")


@check(
    "card.protocol-version",
    "Every interface says which version it speaks: Major.Minor.",
    "1.0 §3.6.1; 0.3 §5.5",
    once=True,
)
def protocol_version(it: Patient) -> None:
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
def twice(it: Patient) -> None:
    for member in ("supportedInterfaces", "additionalInterfaces"):
        listed = it.card.get(member)
        seen = [json.dumps(one, sort_keys=True) for one in _list(listed)]
        need(len(seen) == len(set(seen)), f"{member} names one more than once")


@check(
    "card.preferred",
    "0.3: preferredTransport is given for the main url.",
    "0.3 §5.6.4",
    once=True,
)
def preferred(it: Patient) -> None:
    given(it.old, "the card has no part for 0.3")
    need(_filled(it.card.get("preferredTransport")), "preferredTransport is missing")


@check(
    "card.main-listed",
    "0.3: additionalInterfaces names the main url with its transport too.",
    "0.3 §5.6.4",
    Level.SHOULD,
    once=True,
)
def main_listed(it: Patient) -> None:
    more = it.card.get("additionalInterfaces")
    given(it.old and more, "no additionalInterfaces")
    main = (it.card.get("url"), it.card.get("preferredTransport"))
    listed = [(one.get("url"), one.get("transport")) for one in _dicts(more)]
    need(main in listed, f"{main} is not among them")


@check(
    "card.conflict",
    "0.3: no address is declared both for gRPC and for HTTP.",
    "0.3 §5.6.4",
    once=True,
)
def conflict(it: Patient) -> None:
    # JSON-RPC and REST may share an address, as the spec's own example does; gRPC is another port
    # or path in every implementation.
    given(it.old, "the card has no part for 0.3")
    more = _dicts(it.card.get("additionalInterfaces"))
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
def capabilities(it: Patient) -> None:
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
def extensions(it: Patient) -> None:
    value = it.card.get("capabilities")
    listed = value.get("extensions") if isinstance(value, dict) else None
    given(listed, "no extensions")
    for one in _list(listed):
        uri = one.get("uri") if isinstance(one, dict) else None
        need(_filled(uri) and ":" in str(uri), f"an extension has uri {uri!r}")


@check(
    "card.modes",
    "Input and output modes are given, as arrays of strings.",
    "1.0 §4.4.1; 0.3 §5.5",
    once=True,
)
def modes(it: Patient) -> None:
    for member in ("defaultInputModes", "defaultOutputModes"):
        value = it.card.get(member)
        right = isinstance(value, list) and value and all(map(_filled, value))
        need(right, f"{member} is {value!r}")


@check("card.media-types", "Modes are media types.", "1.0 §4.4.1", Level.SHOULD, once=True)
def media_types(it: Patient) -> None:
    for member in ("defaultInputModes", "defaultOutputModes"):
        for mode in _list(it.card.get(member)):
            need(_MEDIA.fullmatch(str(mode)), f"{member} holds {mode!r}")


@check(
    "card.skills",
    "Every skill has id, name, description and tags.",
    "1.0 §4.4.5; 0.3 §5.5.4",
    once=True,
)
def skills(it: Patient) -> None:
    value = it.card.get("skills")
    need(isinstance(value, list), f"skills is {type(value).__name__}")
    for skill in _list(value):
        need(isinstance(skill, dict), "a skill is not an object")
        for member in ("id", "name", "description"):
            need(_filled(skill.get(member)), f"skill {skill.get('id')!r} has no {member}")
        tags = skill.get("tags")
        need(isinstance(tags, list), f"skill {skill.get('id')!r} has no tags")


@check("card.skill-ids", "No two skills share an id.", "1.0 §4.4.5; 0.3 §5.5.4", once=True)
def skill_ids(it: Patient) -> None:
    ids = [skill.get("id") for skill in _dicts(it.card.get("skills"))]
    need(len(ids) == len(set(map(str, ids))), f"the ids are {ids}")


@check(
    "card.examples",
    "Skills give examples, so that a stranger knows what to say.",
    "1.0 §4.4.5; 0.3 §5.5.4",
    Level.MAY,
    once=True,
)
def examples(it: Patient) -> None:
    listed = _dicts(it.card.get("skills"))
    given(listed, "no skills")
    need(any(skill.get("examples") for skill in listed), "no skill has an example")


@check(
    "card.schemes",
    "Every security scheme is one that the spec knows, with its members.",
    "1.0 §4.5; 0.3 §5.5.3",
    once=True,
)
def schemes(it: Patient) -> None:
    value = it.card.get("securitySchemes")
    given(value, "no security schemes")
    need(isinstance(value, dict), "securitySchemes is not an object")
    for label, scheme in (value or {}).items():
        need(isinstance(scheme, dict), f"{label} is not an object")
        held = [kind for kind in SCHEMES if kind in scheme]
        if held:
            need(len(held) == 1, f"{label} is {held}")
            _has(scheme[held[0]], SCHEMES[held[0]], label)
        elif not it.new or "type" in scheme:
            need(scheme.get("type") in OLD_SCHEMES, f"{label} has type {scheme.get('type')!r}")
            _has(scheme, OLD_SCHEMES[scheme["type"]], label)
        else:
            raise Broken(f"{label} is none of {', '.join(SCHEMES)}")


@check(
    "card.security",
    "Every requirement names schemes that the card declares.",
    "1.0 §4.4.1; 0.3 §5.5.3",
    once=True,
)
def security(it: Patient) -> None:
    known = it.card.get("securitySchemes") or {}
    wanted = set(required(it.card))
    for skill in _dicts(it.card.get("skills")):
        wanted |= set(required(skill))
    given(wanted, "no security requirements")
    need(wanted <= set(known), f"{sorted(wanted - set(known))} is not declared")


def required(holder: dict[str, Any]) -> Iterator[str]:
    """The names of the schemes that a card or skill asks for, in both spellings."""
    for one in _dicts(holder.get("securityRequirements")):
        named = one.get("schemes")
        yield from named if isinstance(named, dict) else ()
    for one in _dicts(holder.get("security")):
        yield from one


@check(
    "card.signatures",
    "Every signature is base64url with a protected header that names alg and kid.",
    "1.0 §8.4; 0.3 §5.5.6",
    once=True,
)
def signatures(it: Patient) -> None:
    listed = it.card.get("signatures")
    given(listed, "the card is not signed")
    for one in _dicts(listed) or [{}]:
        try:
            head = json.loads(_decoded(str(one["protected"])))
            need(_decoded(str(one["signature"])), "a signature is empty")
            need(head.get("alg") and head["alg"] != "none", "a signature names no alg")
            need(head.get("kid"), "a signature names no kid")
        except (KeyError, ValueError, AttributeError) as exc:
            raise Broken(f"a signature cannot be read: {exc!r}") from None


@check("card.https", "Addresses on the network use TLS.", "1.0 §7.1; 0.3 §4.1", once=True)
def https(it: Patient) -> None:
    for url, _, _ in interfaces(it.card):
        parts = _split(url)
        safe = parts.scheme != "http" or parts.hostname in LOCAL
        need(safe, f"{url} is not https")


@check(
    "card.provider",
    "A provider is named with organization and url.",
    "1.0 §4.4.2; 0.3 §5.5.1",
    once=True,
)
def provider(it: Patient) -> None:
    value = it.card.get("provider")
    given(value is not None, "no provider")
    right = isinstance(value, dict) and _filled(value.get("organization")) and value.get("url")
    need(right, f"provider is {value!r}")


@check(
    "card.links",
    "documentationUrl and iconUrl are absolute addresses.",
    "1.0 §4.4.1; 0.3 §5.5",
    Level.SHOULD,
    once=True,
)
def links(it: Patient) -> None:
    held = [it.card[key] for key in ("documentationUrl", "iconUrl") if it.card.get(key)]
    given(held, "neither is given")
    for url in held:
        need(_absolute(url), f"{url!r} is no absolute address")


@check(
    "card.secrets",
    "The card holds no credentials.",
    "1.0 §7.4; 0.3 §5.4",
    once=True,
)
def secrets(it: Patient) -> None:
    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                shown = key in ("credentials", "clientSecret", "password") and _filled(item)
                need(not shown, f"{path}.{key} holds something")
                walk(item, f"{path}.{key}")
        elif isinstance(value, list):
            for item in value:
                walk(item, path)
        elif isinstance(value, str) and re.match(r"https?://[^/@\s]+:[^/@\s]+@", value):
            raise Broken(f"{path} holds a password")

    walk(it.card, "card")


def _filled(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _split(url: Any) -> SplitResult:
    try:
        return urlsplit(str(url))
    except ValueError:  # half a bracket
        return urlsplit("")


def _absolute(url: Any) -> bool:
    parts = _split(url)
    return isinstance(url, str) and bool(parts.scheme and parts.netloc)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _has(scheme: Any, members: tuple[str, ...], label: str) -> None:
    for member in members:
        need(isinstance(scheme, dict) and scheme.get(member), f"{label} has no {member}")


def _decoded(text: str) -> bytes:
    need(re.fullmatch(r"[\w-]+", text), "a signature is not base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
