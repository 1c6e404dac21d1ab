"""The card of an agent elsewhere: what of it is believed, what becomes of it here, what changed.

Theory. A card is written by the agent, and whoever can change it could send our calls, and what our
callers say, to another place. So only addresses at the origin that the operator wrote down count,
and those of origins that the operator added; all others are dropped, and if none is left, the card
is refused. A signature is verified as the operator asks (`security.card_trust`).

On our own card stand the names, skills and modes of the agent. Its addresses, its security and its
signatures are replaced by ours: callers talk to us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.addresses import dialects_of, origins_of, web_form
from dragoman.client.cards import Trusts, card_in
from dragoman.client.credentials import origin_of
from dragoman.client.negotiation import fits, spoken
from dragoman.core.card import Card, Extension, Interface
from dragoman.core.errors import BadParams, CardUntrusted
from dragoman.core.extensions import CURSOR, DIALECTS, IDEMPOTENCY, TRANSITIONS, WORK

_OURS = frozenset((CURSOR, IDEMPOTENCY, TRANSITIONS, WORK, DIALECTS))
"""Extensions that our own card declares for ourselves."""
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "[::1]"))


class Believed(Struct, frozen=True):
    """What is believed of a card."""

    card: Card


class CardGuard:
    """Decides what of the card of one agent is believed; a `Trusts` of the client."""

    def __init__(
        self,
        url: str,
        origins: Iterable[str] = (),
        trust: Trusts | None = None,
        dialect: str = "",
    ) -> None:
        """With a `dialect`, a card that names it only at other origins is refused: the agent could
        not be called. If the url names the dialect, the agent is called there, and nowhere else
        that its card names."""
        self._origins = {_place(each) for each in origins_of(url, origins)}
        self._trust, self._dialect = trust, dialect
        self._called_at_url = bool(dialects_of(url))

    async def check(self, card: bytes, origin: str) -> Believed:
        """Returns the card with the addresses that may be called. Raises `CardUntrusted` if there
        are none."""
        found = card_in(card)
        if self._trust is not None:
            # What is proved is what was signed. Which versions an old card means is read as ever.
            proved = (await self._trust.check(card, origin)).card
            found = replace(proved, interfaces=found.interfaces)
        kept = tuple(each for each in found.interfaces if self._may_call(each.url))
        if not self._called_at_url:
            self._check_callable(found, kept)
        extensions = tuple(self._extension(each) for each in found.extensions)
        return Believed(replace(found, interfaces=kept, extensions=extensions))

    def _check_callable(self, card: Card, kept: Sequence[Interface]) -> None:
        wanted = [each for each in card.interfaces if self._is_wanted(each)]
        lost = card.interfaces if not kept else () if any(map(self._is_wanted, kept)) else wanted
        if lost:
            named = ", ".join(sorted({_shown(each) for each in lost}))
            what = self._dialect if kept else "addresses"
            raise CardUntrusted(
                f"The card names {what} only at other origins: {named}. If they are the agent's, "
                "add them: origins = [...]"
            )

    def _is_wanted(self, interface: Interface) -> bool:
        how = spoken(interface) if self._dialect else None
        return how is not None and fits(how, self._dialect)

    def _may_call(self, url: str) -> bool:
        try:
            return _place(origin_of(_web(url))) in self._origins
        except BadParams:
            return False

    def _extension(self, extension: Extension) -> Extension:
        """Returns the list of other dialects without the addresses of other origins."""
        params = extension.params or {}
        listed = params.get("addresses")
        if extension.uri != DIALECTS or not isinstance(listed, list):
            return extension
        kept = [
            each
            for each in listed
            if isinstance(each, dict) and self._may_call(str(each.get("url", "")))
        ]
        return replace(extension, params={**params, "addresses": kept})


def _web(url: str) -> str:
    """Returns an address as a web address: interfaces of gRPC are host:port, or grpc://."""
    if "://" not in url:
        return f"http://{url}"
    scheme, _, rest = url.partition("://")
    schemes = {"grpc": "http", "grpcs": "https", "ws": "http", "wss": "https"}
    return f"{schemes[scheme]}://{rest}" if scheme in schemes else web_form(url)


def _place(origin: str) -> str:
    """Returns an origin, in which all names of this machine are the same."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.rpartition(":")
    return f"{scheme}://localhost:{port}" if host in _LOOPBACK else origin


def _shown(interface: Interface) -> str:
    try:
        return origin_of(_web(interface.url))
    except BadParams:
        return urlsplit(interface.url).netloc[:100] or interface.url[:100]


def relayed(card: Card, own: Sequence[Extension]) -> Card:
    """Returns the card of an agent elsewhere as ours: with our extensions, and without its
    addresses, its security and its signatures."""
    known = {each.uri for each in own}
    more = (each for each in card.extensions if each.uri not in known and each.uri not in _OURS)
    return replace(
        card,
        interfaces=(),
        extensions=(*own, *more),
        # Some readers refuse a skill that names no modes, and leave none to the card (fasta2a).
        skills=tuple(
            replace(
                skill,
                security=(),
                input_modes=skill.input_modes or card.input_modes,
                output_modes=skill.output_modes or card.output_modes,
            )
            for skill in card.skills
        ),
        schemes={},
        security=(),
        signatures=(),
        extended=False,
        streaming=True,
        push=False,
    )


def changes(before: Card, after: Card) -> Iterator[str]:
    """Yields in words what is different on a card."""
    for field in ("name", "description", "version", "input_modes", "output_modes", "security"):
        if getattr(before, field) != getattr(after, field):
            yield field
    old, new = ({skill.id: skill for skill in card.skills} for card in (before, after))
    yield from (f"skill {name} is new" for name in new if name not in old)
    yield from (f"skill {name} is gone" for name in old if name not in new)
    yield from (f"skill {name}" for name in new if name in old and old[name] != new[name])
    was, now = (
        {(i.url, i.binding, i.version) for i in card.interfaces} for card in (before, after)
    )
    yield from (f"address {' '.join(each)} is new" for each in sorted(now - was))
    yield from (f"address {' '.join(each)} is gone" for each in sorted(was - now))
    if before.extensions != after.extensions:
        yield "extensions"
