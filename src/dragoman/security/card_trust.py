"""Verifies the signatures of cards: whose count, and which hosts must go on signing.

    trust = Trust("require", keys=["partners.jwks"], pins=Path("seen.jsonl"))
    card = (await trust.check(body, "https://desk.example.com")).card

Keys come from files, from key sets at addresses we chose, or from a `jku` that we allowed before we
saw the card. A host whose card was once proved is written down: from then on a card without a good
signature is refused there, whoever took the signature away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dragoman.core.card import Card
from dragoman.core.errors import CardUntrusted, ConfigError, PeerMisbehaved, StoreUnavailable
from dragoman.core.model import Json
from dragoman.dialects.a2a.cards import documents, signatures
from dragoman.dialects.a2a.cards.canonical import Uncanonical
from dragoman.dialects.a2a.cards.signatures import (
    FORMS,
    STRICT,
    Key,
    Refused,
    SignatureClaim,
    SignedDocument,
)

from .card_signing import in_time, jwks_in
from .jwks import Fetch, JwksFetcher, KeySource

PolicyWord = Literal["require", "if-present", "ignore"]
SELF = "self"
"""The word in `jku` that allows a key set at the card's own origin."""
EVERYWHERE = "*"
MOST_SOURCES = 64
"""The number of key sets that are kept; an allowed host could name new ones for ever."""
MOST_FETCHES = 3
"""The number of key sets that are fetched for one card."""

Keys = Iterable[str | Path | Mapping[str, Any]]
"""Keys to trust: files (JWK, key set, PEM), addresses of key sets, or the JWKs themselves."""


class TrustVerdict(Struct, frozen=True, kw_only=True):
    """The result of checking a card that may be used."""

    card: Card
    """The card. If it is proved, this is exactly what was signed, without members outside of the
    signature."""
    proved: bool = False
    kid: str = ""
    alg: str = ""
    form: str = ""
    """The form in which the signer wrote the card; `strict` is the specification's (see
    docs/guide/cards)."""
    versions: tuple[str, ...] = ()
    """The versions whose readers have a signature of their own: 1.0, 0.3, or both."""
    uncovered: tuple[str, ...] = ()
    """What of the card its signatures do not cover, since signers such as a2a-sdk leave out what is
    empty (requirements without scopes): members of `Card`, as they stand not in `card`."""


