"""Checks a card against the rules of its version: A2A 0.3 §5.5 and §5.6.4, A2A 1.0 §4.4 and §8.

The rules look at the document and not at our own Card, so they judge cards of others as ours. Each
problem names its rule: `dragoman card validate` lists all problems, the start of a server stops at
errors, and each `card.*` check of the doctor reports the problems of one rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.core.model import Json

from .secret_scan import leaks

MEDIA = re.compile(r"(?i)(\*|[a-z0-9!#$&^_.+-]+)/(\*|[a-z0-9!#$&^_.+-]+)(\s*;\s*\S+)*")
_OLD = frozenset(("text", "data", "file", "*"))
"""The names of modes in 0.1, which some cards still use."""
_HOST_PORT = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_WEB = ("http", "https")
_SCHEMES = {"JSONRPC": _WEB, "HTTP+JSON": _WEB, "GRPC": (*_WEB, "grpc", "grpcs", "dns")}
"""The schemes that the addresses of core bindings may have; those of other bindings may have
any."""


class Problem(Struct, frozen=True):
    """One rule that a card breaks, or, as a warning, a recommendation that it does not follow."""

    field: str
    text: str
    warning: bool = False
    rule: str = ""
    """The name of the broken rule, such as `skill-ids`; empty for a problem that no version
    mentions."""

    def __str__(self) -> str:
        return f"{self.field}: {self.text}" if self.field else self.text


Found = Iterator[Problem]


def problems(document: Json) -> list[Problem]:
    """Returns all problems of a card, errors first."""
    if not isinstance(document, dict):
        return [Problem("", "A card is a JSON object")]
    found = [problem for rule in _RULES for problem in rule(document)]
    found += [
        Problem(field, f"looks like {what}, and everyone may read a card", rule="secrets")
        for field, what in leaks(document)
    ]
    return sorted(dict.fromkeys(found), key=lambda problem: problem.warning)


def _basics(card: dict[str, Any]) -> Found:
    for name in ("name", "version"):
        yield from _text(card, name, rule=name)
    yield from _text(card, "description", empty=True, rule="description")
    if not isinstance(card.get("capabilities"), dict):
        yield Problem("capabilities", "is missing", rule="capabilities")
    for name in ("streaming", "pushNotifications", "stateTransitionHistory", "extendedAgentCard"):
        yield from _flag(_object(card.get("capabilities")), name, "capabilities.", "capabilities")
    yield from _flag(card, "supportsAuthenticatedExtendedCard")
    for name in ("documentationUrl", "iconUrl"):
        url = card.get(name)
        if url and not _web(url) and not (name == "iconUrl" and str(url).startswith("data:image/")):
            yield Problem(name, f"'{url}' is not a web address", rule="links")
    provider = card.get("provider")
    if provider is not None:
        yield from _text(_object(provider), "organization", "provider.", rule="provider")
        yield from _text(_object(provider), "url", "provider.", empty=True, rule="provider")
        if (url := _object(provider).get("url")) and not _web(url):
            yield Problem("provider.url", f"'{url}' is not a web address", rule="provider")


def _modes(card: dict[str, Any]) -> Found:
    for name in ("defaultInputModes", "defaultOutputModes"):
        if not card.get(name):
            yield Problem(name, "lists no media type", rule="modes")
        yield from _media(card.get(name), name, "modes")


def _skills(card: dict[str, Any]) -> Found:
    skills = card.get("skills")
    if skills is None:
        # 1.0 is written by protobuf, which leaves out an empty list.
        new = "supportedInterfaces" in card and "url" not in card
        yield Problem("skills", "is missing", warning=new, rule="skills")
        return
    if not isinstance(skills, list):
        yield Problem("skills", "is not a list", rule="skills")
        return
    seen: set[str] = set()
    for number, skill in enumerate(map(_object, skills)):
        where = f"skills[{number}]"
        for name in ("id", "name", "description"):
            yield from _text(skill, name, f"{where}.", empty=name == "description", rule="skills")
        id = skill.get("id")
        if isinstance(id, str):
            if id in seen:
                yield Problem(f"{where}.id", f"'{id}' is the id of two skills", rule="skill-ids")
            seen.add(id)
        if not isinstance(skill.get("tags"), list):
            yield Problem(f"{where}.tags", "is missing", rule="skills")
        elif not skill["tags"]:
            yield Problem(f"{where}.tags", "is empty", warning=True)
        for name in ("inputModes", "outputModes"):
            yield from _media(skill.get(name), f"{where}.{name}")


def _interfaces(card: dict[str, Any]) -> Found:
    """Checks §5.6.4: at least one transport, no duplicates and no conflicts."""
    new, old = card.get("supportedInterfaces"), card.get("additionalInterfaces")
    if not new and not card.get("url"):
        text = "The card names no address where the agent is reached"
        yield Problem("supportedInterfaces", text, rule="interfaces")
    yield from _listed(new, "supportedInterfaces", ("url", "protocolBinding", "protocolVersion"))
    yield from _listed(old, "additionalInterfaces", ("url", "transport"))


def _listed(listed: Json, where: str, names: tuple[str, ...]) -> Found:
    if listed is not None and not isinstance(listed, list):
        yield Problem(where, "is not a list", rule="interfaces")
        return
    seen: set[tuple[str, ...]] = set()
    for number, each in enumerate(map(_object, listed or [])):
        place = f"{where}[{number}]"
        for name in names:
            rule = "protocol-version" if name == "protocolVersion" else "interfaces"
            yield from _text(each, name, f"{place}.", rule=rule)
        yield from _version(each, f"{place}.")
        url, binding = str(each.get(names[0]) or ""), str(each.get(names[1]) or "")
        yield from _address(url, binding, f"{place}.")
        key = (url, binding, str(each.get("protocolVersion")), str(each.get("tenant") or ""))
        if key in seen:
            yield Problem(place, f"{binding} at {url} is listed twice", rule="twice")
        seen.add(key)


def _address(url: str, binding: str, where: str = "") -> Found:
    if url and not _reaches(url, binding):
        yield Problem(f"{where}url", f"'{url}' is no address of {binding}", rule="addresses")
    if binding and binding not in _SCHEMES and ":" not in binding:
        text = f"has a binding that is neither one of {', '.join(_SCHEMES)} nor a URI: '{binding}'"
        yield Problem(where.rstrip("."), text, warning=True, rule="bindings")


def _conflicts(card: dict[str, Any]) -> Found:
    """Checks §5.6.2: bindings may share an address, but HTTP and gRPC can hardly share the same
    one."""
    main = [(card.get("url"), card.get("preferredTransport") or "JSONRPC")]
    for where, name, rule, first in (
        ("supportedInterfaces", "protocolBinding", "", []),
        ("additionalInterfaces", "transport", "conflict", main if card.get("url") else []),
    ):
        carried = {_bare(url): binding == "GRPC" for url, binding in first}
        listed = card.get(where)
        for number, each in enumerate(listed if isinstance(listed, list) else ()):
            url, grpc = _object(each).get("url"), _object(each).get(name) == "GRPC"
            if url and carried.setdefault(_bare(url), grpc) != grpc:
                text = "is the address of gRPC and of HTTP"
                yield Problem(f"{where}[{number}].url", text, warning=True, rule=rule)


def _bare(url: Any) -> str:
    return str(url).rstrip("/")


def _main(card: dict[str, Any]) -> Found:
    """Checks the main address of 0.3: it names its transport, and the list of all interfaces
    repeats it."""
    url = card.get("url")
    if url is None:
        if not card.get("supportedInterfaces") and card.get("additionalInterfaces"):
            yield Problem("url", "is missing", rule="interfaces")
        return
    preferred = card.get("preferredTransport")
    if not isinstance(preferred, str) or not preferred:
        yield Problem("preferredTransport", "is missing", rule="preferred")
        preferred = "JSONRPC"
    if not isinstance(url, str) or not url:
        yield Problem("url", f"'{url}' is no address of {preferred}", rule="interfaces")
    else:
        yield from _address(url, preferred)
    if not card.get("protocolVersion"):
        yield Problem("protocolVersion", "is missing", rule="protocol-version")
    yield from _version(card)
    others = card.get("additionalInterfaces")
    listed = [_object(each) for each in others] if isinstance(others, list) else []
    there = [each.get("transport") for each in listed if each.get("url") == url]
    if there and preferred not in there:
        text = f"says that {url} is not {preferred}"
        yield Problem("additionalInterfaces", text, rule="main-listed")
    elif listed and not there:
        text = f"lacks the main address, {url}"
        yield Problem("additionalInterfaces", text, warning=True, rule="main-listed")


def _security(card: dict[str, Any]) -> Found:
    schemes = card.get("securitySchemes")
    if schemes is not None and not isinstance(schemes, dict):
        yield Problem("securitySchemes", "is not an object", rule="schemes")
    kinds: dict[str, str] = {}
    for name, scheme in _object(schemes).items():
        kinds[name] = _kind_of(_object(scheme))
        yield from _scheme(scheme, kinds[name], f"securitySchemes.{name}")
    skills = card.get("skills")
    holders = [("", card)]
    holders += [
        (f"skills[{number}].", _object(skill))
        for number, skill in enumerate(skills if isinstance(skills, list) else ())
    ]
    for where, holder in holders:
        for name in ("securityRequirements", "security"):
            listed = holder.get(name)
            for number, needed in enumerate(listed if isinstance(listed, list) else ()):
                inner = _object(needed).get("schemes")
                asked = inner if isinstance(inner, dict) else _object(needed)
                place = f"{where}{name}[{number}]"
                for scheme, scopes in sorted(asked.items()):
                    if scheme not in kinds:
                        text = f"'{scheme}' is not one of the security schemes"
                        yield Problem(place, text, rule="security")
                    elif kinds[scheme] not in ("", *_SCOPED) and _scopes(scopes):
                        # In OpenAPI, where these requirements come from, the list is empty for
                        # other schemes.
                        what = f"has scopes, which go with {' and '.join(_SCOPED)} only"
                        yield Problem(f"{place}.{scheme}", what, rule="security")


_TYPES = {
    "apiKey": ("apiKeySecurityScheme", ("in", "name")),
    "http": ("httpAuthSecurityScheme", ("scheme",)),
    "oauth2": ("oauth2SecurityScheme", ("flows",)),
    "openIdConnect": ("openIdConnectSecurityScheme", ("openIdConnectUrl",)),
    "mutualTLS": ("mtlsSecurityScheme", ()),
}
"""The types of schemes in 0.3, the corresponding members in 1.0, and their required members."""
_SCOPED = ("oauth2", "openIdConnect")
_PLACES = ("header", "query", "cookie")


def _kind_of(scheme: dict[str, Any]) -> str:
    """Returns the type of a scheme in 0.3, from either spelling, or an empty text."""
    held = next((type for type, (member, _) in _TYPES.items() if member in scheme), "")
    value = scheme.get("type")
    return held or (value if isinstance(value, str) and value in _TYPES else "")


def _scheme(scheme: Any, kind: str, where: str) -> Found:
    if not isinstance(scheme, dict):
        yield Problem(where, "is not an object", rule="schemes")
        return
    if "type" in scheme and scheme["type"] not in _TYPES:
        text = f"'{scheme['type']}' is none of {', '.join(_TYPES)}"
        yield Problem(f"{where}.type", text, rule="schemes")
    elif not kind:
        yield Problem(where, f"is of no type: {', '.join(_TYPES)}", rule="schemes")
    if len([member for member, _ in _TYPES.values() if member in scheme]) > 1:
        yield Problem(where, "is of several types", rule="schemes")
    if not kind:
        return
    member, needed = _TYPES[kind]
    forms = [(scheme, where, needed)] if "type" in scheme else []
    if member in scheme:
        # 1.0 has another name for the location of a key.
        new = tuple("location" if name == "in" else name for name in needed)
        forms.append((_object(scheme[member]), f"{where}.{member}", new))
    for holder, place, names in forms:
        for name in names:
            value = holder.get(name)
            if not value:
                yield Problem(f"{place}.{name}", "is missing", rule="schemes")
            elif name in ("in", "location") and value not in _PLACES:
                text = f"'{value}' is none of {', '.join(_PLACES)}"
                yield Problem(f"{place}.{name}", text, rule="schemes")


def _scopes(scopes: Any) -> bool:
    return bool(_object(scopes).get("list") if isinstance(scopes, dict) else scopes)


def _extensions(card: dict[str, Any]) -> Found:
    listed = _object(card.get("capabilities")).get("extensions")
    seen: set[str] = set()
    for number, each in enumerate(listed if isinstance(listed, list) else ()):
        where = f"capabilities.extensions[{number}]"
        yield from _text(_object(each), "uri", f"{where}.", rule="extensions")
        yield from _flag(_object(each), "required", f"{where}.")
        uri = str(_object(each).get("uri") or "")
        if uri and ":" not in uri:
            text = f"'{uri}' is not a URI"
            yield Problem(f"{where}.uri", text, warning=True, rule="extensions")
        if uri in seen:
            yield Problem(where, f"{uri} is listed twice")
        seen.add(uri)


def _signatures(card: dict[str, Any]) -> Found:
    listed = card.get("signatures")
    if not isinstance(listed, list) or not listed:
        return
    from .signatures import Refused, claim_in  # what it needs is loaded only for signed cards

    for number, each in enumerate(listed):
        try:
            claim_in(each)
        except Refused as exc:
            yield Problem(f"signatures[{number}]", str(exc), rule="signatures")


_RULES: tuple[Callable[[dict[str, Any]], Found], ...] = (
    *(
        _basics,
        _interfaces,
        _conflicts,
        _main,
        _modes,
        _skills,
        _security,
        _extensions,
        _signatures,
    ),
)


def _text(
    holder: dict[str, Any], name: str, where: str = "", *, empty: bool = False, rule: str
) -> Found:
    value = holder.get(name)
    if not isinstance(value, str):
        text = "is missing" if value is None else "is not a text"
        yield Problem(f"{where}{name}", text, rule=rule)
    elif not value.strip():
        yield Problem(f"{where}{name}", "is empty", warning=empty, rule=rule)


def _flag(holder: dict[str, Any], name: str, where: str = "", rule: str = "") -> Found:
    if holder.get(name) is not None and not isinstance(holder[name], bool):
        text = f"'{holder[name]}' is neither true nor false"
        yield Problem(f"{where}{name}", text, rule=rule)


def _version(holder: dict[str, Any], where: str = "") -> Found:
    value = holder.get("protocolVersion")
    if isinstance(value, str) and value and not _VERSION.fullmatch(value):
        text = f"'{value}' is not a version such as 1.0"
        yield Problem(f"{where}protocolVersion", text, rule="protocol-version")


def _media(listed: Json, where: str, rule: str = "") -> Found:
    if listed is not None and not isinstance(listed, list):
        yield Problem(where, "is not a list", rule=rule)
        return
    for number, mode in enumerate(listed or []):
        place = f"{where}[{number}]"
        if not isinstance(mode, str):
            yield Problem(place, "is not a text", rule=rule)
        elif not MEDIA.fullmatch(mode):
            text = f"'{mode}' is not a media type such as text/plain"
            # The names of 0.1 are still in use, so the doctor does not report them.
            old = mode in _OLD
            yield Problem(place, text, warning=old, rule="" if old else "media-types")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _web(url: Any) -> bool:
    return isinstance(url, str) and _absolute(url, _WEB)


def _reaches(url: str, binding: str) -> bool:
    schemes = _SCHEMES.get(binding)
    if schemes is None:
        return bool(url.strip())
    return _absolute(url, schemes) or (binding == "GRPC" and bool(_HOST_PORT.fullmatch(url)))


def _absolute(url: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    named = bool(parts.hostname) or (parts.scheme == "dns" and bool(parts.path))
    return parts.scheme.lower() in schemes and named and not re.search(r"[\s<>]", url)
