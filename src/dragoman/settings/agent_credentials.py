"""`[agents.NAME.auth]`: how an agent elsewhere learns who calls."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.auth_schemes import Secret


class TokenExchangeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME.auth.exchange]`: the agent is called for our callers, with tokens for which
    theirs are exchanged (RFC 8693)."""

    token_url: str
    """The token endpoint of the authorization server."""
    client_id: str
    client_secret: Secret | None = None
    audience: str = ""
    resource: str = ""
    scopes: tuple[str, ...] = ()
    subject_token_type: str = ""
    """The type of our callers' tokens; empty: an access token."""


class AgentCredentials(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME.auth]`: our credentials for an agent elsewhere. The scheme that its card asks
    for decides which of them are used."""

    token: Secret | None = None
    """A fixed bearer token."""
    api_key: Secret | None = None
    user: str = ""
    password: Secret | None = None
    client_id: str = ""
    """The id of our OAuth client, for the flow of client credentials."""
    client_secret: Secret | None = None
    scopes: tuple[str, ...] = ()
    """The scopes to ask for instead of those on the card."""
    audience: str = ""
    issuer: str = ""
    """The only authorization server that may be told the client's secret."""
    cert: str = ""
    """The path of the client certificate."""
    cert_key: str = ""
    """The path of its key, if that is in another file."""
    exchange: TokenExchangeSettings | None = None