class Trust:
    """Checks cards by a policy: `require`, `if-present` (a signature that is there must hold) or
    `ignore`."""

    def __init__(
        self,
        policy: PolicyWord = "if-present",
        *,
        keys: Keys | Mapping[str, Keys] = (),
        jku: Iterable[str] = (),
        pins: Path | None = None,
        strict: bool = False,
        allow_private: bool = False,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keys` count for every origin, or, as a mapping, for the one that each is listed under.

        `jku` lists key sets that a card may name: an address, an origin (all below it), or `self`.
        `strict` takes only signatures over all members of their version, as the specification says.
        """
        if policy not in get_args(PolicyWord):
            raise ConfigError(f"A trust policy is one of {', '.join(get_args(PolicyWord))}.")
        self.policy = policy
        self._fetcher = JwksFetcher(allow_private=allow_private)
        self._fetch: Fetch = fetch or self._fetcher
        self._clock = clock
        self._forms = STRICT if strict else tuple(FORMS)
        self._jku = tuple(jku)
        self._pins = Pins(pins) if pins is not None else None
        self._known: list[tuple[str, Mapping[str, Any]]] = []
        self._chosen: list[tuple[str, str]] = []
        self._sources: dict[str, KeySource] = {}
        for origin, listed in _by_origin(keys):
            for source in listed:
                self._add(origin, source)

    def _add(self, origin: str, source: str | Path | Mapping[str, Any]) -> None:
        if isinstance(source, str) and source.startswith(("https://", "http://")):
            self._chosen.append((origin, source))
            return
        said = jwks_in(Path(source)) if isinstance(source, str | Path) else _listed(source)
        for each in said:
            try:
                signatures.key_in(each)
            except Refused as exc:
                raise ConfigError(f"A trusted key cannot be used: {exc}.") from None
            self._known.append((origin, each))

    async def check(self, card: bytes | Mapping[str, Json], origin: str) -> TrustVerdict:
        """Returns the verdict with the trusted part of the card. Raises `CardUntrusted`, whose
        `why` is the reason in a word.

        `origin` is where the card came from: a URL, of which scheme, host and port count.
        """
        raw = card if isinstance(card, bytes) else msgspec.json.encode(card)
        if self.policy == "ignore":
            return TrustVerdict(card=documents.card_in(raw))
        place = origin_of(origin)
        if len(raw) > documents.MOST_BYTES:
            raise _untrusted(place, "unreadable", "it is too large")
        try:
            document = SignedDocument(raw)
            if not document.signed:
                return self._unsigned(raw, place)
            return await self._proved(document, place)
        except (Uncanonical, PeerMisbehaved) as exc:
            raise _untrusted(place, "unreadable", str(exc).rstrip(".")) from None

    def _unsigned(self, raw: bytes, place: str) -> TrustVerdict:
        if self._pins is not None and self._pins.holds(place):
            raise _untrusted(place, "stripped", "it was signed before and is not now")
        if self.policy == "require":
            raise _untrusted(place, "unsigned", "it is not signed")
        return TrustVerdict(card=documents.card_in(raw))

    async def _proved(self, document: SignedDocument, place: str) -> TrustVerdict:
        reasons, known = list(document.refused), False
        fetches = [MOST_FETCHES]
        signer: Key | None = None
        held: set[str] = set()
        for claim in document.claims:
            if signer is not None:
                # The same signer has more to say: to the readers of the other version.
                if form := document.proved(claim, signer, self._forms):
                    held.add(form)
                continue
            keys = await self._keys(claim, place, fetches, reasons)
            known = known or bool(keys)
            for key in keys:
                if form := document.proved(claim, key, self._forms):
                    signer = key
                    held.add(form)
                    break
            else:
                what = "its signature does not hold" if keys else "it is no key that counts here"
                reasons.append(f"`{claim.kid[:80]}`: {what}")
        if signer is None:
            why = "invalid" if known or not document.claims else "unknown_key"
            raise _untrusted(place, why, "; ".join(reasons))
        return self._verdict(document, signer, held, place)

    def _verdict(
        self, document: SignedDocument, signer: Key, held: set[str], place: str
    ) -> TrustVerdict:
        """Returns what a signer has proved in these forms."""
        # In each version the one that covers most: they are listed in that order.
        best = {FORMS[form].version: form for form in reversed(FORMS) if form in held}
        forms = tuple(form for form in FORMS if form in best.values())
        if (found := document.contradicted(forms)) is not None:
            # Else whoever changes what one version's readers use takes its signature away.
            version, names = found
            what = f"no signature covers what readers of {version} use: {', '.join(names)}"
            raise _untrusted(place, "invalid", what)
        if self._pins is not None:
            self._pins.add(place, signer.kid, self._clock())
        return TrustVerdict(
            card=document.card(forms),
            proved=True,
            kid=signer.kid,
            alg=signer.alg,
            form=forms[0],
            versions=tuple(FORMS[form].version for form in forms),
            uncovered=document.uncovered(forms),
        )

    async def _keys(
        self, claim: SignatureClaim, place: str, fetches: list[int], reasons: list[str]
    ) -> list[Key]:
        """Yields the keys of this name that count here, those at hand first."""
        found = _named(claim.kid, (k for o, k in self._known if _covers(o, place)), self._clock())
        if found:
            return found
        urls = [url for origin, url in self._chosen if _covers(origin, place)]
        if claim.jku and claim.jku not in urls and self._allowed(claim.jku, place):
            urls.append(claim.jku)
        for url in urls:
            source = self._source(url)
            found = _named(claim.kid, source.keys, self._clock()) if source.usable else []
            if source.due(unknown=not found) and fetches[0] > 0:
                fetches[0] -= 1
                try:
                    await source.look()
                except StoreUnavailable:
                    reasons.append(f"{url} gives no keys now")
                found = _named(claim.kid, source.keys, self._clock()) if source.usable else []
            if found:
                return found
        return []

    def _allowed(self, jku: str, place: str) -> bool:
        """Returns whether a card from this origin may name this key set."""
        try:
            asked = origin_of(jku)
        except ConfigError:
            return False
        for each in self._jku:
            if each == SELF:
                allowed = asked == place
            elif urlsplit(each).path in ("", "/"):
                allowed = asked == origin_of(each)
            else:
                allowed = jku == each
            if allowed:
                return True
        return False

    def _source(self, url: str) -> KeySource:
        source = self._sources.get(url)
        if source is None:
            while len(self._sources) >= MOST_SOURCES:
                del self._sources[next(iter(self._sources))]
            source = self._sources[url] = KeySource("trust", url=url, fetch=self._fetch)
        return source

    async def close(self) -> None:
        """Closes the connections to key sets."""
        await self._fetcher.close()


class Pins:
    """The origins whose card was once proved, in a file of JSON lines that is only appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[str] = set()
        self._size = -1

    def holds(self, origin: str) -> bool:
        """Returns whether this origin must sign its card."""
        self._read()
        return origin in self._seen

    def add(self, origin: str, kid: str, now: float) -> None:
        """Records that this origin must sign its card from now on."""
        if self.holds(origin):
            return
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        line = msgspec.json.encode({"origin": origin, "kid": kid, "at": at}) + b"\n"
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, line)  # one write: processes that share the file lose nothing
            finally:
                os.close(handle)
        except OSError as exc:
            raise ConfigError(f"{self._path} cannot be written: {exc.strerror}.") from None

    def _read(self) -> None:
        """Reads the file again if it changed. A file that cannot be read must not make us forget
        anyone."""
        try:
            size = self._path.stat().st_size
            if size == self._size:
                return
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            self._seen, self._size = set(), -1
            return
        except OSError as exc:
            raise ConfigError(f"{self._path} cannot be read: {exc.strerror}.") from None
        try:
            self._seen = {msgspec.json.decode(line, type=_Pin).origin for line in lines if line}
        except msgspec.DecodeError as exc:
            raise ConfigError(f"{self._path} is not a list of pins: {exc}") from None
        self._size = size


class _Pin(Struct, frozen=True):
    origin: str


def origin_of(url: str) -> str:
    """Returns scheme, host and port of a URL. Raises `ConfigError` if it has none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        raise ConfigError(f"'{url}' is not a web address.")
    shown = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{shown}" + (f":{port}" if port not in (None, usual) else "")


def _by_origin(keys: Keys | Mapping[str, Keys]) -> Iterable[tuple[str, Keys]]:
    if not isinstance(keys, Mapping):
        return [(EVERYWHERE, [keys] if isinstance(keys, str | Path) else keys)]
    return [(o if o == EVERYWHERE else origin_of(o), listed) for o, listed in keys.items()]


def _listed(source: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(source.get("keys", [source]))


def _covers(origin: str, place: str) -> bool:
    return origin in (EVERYWHERE, place)


def _named(kid: str, keys: Iterable[Mapping[str, Any]], now: float) -> list[Key]:
    """Returns the keys of a set that have this name and may be used now."""
    found = []
    for said in keys:
        if said.get("kid", kid) != kid or not in_time(said, now):
            continue
        try:
            key = signatures.key_in(said)
        except Refused:
            continue  # a set may hold keys for other things
        if key.kid == kid:
            found.append(key)
    return found


def _untrusted(origin: str, why: str, what: str) -> CardUntrusted:
    return CardUntrusted(f"The card of {origin} is refused: {what}.", why=why, origin=origin)
