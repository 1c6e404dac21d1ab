"""What the card says about security: schemes, signatures, TLS; and that it gives nothing away."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from typing import Any

from ..card_fields import dicts, filled, interfaces, parts_of, required
from ..check import Broken, check, given, need
from ..subject import AgentUnderTest

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


@check(
    "card.schemes",
    "Every security scheme is one that the spec knows, with its members.",
    "1.0 §4.5; 0.3 §5.5.3",
    once=True,
)
def schemes(it: AgentUnderTest) -> None:
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
def security(it: AgentUnderTest) -> None:
    known = it.card.get("securitySchemes") or {}
    wanted = set(required(it.card))
    for skill in dicts(it.card.get("skills")):
        wanted |= set(required(skill))
    given(wanted, "no security requirements")
    need(wanted <= set(known), f"{sorted(wanted - set(known))} is not declared")


@check(
    "card.signatures",
    "Every signature is base64url with a protected header that names alg and kid.",
    "1.0 §8.4; 0.3 §5.5.6",
    once=True,
)
def signatures(it: AgentUnderTest) -> None:
    listed = it.card.get("signatures")
    given(listed, "the card is not signed")
    for one in dicts(listed) or [{}]:
        try:
            head = json.loads(_decoded(str(one["protected"])))
            need(_decoded(str(one["signature"])), "a signature is empty")
            need(head.get("alg") and head["alg"] != "none", "a signature names no alg")
            need(head.get("kid"), "a signature names no kid")
        except (KeyError, ValueError, AttributeError) as exc:
            raise Broken(f"a signature cannot be read: {exc!r}") from None


@check("card.https", "Addresses on the network use TLS.", "1.0 §7.1; 0.3 §4.1", once=True)
def https(it: AgentUnderTest) -> None:
    for url, _, _ in interfaces(it.card):
        parts = parts_of(url)
        safe = parts.scheme != "http" or parts.hostname in LOCAL
        need(safe, f"{url} is not https")


@check(
    "card.secrets",
    "The card holds no credentials.",
    "1.0 §7.4; 0.3 §5.4",
    once=True,
)
def secrets(it: AgentUnderTest) -> None:
    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                shown = key in ("credentials", "clientSecret", "password") and filled(item)
                need(not shown, f"{path}.{key} holds something")
                walk(item, f"{path}.{key}")
        elif isinstance(value, list):
            for item in value:
                walk(item, path)
        elif isinstance(value, str) and re.match(r"https?://[^/@\s]+:[^/@\s]+@", value):
            raise Broken(f"{path} holds a password")

    walk(it.card, "card")


def _has(scheme: Any, members: tuple[str, ...], label: str) -> None:
    for member in members:
        need(isinstance(scheme, dict) and scheme.get(member), f"{label} has no {member}")


def _decoded(text: str) -> bytes:
    need(re.fullmatch(r"[\w-]+", text), "a signature is not base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
