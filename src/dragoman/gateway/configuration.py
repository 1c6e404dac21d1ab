"""Makes an upstream agent of its section in the settings, and says what is wrong in which line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from dragoman.agent import Agent
from dragoman.client.addresses import dialects_of, origins_of, web_form
from dragoman.client.auth import CardAuth, Own, UserCredentials
from dragoman.client.auth.origins import is_safe
from dragoman.client.cards import Trusts, card_in
from dragoman.client.credentials import Auth, SharedSecret, origin_of
from dragoman.client.negotiation import check_known
from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import BadParams, ConfigError
from dragoman.dialects import DIALECTS
from dragoman.security.server_secret import caller_name
from dragoman.security.verifiers import read_secret
from dragoman.settings import HostedAgent, Settings
from dragoman.store.registry import RegistryEntry, Source

from .cards import CardGuard
from .registry import Factory
from .token_exchange import TokenExchange
from .upstream_agent import UpstreamAgent
from .upstream_pool import Closing, UpstreamPool

_SECRETS = ("token", "api_key", "password", "client_secret")
_PLAIN = ("user", "client_id", "scopes", "audience", "issuer", "cert", "cert_key")


def upstream_of(
    name: str,
    agent: HostedAgent,
    settings: Settings,
    *,
    by_stranger: bool = False,
    card: bytes = b"",
) -> UpstreamAgent:
    """Returns the agent at the address of this section. Nothing is called yet. What was registered
    `by_stranger` must be public whenever it is called. `card` is that of an agent that has none at
    its address.

    Raises `ConfigError`, which names the line and says what to write instead."""
    for url in agent.addresses:
        _check_url(name, "url" if url == agent.url else "urls", url, agent)
    options: dict[str, Any] = {"allow_private": settings.server.allow_private}
    if by_stranger:
        options["by_stranger"] = True
    if card:
        options["card"] = card
    closing: list[Closing] = []
    if agent.dialect:
        try:
            check_known(agent.dialect)
        except ConfigError as exc:
            raise agent.error(name, "dialect", exc.message) from None
        options["dialect"] = agent.dialect
    if agent.ca:
        options["ca"] = agent.ca
    if agent.origins:
        options["origins"] = agent.origins
    if agent.card:
        if not agent.card.startswith(("http://", "https://")):
            raise agent.error(name, "card", "must be an address with http:// or https://.")
        options["card"] = agent.card
    exchange = _exchange(name, agent)
    if exchange is not None:
        closing.append(exchange)
    auth = _auth(name, agent, settings, closing)
    if auth is not None:
        options["auth"] = auth
    trust = _trust(name, agent, closing)
    try:
        guards = {
            url: CardGuard(url, agent.origins, trust, agent.dialect) for url in agent.addresses
        }
    except BadParams as exc:
        raise agent.error(name, "origins", exc.message) from None
    pool = UpstreamPool(
        name,
        {url: {**options, "trust": guard} for url, guard in guards.items()},
        agent,
        environ=os.environ,
        fresh=5 * agent.refresh,
        closing=closing,
        signed_for=_signed_for(name, agent),
        caller_name=partial(caller_name, settings.server.store, os.environ, name),
    )
    return UpstreamAgent(
        name,
        pool,
        repeat=agent.repeat,
        timeout=agent.timeout,
        patience=agent.patience,
        reply_within=agent.reply_within,
        refresh=agent.refresh,
        files=agent.files,
        result_files=agent.result_files,
        inline_size=agent.inline_size,
        exchange=exchange,
    )


def link_fallbacks(agents: Mapping[str, Agent], settings: Settings) -> None:
    """Gives each agent the agents that are asked when it cannot be reached. Raises `ConfigError` if
    one is not there, or if they would ask each other in a circle; then no agent has changed."""
    linked: list[tuple[UpstreamAgent, tuple[UpstreamAgent, ...]]] = []
    for name, section in settings.agents.items():
        found = []
        for other in section.fallbacks:
            agent = agents.get(other)
            if agent is None:
                raise section.error(name, "fallbacks", f"there is no agent {other!r}")
            if not isinstance(agent, UpstreamAgent):
                raise section.error(name, "fallbacks", f"{other!r} has no url")
            found.append(agent)
        if circle := _circle(name, settings):
            raise section.error(name, "fallbacks", f"they form a circle: {' > '.join(circle)}")
        if found:
            asking = agents[name]
            assert isinstance(asking, UpstreamAgent)  # noqa: S101  only those have fallbacks
            linked.append((asking, tuple(found)))
    for asking, others in linked:
        asking.fallbacks = others


def _circle(name: str, settings: Settings) -> list[str]:
    """Returns the fallbacks that lead from an agent back to itself, if there are any."""
    ways, seen = [[name]], set()
    while ways:
        way = ways.pop()
        for other in settings.agents[way[-1]].fallbacks:
            if other == name:
                return [*way, other]
            if other in settings.agents and other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return []


def registered(settings: Settings) -> Factory:
    """Returns what makes agents of the entries of a registry: they are called without credentials
    of ours, and in the best dialect of their cards."""

    def make(entry: RegistryEntry) -> UpstreamAgent:
        section = HostedAgent(url=entry.addresses[0], urls=entry.addresses[1:])
        by_stranger, card = entry.source is Source.TOKEN, entry.card.encode()
        agent = upstream_of(entry.name, section, settings, by_stranger=by_stranger, card=card)
        if card:
            agent.learn(card_in(card), "")
        return agent

    return make


def _check_url(name: str, key: str, url: str, agent: HostedAgent) -> None:
    try:
        dialects_of(url)
        origin_of(web_form(url))
    except (ConfigError, BadParams) as exc:
        raise agent.error(name, key, exc.message) from None
    if "@" in urlsplit(web_form(url)).netloc:
        raise agent.error(
            name, key, 'credentials are never written here: auth = { token = { env = "X" } }'
        )


def _auth(name: str, agent: HostedAgent, settings: Settings, closing: list[Closing]) -> Auth | None:
    """Returns our credentials for the agent; None if the section has none."""
    if agent.auth is None and agent.secret is None:
        return None
    beside: CardAuth | None = None
    if agent.auth is not None:
        if not all(is_safe(origin_of(web_form(url))) for url in agent.addresses):
            what = "nothing secret is sent over plain http; give a url with TLS"
            raise agent.error(name, "auth", what)
        given: dict[str, Any] = {key: getattr(agent.auth, key) for key in _PLAIN}
        for key in _SECRETS:
            if (secret := getattr(agent.auth, key)) is not None:
                given[key] = _secret(name, agent, "auth", secret)
        own = Own(**given)
        allowed = {
            origin_of(each) for url in agent.addresses for each in origins_of(url, agent.origins)
        }

        async def ask(origin: str) -> Own | None:
            return own if origin in allowed else Own()

        beside = CardAuth(UserCredentials(ask=ask), allow_private=settings.server.allow_private)
        closing.append(beside)
    if agent.secret is None:
        return beside
    shared = _secret(name, agent, "secret", agent.secret)
    return SharedSecret(shared, to=agent.agent_id or name, me="", beside=beside)


def _signed_for(name: str, agent: HostedAgent) -> str:
    if agent.secret is None:
        return ""
    to = agent.agent_id or name
    return f"signed for {to!r}: agent_id in [agents.{name}] is the name that the agent has"


def _exchange(name: str, agent: HostedAgent) -> TokenExchange | None:
    """Returns what exchanges the tokens of callers for those of the agent, if the section says
    so."""
    found = agent.auth.exchange if agent.auth is not None else None
    if found is None:
        return None
    if not is_safe(found.token_url):
        what = f"exchange.token_url must begin with https://, not '{found.token_url}'"
        raise agent.error(name, "auth", what)
    for url in agent.addresses:
        named = [DIALECTS[agent.dialect]] if agent.dialect else dialects_of(url)
        if any(each.conversation is not None for each in named):
            what = "exchange: one connection of IAT serves all callers, so nobody is acted for"
            raise agent.error(name, "auth", what)
    secret = found.client_secret
    return TokenExchange(
        name, found, _secret(name, agent, "auth", secret) if secret is not None else ""
    )


def _secret(name: str, agent: HostedAgent, key: str, secret: Secret) -> str:
    return read_secret(secret, agent.error(name, key, "").message.rstrip(": "))


def _trust(name: str, agent: HostedAgent, closing: list[Closing]) -> Trusts | None:
    """Returns who decides on the signature of the card; None if nobody has to."""
    if agent.card_signature == "ignore" or (
        agent.card_signature == "if-present" and not agent.card_keys
    ):
        return None
    if not agent.card_keys:
        raise agent.error(name, "card_signature", 'it needs keys: card_keys = ["partner.jwks"]')
    from dragoman.security.card_trust import Trust

    try:
        trust = Trust(agent.card_signature, keys=agent.card_keys)
    except ConfigError as exc:
        raise agent.error(name, "card_keys", exc.message) from None
    closing.append(trust)
    return trust
