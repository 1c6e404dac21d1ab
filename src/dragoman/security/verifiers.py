"""Verifies API keys, passwords, fixed tokens and certificates.

Secrets are held as keyed digests and looked up by them: the time a lookup takes says nothing about
a secret, since nobody outside can choose digests. Every look gives the caller's context, None when
there is no credential of this kind, or `Unauthenticated` when there is a wrong one.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote_plus

from dragoman.core.auth_schemes import (
    ApiKeys,
    Certificates,
    Grant,
    Known,
    Passwords,
    Secret,
    Tokens,
)
from dragoman.core.errors import ConfigError, Unauthenticated
from dragoman.core.peer import ANYONE, Context

LEAST_CHARS = {ApiKeys: 16, Tokens: 16, Passwords: 8}
"""The least length of secrets; shorter ones are refused at the start."""
MOST_CHARS = 8192
_KEY = secrets.token_bytes(32)

Headers = Mapping[str, str]
"""The headers of a request, their names in lower case."""


class Verifier(Protocol):
    """Authenticates callers by one security scheme."""

    challenge: str
    """The challenge in WWW-Authenticate; empty if HTTP has none for this scheme."""

    def authenticate(self, headers: Headers, target: str, certificate: str) -> Context | None:
        """Returns the caller that these credentials belong to, or None if there are none of this
        kind. Raises `Unauthenticated` if they are wrong."""


def digest(secret: str) -> bytes:
    """Returns a digest that stands for a secret, and is safe to keep and to look up."""
    told = secret.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(told, digest_size=32, key=_KEY).digest()


def read_secret(secret: Secret, where: str, least: int = 1) -> str:
    """Reads a secret from its variable or file. Raises `ConfigError`, which says which is wrong and
    never shows the value."""
    if bool(secret.env) == bool(secret.file):
        raise ConfigError(f'{where}: a secret is {{env = "X"}} or {{file = "path"}}, one of them.')
    if secret.env:
        found, source = os.environ.get(secret.env, ""), f"the variable {secret.env}"
    else:
        source = f"the file {secret.file}"
        try:
            found = Path(secret.file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "not text"
            raise ConfigError(f"{where}: {source} cannot be read: {why}.") from None
    if not found:
        raise ConfigError(f"{where}: {source} is not set or empty.")
    if len(found) < least:
        raise ConfigError(f"{where}: {source} is too short; give at least {least} characters.")
    return found


def caller(scheme: str, principal: str, grant: Grant) -> Context:
    """Returns the context of a caller, made once."""
    tenants = grant.tenants or ("",)
    return Context(
        principal=principal,
        tenant=tenants[0],
        tenants=tenants,
        scopes=grant.scopes,
        schemes=(scheme,),
    )


def _named(scheme: str, principal: str) -> None:
    # A colon is kept for those whom an issuer or a CA names: NAME:subject. So no outside name
    # can ever be that of someone the operator wrote down.
    if not re.fullmatch(r"[^\s:\x00-\x1f]{1,128}", principal) or principal == ANYONE.principal:
        raise ConfigError(
            f"[auth.{scheme}]: '{principal[:40]}' cannot be a principal: up to 128 characters "
            f"without spaces and colons, and not '{ANYONE.principal}'."
        )


def _by_digest(
    name: str, callers: Mapping[str, Known], least: int, spelled: Callable[[str, str], str]
) -> dict[bytes, Context]:
    if not callers:
        raise ConfigError(f"[auth.{name}] has no callers; nobody could come in.")
    found: dict[bytes, Context] = {}
    for principal, known in callers.items():
        _named(name, principal)
        where = f"[auth.{name}.callers.{principal}]"
        key = digest(spelled(principal, read_secret(known.secret, where, least)))
        if key in found:
            raise ConfigError(f"{where}: another caller has the same secret.")
        found[key] = caller(name, principal, known)
    return found


class KeyVerifier:
    """Verifies an API key in a header, the query or a cookie."""

    def __init__(self, name: str, scheme: ApiKeys, realm: str) -> None:
        self._callers = _by_digest(name, scheme.callers, LEAST_CHARS[ApiKeys], lambda _, key: key)
        self._find = _PLACES[scheme.location]
        self._name = scheme.name.lower() if scheme.location == "header" else scheme.name
        self.challenge = f'ApiKey realm="{realm}", in="{scheme.location}", name="{scheme.name}"'

    def authenticate(self, headers: Headers, target: str, certificate: str) -> Context | None:
        """Returns the caller, or None if there is no credential of this kind."""
        key = self._find(headers, target, self._name)
        return None if key is None else _known(self._callers, key)


class TokenVerifier:
    """Verifies a fixed token in `Authorization: Bearer`."""

    def __init__(self, name: str, scheme: Tokens, realm: str) -> None:
        self._callers = _by_digest(name, scheme.callers, LEAST_CHARS[Tokens], lambda _, key: key)
        self.challenge = f'Bearer realm="{realm}"'

    def authenticate(self, headers: Headers, target: str, certificate: str) -> Context | None:
        """Returns the caller, or None if there is no credential of this kind."""
        token = authorization(headers, "bearer")
        return None if token is None else _known(self._callers, token)


class PasswordVerifier:
    """Verifies `Authorization: Basic`. The name and the password are digested together."""

    def __init__(self, name: str, scheme: Passwords, realm: str) -> None:
        self._callers = _by_digest(
            name, scheme.callers, LEAST_CHARS[Passwords], lambda user, word: f"{user}:{word}"
        )
        self.challenge = f'Basic realm="{realm}", charset="UTF-8"'

    def authenticate(self, headers: Headers, target: str, certificate: str) -> Context | None:
        """Returns the caller, or None if there is no credential of this kind."""
        pair = authorization(headers, "basic")
        if pair is None:
            return None
        try:
            return _known(self._callers, b64decode(pair, validate=True).decode("utf-8"))
        except (NotBase64, ValueError):
            raise Unauthenticated() from None


class CertificateVerifier:
    """Finds the principal of a certificate that the TLS layer has verified."""

    challenge = ""

    def __init__(self, name: str, scheme: Certificates) -> None:
        self._callers: dict[str, Context] = {}
        for principal, held in scheme.callers.items():
            _named(name, principal)
            for said in held.names:
                if said in self._callers:
                    raise ConfigError(f"[auth.{name}]: two callers have the name '{said}'.")
                self._callers[said] = caller(name, principal, held)
        self._shared: Context | None = None
        if scheme.shared:
            _named(name, scheme.shared)
            self._shared = caller(name, scheme.shared, scheme.grant)
        if not self._callers and self._shared is None:
            raise ConfigError(f"[auth.{name}] needs callers, or `shared` for all holders together.")

    def authenticate(self, headers: Headers, target: str, certificate: str) -> Context | None:
        """Returns the caller that holds the certificate; the handshake has verified it."""
        return self._callers.get(certificate, self._shared)


def authorization(headers: Mapping[str, str], scheme: str) -> str | None:
    """Returns what follows the scheme in the Authorization header, if it is this scheme."""
    said = headers.get("authorization")
    if said is None:
        return None
    word, _, rest = said.partition(" ")
    return rest.strip() if word.lower() == scheme else None


def _known(callers: Mapping[bytes, Context], secret: str) -> Context:
    found = callers.get(digest(secret)) if len(secret) <= MOST_CHARS else None
    if found is None:
        raise Unauthenticated()
    return found


def _in_header(headers: Mapping[str, str], target: str, name: str) -> str | None:
    return headers.get(name)


def _in_query(headers: Mapping[str, str], target: str, name: str) -> str | None:
    for pair in target.partition("?")[2].split("&"):
        key, _, value = pair.partition("=")
        if unquote_plus(key) == name:
            return unquote_plus(value)
    return None


def _in_cookie(headers: Mapping[str, str], target: str, name: str) -> str | None:
    # HTTP/2 may split cookies over lines, which come here joined by commas (RFC 9113 §8.2.3).
    for pair in re.split(r"[;,]\s*", headers.get("cookie", "")):
        key, _, value = pair.partition("=")
        if key.strip() == name:
            return value.strip().strip('"')
    return None


_PLACES: dict[str, Callable[[Mapping[str, str], str, str], str | None]] = {
    "header": _in_header,
    "query": _in_query,
    "cookie": _in_cookie,
}
