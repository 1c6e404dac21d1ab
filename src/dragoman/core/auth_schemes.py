"""How callers prove who they are, as the operator sets it up: in code, or as `[auth.NAME]`.

Each kind is a struct of plain values. What it looks like on the card is `declared`, what it means
at the door is in `net/credentials.py` and `net/tokens.py`; both read this one description, so the
card declares what is enforced. A secret is never written here, only where it is found.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from . import card


class Secret(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a secret is found: `{env = "X"}` or `{file = "path"}`. Never the secret itself."""

    env: str = ""
    file: str = ""


class Grant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a caller may: the tenants it belongs to (the first is its own) and its scopes."""

    tenants: tuple[str, ...] = ("",)
    scopes: tuple[str, ...] = ()


class Known(Grant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A caller with a key, token or password."""

    secret: Secret


class Held(Grant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A caller with a certificate that says one of these names."""

    names: tuple[str, ...]


class ApiKeys(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag="api-key",
    rename={"location": "in"},
):
    """A key in a header, the query or a cookie; `callers` are principals by name."""

    callers: dict[str, Known]
    location: Literal["header", "query", "cookie"] = "header"
    name: str = "X-API-Key"
    description: str = ""

    def declared(self) -> card.Scheme:
        """As the card says it."""
        return card.ApiKey(name=self.name, location=self.location, description=self.description)


class _Fixed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Callers whose credentials stand in the settings."""

    callers: dict[str, Known]
    description: str = ""

    def declared(self) -> card.Scheme:
        """The scheme as the card has it."""
        return card.HttpAuth(scheme=str(self.__struct_config__.tag), description=self.description)


class Passwords(_Fixed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="basic"):
    """HTTP Basic: the caller's name is the user name."""


class Tokens(_Fixed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="bearer"):
    """HTTP Bearer with fixed tokens."""


class OAuth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where callers get their tokens; stands on the card."""

    flow: Literal["authorizationCode", "clientCredentials", "deviceCode"] = "clientCredentials"
    token_url: str
    authorization_url: str = ""
    device_authorization_url: str = ""
    refresh_url: str = ""
    metadata_url: str = ""
    scopes: dict[str, str] = {}
    pkce_required: bool = False


class Jwt(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="jwt"
):
    """Signed tokens of an issuer. Principals are `NAME:<the claim>`, NAME being this scheme's.

    On the card it is OAuth 2 if `oauth2` says where tokens come from, OpenID Connect if `openid`
    is set, else plain HTTP Bearer with the format JWT.
    """

    issuer: str
    audience: tuple[str, ...]
    """Whom tokens must be meant for: any of these."""
    keys_file: str = ""
    """The issuer's JWKS in a file,"""
    keys_url: str = ""
    """or at an address; without both the issuer's OpenID configuration names it."""
    algorithms: tuple[Literal["RS256", "PS256", "ES256", "ES384", "EdDSA"], ...] = (
        "RS256",
        "PS256",
        "ES256",
        "EdDSA",
    )
    types: tuple[str, ...] = ("jwt", "at+jwt", "")
    """What the header `typ` may say; RFC 9068 tokens say at+jwt, many issuers nothing."""
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    tenant_claim: str = ""
    """The claim that holds the caller's tenants; without it they are `tenants`."""
    tenants: tuple[str, ...] = ("",)
    leeway: float = 30.0
    """Seconds by which clocks may differ."""
    keep_keys: float = 600.0
    """Seconds after which the key set is fetched again."""
    oauth2: OAuth | None = None
    openid: bool = False
    description: str = ""

    @property
    def discovery(self) -> str:
        """Where an OpenID issuer describes itself."""
        return f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"

    def declared(self) -> card.Scheme:
        """As the card says it."""
        if self.openid:
            return card.OpenId(url=self.discovery, description=self.description)
        if self.oauth2 is None:
            return card.HttpAuth(scheme="bearer", bearer_format="JWT", description=self.description)
        found = self.oauth2
        flow = card.OAuthFlow(
            kind=found.flow,
            token_url=found.token_url,
            authorization_url=found.authorization_url,
            device_authorization_url=found.device_authorization_url,
            refresh_url=found.refresh_url,
            scopes=found.scopes,
            pkce_required=found.pkce_required,
        )
        return card.OAuth2(
            flows=(flow,), metadata_url=found.metadata_url, description=self.description
        )


class Certificates(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="mtls"
):
    """Mutual TLS: whoever holds a certificate of the client CA in `[tls]`.

    The handshake refuses everyone else. The server must also tell which name the certificate says;
    where it does not (Granian, over HTTP), all holders are the one principal `shared`.
    """

    callers: dict[str, Held] = {}
    shared: str = ""
    """The principal of holders whose name is not told or not listed; empty: refused."""
    grant: Grant = Grant()
    """What `shared` may."""
    description: str = ""

    def declared(self) -> card.Scheme:
        """As the card says it."""
        return card.MutualTls(description=self.description)


Scheme = ApiKeys | Passwords | Tokens | Jwt | Certificates
