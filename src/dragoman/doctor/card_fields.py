"""Reads what a card declares without trusting it: members may be missing or of the wrong type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, urlsplit

from dragoman.dialects.a2a.cards.documents import version_in


def interfaces(card: dict[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the address, binding and version of every interface that the card declares."""
    for one in dicts(card.get("supportedInterfaces")):
        yield one.get("url"), one.get("protocolBinding"), one.get("protocolVersion")
    if "url" in card:
        old = card.get("protocolVersion")
        yield card["url"], card.get("preferredTransport", "JSONRPC"), old
        for one in dicts(card.get("additionalInterfaces")):
            yield one.get("url"), one.get("transport"), old


def spoken(card: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields the same with the version that our client would use there."""
    listed = len(dicts(card.get("supportedInterfaces")))
    for number, (url, binding, version) in enumerate(interfaces(card)):
        if isinstance(url, str):
            said = str(version) if version is not None else None
            yield url, str(binding), version_in(said, listed=number < listed)


def tenant_at(card: dict[str, Any], url: str, binding: str) -> str:
    """Returns the tenant that requests to this interface name; only those of 1.0 can name one."""
    for one in dicts(card.get("supportedInterfaces")):
        named = one.get("tenant")
        if (one.get("url"), one.get("protocolBinding")) == (url, binding) and isinstance(
            named, str
        ):
            return named
    return ""


def required(holder: dict[str, Any]) -> Iterator[str]:
    """Yields the names of the schemes that a card or skill requires, in both spellings."""
    for one in dicts(holder.get("securityRequirements")):
        named = one.get("schemes")
        yield from named if isinstance(named, dict) else ()
    for one in dicts(holder.get("security")):
        yield from one


def header_hint(card: dict[str, Any]) -> str:
    """Returns the option with the header of the first scheme that the card requires or declares.

    Both spellings of a scheme are read: 1.0 names its kind by a member, 0.3 by `type`.
    """
    schemes = card.get("securitySchemes")
    declared = schemes if isinstance(schemes, dict) else {}
    for name in (*required(card), *declared):
        header = _header(declared.get(name))
        if header:
            return f"--header '{header}'"
    return "--header 'NAME: {VARIABLE}' (its card does not say which)"


def _header(scheme: Any) -> str:
    if not isinstance(scheme, dict):
        return ""
    kinds = {"apiKeySecurityScheme": "apiKey", "httpAuthSecurityScheme": "http"}
    named = next((key for key in scheme if key.endswith("SecurityScheme")), "")
    inner = scheme.get(named)
    fields = inner if isinstance(inner, dict) else scheme
    kind = kinds.get(named) or named.removesuffix("SecurityScheme") or scheme.get("type")
    if kind == "apiKey":
        place = fields.get("location") or fields.get("in")
        return f"{fields.get('name')}: {{KEY}}" if place == "header" else ""
    if kind == "http" and str(fields.get("scheme")).lower() != "bearer":
        return f"Authorization: {str(fields.get('scheme')).capitalize()} {{CREDENTIALS}}"
    if kind in ("http", "oauth2", "openIdConnect"):
        return "Authorization: Bearer {TOKEN}"
    return ""


def parts_of(url: Any) -> SplitResult:
    """Returns the parts of an address, which are all empty if it is not one."""
    try:
        return urlsplit(str(url))
    except ValueError:  # such as an unclosed bracket
        return urlsplit("")


def items(value: Any) -> list[Any]:
    """Returns the members of an array, or none if it is not an array."""
    return value if isinstance(value, list) else []


def dicts(value: Any) -> list[dict[str, Any]]:
    """Returns the members of an array that are objects."""
    return [one for one in items(value) if isinstance(one, dict)]
