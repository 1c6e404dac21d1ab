"""Checks how the card is served: its address, content type and cache headers."""

from __future__ import annotations

from ..check import Level, check, given, need
from ..subject import AgentUnderTest


@check("card.found", "1.0 §8.2; 0.3 §5.3", once=True)
def found(it: AgentUnderTest) -> None:
    """The card is at its well-known address."""
    answer = it.wire.ask("GET", it.card_url)
    moved = answer.headers.get("location", "")
    need(answer.status == 200, f"answered {answer.status}{moved and f', moved to {moved[:200]}'}")


@check("card.json", "1.0 §8.2; 0.3 §5.5", once=True)
def is_json(it: AgentUnderTest) -> None:
    """The card is one JSON object."""
    need(isinstance(it.answer.json(), dict), "it is not an object")


@check("card.type", "1.0 §8.2; 0.3 §5.3", once=True)
def content_type(it: AgentUnderTest) -> None:
    """The card is served as application/json."""
    need(
        it.answer.type in ("application/json", "application/a2a+json"),
        f"it is served as {it.answer.type or 'nothing'}",
    )


@check("card.cache", "1.0 §8.6.1", Level.SHOULD, once=True)
def cache(it: AgentUnderTest) -> None:
    """The card says how long it may be kept (Cache-Control with max-age)."""
    need("max-age" in it.answer.headers.get("cache-control", ""), "no max-age")


@check("card.etag", "1.0 §8.6.1", Level.SHOULD, once=True)
def etag(it: AgentUnderTest) -> None:
    """The card carries an ETag."""
    need(it.answer.headers.get("etag"), "no ETag")


@check("card.not-modified", "1.0 §8.6.1", Level.SHOULD, once=True)
def not_modified(it: AgentUnderTest) -> None:
    """A request with the card's ETag is answered with 304."""
    tag = it.answer.headers.get("etag")
    given(tag, "the card has no ETag")
    answer = it.wire.ask("GET", it.card_url, headers={"if-none-match": str(tag)})
    need(answer.status == 304, f"answered {answer.status}")


@check("card.vary", "1.0 §8.6.1", Level.SHOULD, once=True)
def vary(it: AgentUnderTest) -> None:
    """A card that depends on A2A-Version says so in Vary."""
    other = it.wire.ask("GET", it.card_url, headers={"A2A-Version": "1.0"})
    given(other.body != it.answer.body, "the card is the same for all versions")
    need("a2a-version" in it.answer.headers.get("vary", "").lower(), "no Vary: A2A-Version")


@check("card.stable", "1.0 §8.2", Level.SHOULD, once=True)
def stable(it: AgentUnderTest) -> None:
    """The card is the same when it is read twice."""
    first = it.wire.ask("GET", it.card_url)
    need(it.wire.ask("GET", it.card_url).body == first.body, "it differs")


@check("card.old-path", "0.2 §5.3", Level.MAY, once=True)
def old_path(it: AgentUnderTest) -> None:
    """Readers of 0.2 find the card at /.well-known/agent.json."""
    given(not it.url.endswith(".json"), "the card's own address was given")
    given(it.old, "the card is one of 1.0 alone")
    answer = it.wire.ask("GET", f"{it.url.rstrip('/')}/.well-known/agent.json")
    need(answer.status == 200, f"answered {answer.status}")
