"""The keys that sign our card: files that only we may read, and the public set of them.

The newest key signs. Older ones stay in the set for as long as their files are named, so that cards
which readers still keep go on to hold. To rotate: make a key beside the others, start again, and
take the old one away when no cache can hold its cards any more.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwk
from joserfc.errors import JoseError
from msgspec import Struct

from dragoman.core.card import Card
from dragoman.core.errors import ConfigError
from dragoman.dialects.a2a.cards import signatures
from dragoman.dialects.a2a.cards.canonical import Uncanonical
from dragoman.dialects.a2a.cards.signatures import Key, Refused
from dragoman.net.http.asgi import Handler, Header, Receive, Scope, Send, answer, headers_in
from dragoman.settings import Signing

from .route_policy import Policy, policy

PATH = "/.well-known/jwks.json"
MAX_AGE = 300
OTHERS = 0o027
"""The rights that a key file must not give: any to everyone, and writing to the group."""
ENDINGS = (".jwk", ".pem")
"""The suffixes of the files in a folder that are keys."""
RSA_BITS = 3072
MEDIA: Header = (b"content-type", b"application/jwk-set+json")


class SigningKey(Struct, frozen=True):
    """A key of ours, and the time since when we have it."""

    key: Key
    made: float
    path: Path


def new_key(alg: str, now: float) -> dict[str, Any]:
    """Makes a private key as a JWK, named by its thumbprint."""
    makers: dict[str, Callable[[], Any]] = {
        "ES256": lambda: jwk.ECKey.generate_key("P-256"),
        "EdDSA": lambda: jwk.OKPKey.generate_key("Ed25519"),
        "RS256": lambda: jwk.RSAKey.generate_key(RSA_BITS),
    }
    made = makers[alg]()
    return {
        **made.as_dict(private=True),
        "kid": made.thumbprint(),
        "alg": alg,
        "use": "sig",
        "iat": round(now, 3),
    }


def save(path: Path, key: Mapping[str, Any]) -> None:
    """Writes a key to a new file that only we may read."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists; a key is never written over.") from None
    except OSError as exc:
        raise ConfigError(f"{path} cannot be written: {exc.strerror}.") from None
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(key, file, indent=2)
        file.write("\n")


def jwks_in(path: Path) -> list[dict[str, Any]]:
    """Returns the keys in a file, which is a JWK, a key set or PEM. Raises `ConfigError` if there
    are none."""
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.") from None
    if raw.lstrip().startswith(b"-----BEGIN"):
        return [_from_pem(path, raw)]
    try:
        found = msgspec.json.decode(raw)
    except msgspec.DecodeError as exc:
        raise ConfigError(f"{path} is neither a JWK, a key set nor PEM: {exc}") from None
    listed = found.get("keys", [found]) if isinstance(found, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise ConfigError(f"{path} is neither a JWK, a key set nor PEM.")
    return listed


def _from_pem(path: Path, raw: bytes) -> dict[str, Any]:
    for kind in (jwk.ECKey, jwk.OKPKey, jwk.RSAKey):
        try:
            key = kind.import_key(raw)
            return dict(key.as_dict(private=key.is_private))
        except (JoseError, ValueError, TypeError):
            continue  # of another kind
    raise ConfigError(f"{path} holds no EC, Ed25519 or RSA key without a password.")


def load(paths: Iterable[str], now: float) -> list[SigningKey]:
    """Returns the private keys in these files and folders, the newest first."""
    held = [_held(path, said, now) for path in _files(paths) for said in jwks_in(path)]
    found = [each for each in held if each is not None]
    names = [each.key.kid for each in found]
    for each in found:
        if names.count(each.key.kid) > 1:
            raise ConfigError(f"Two keys are called `{each.key.kid}` (see {each.path}).")
    return sorted(found, key=lambda each: -each.made)


def _files(paths: Iterable[str]) -> Iterable[Path]:
    for path in map(Path, paths):
        if not path.is_dir():
            yield path
            continue
        inside = sorted(each for each in path.iterdir() if each.suffix in ENDINGS)
        if not inside:
            raise ConfigError(f"{path} holds no keys ({', '.join(ENDINGS)}).")
        yield from inside


def _held(path: Path, said: Mapping[str, Any], now: float) -> SigningKey | None:
    mode = path.stat().st_mode
    if os.name == "posix" and mode & OTHERS:
        raise ConfigError(f"{path} can be read by others. Say: chmod 600 {path}")
    try:
        key = signatures.key_in(said)
    except Refused as exc:
        raise ConfigError(f"{path}: {exc}.") from None
    if not key.private:
        raise ConfigError(f"{path} holds a public key; signing needs the private one.")
    if not in_time(said, now):
        return None
    made = said.get("iat", 0)
    return SigningKey(key, made if isinstance(made, int | float) else 0.0, path)


def in_time(said: Mapping[str, Any], now: float) -> bool:
    """Returns whether a key may be used now: it is neither expired, nor too new, nor revoked."""
    ends, begins = said.get("exp"), said.get("nbf")
    if isinstance(ends, int | float) and now >= ends:
        return False
    if isinstance(begins, int | float) and now < begins:
        return False
    return not said.get("revoked")


class Signer:
    """Signs our cards, and publishes the public keys."""

    def __init__(self, settings: Signing, now: float) -> None:
        self._keys = [each.key for each in load(settings.keys, now)]
        if not self._keys:
            raise ConfigError(
                "All keys in [signing] have expired: make one with `dragoman keys new`."
            )
        self._jku, self._compatible = settings.jku, settings.compatible
        self._set = key_set(self._keys)
        self._etag = b'"%s"' % hashlib.sha256(self._set).hexdigest()[:20].encode()

    def signed(self, card: Card, base: str) -> Card:
        """Returns the card with our signature, for readers that reach it at `base`."""
        try:
            jku = self._jku or _jku_at(base)
            return signatures.signed(card, self._keys[0], jku, compatible=self._compatible)
        except Uncanonical as exc:
            raise ConfigError(f"The card cannot be signed: {exc}.") from None

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Returns the address of the public keys."""
        return {PATH: {"GET": self.page, "HEAD": self.page}}

    @policy(Policy.OPEN)
    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the key set. It is open even where the card is not, since it says nothing about
        the agent."""
        extra: tuple[Header, ...] = (
            (b"etag", self._etag),
            (b"cache-control", b"public, max-age=%d" % MAX_AGE),
        )
        if headers_in(scope["headers"]).get("if-none-match", "") == self._etag.decode():
            await answer(send, 304, extra=extra)
            return
        await answer(send, 200, self._set, MEDIA, extra, head=scope["method"] == "HEAD")


def key_set(keys: Iterable[Key]) -> bytes:
    """Returns the public keys as a JWKS."""
    return msgspec.json.encode({"keys": [key.public() for key in keys]})


def _jku_at(base: str) -> str:
    # RFC 7515 §4.1.2: keys must come over a connection that nobody can change.
    return f"{base}{PATH}" if base.startswith("https://") else ""
