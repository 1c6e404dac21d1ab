"""The security schemes that an operator configures, in code or as `[auth.NAME]` in the settings.

Each scheme is a struct of plain values. `declared` turns it into its entry on the card, and
`security/verifiers.py` and `security/jwt_verifier.py` enforce it. Both read the same struct, so the
card always declares what is enforced. The struct never holds a secret, only a reference to one.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from . import card


class Secret(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A reference to a secret: `{env = "X"}` or `{file = "path"}`. It never holds the secret
    itself."""

    env: str = ""
    file: str = ""


class Grant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rights of a caller: the tenants it belongs to, of which the first is its default, and its
    scopes."""

    tenants: tuple[str, ...] = ("",)
    scopes: tuple[str, ...] = ()


class Known(Grant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A caller that authenticates with a key, a token or a password."""

    secret: Secret


class Held(Grant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A caller that authenticates with a certificate for one of these names."""

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
    """Authenticates callers by a key in a header, the query or a cookie; `callers` maps names of
    principals to their keys."""

    callers: dict[str, Known]
    location: Literal["header", "query", "cookie"] = "header"
    name: str = "X-API-Key"
    description: str = ""

    def declared(self) -> card.Scheme:
        """Returns the scheme as it stands on the card."""
        return card.ApiKey(name=self.name, location=self.location, description=self.description)


class _Fixed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Callers whose credentials are fixed in the settings."""

    callers: dict[str, Known]
    description: str = ""

    def declared(self) -> card.Scheme:
        """Returns the scheme as it stands on the card."""
        return card.HttpAuth(scheme=str(self.__struct_config__.tag), description=self.description)


class Passwords(_Fixed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="basic"):
    """Authenticates callers by HTTP Basic; the name of a caller is its user name."""


class Tokens(_Fixed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="bearer"):
    """Authenticates callers by fixed HTTP Bearer tokens."""


class OAuth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tells callers on the card where they get their tokens."""

    flow: Literal["authorizationCode", "clientCredentials", "deviceCode"] = "clientCredentials"
    token_url: str
    """The address of the token endpoint."""
    authorization_url: str = ""
    device_authorization_url: str = ""
    refresh_url: str = ""
    metadata_url: str = ""
    scopes: dict[str, str] = {}
    pkce_required: bool = False


class Jwt(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="jwt"
):
    """Authenticates callers by signed tokens of an issuer. A principal is called `NAME:CLAIM`,
    where NAME is the name of this scheme and CLAIM the value of the claim.

    The card declares the scheme as OAuth 2 if `oauth2` says where tokens come from, as OpenID
    Connect if `openid` is set, and otherwise as plain HTTP Bearer with the format JWT.
    """

    issuer: str
    audience: tuple[str, ...]
    """A token must name one of these in its audience."""
    keys_file: str = ""
    """The file that holds the issuer's JWKS."""
    keys_url: str = ""
    """The address of the issuer's JWKS. Without it and without `keys_file`, the issuer's OpenID
    configuration names the address."""
    algorithms: tuple[Literal["RS256", "PS256", "ES256", "ES384", "EdDSA"], ...] = (
        "RS256",
        "PS256",
        "ES256",
        "EdDSA",
    )
    types: tuple[str, ...] = ("jwt", "at+jwt", "")
    """The values that the header `typ` may have. Access tokens of RFC 9068 use `at+jwt`; the tokens
    of many issuers have no `typ` at all."""
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    tenant_claim: str = ""
    """The claim that holds the tenants of the caller; if it is empty, every caller has
    `tenants`."""
    tenants: tuple[str, ...] = ("",)
    leeway: float = 30.0
    """The number of seconds by which our clock and the issuer's may differ."""
    keep_keys: float = 600.0
    """The number of seconds after which the key set is fetched again."""
    oauth2: OAuth | None = None
    openid: bool = False
    description: str = ""

    @property
    def discovery(self) -> str:
        """The address of the issuer's OpenID configuration."""
        return f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"

    def declared(self) -> card.Scheme:
        """Returns the scheme as it stands on the card."""
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
    """Authenticates callers by mutual TLS, with a certificate from the client CA in `[tls]`.

    The handshake refuses all other callers. A caller gets a principal of its own only if the server
    passes on the name in the certificate. Granian does not do so over HTTP; there, all callers with
    a certificate are the one principal `shared`.
    """

    callers: dict[str, Held] = {}
    shared: str = ""
    """The principal of callers whose certificate has none of the listed names, or whose name the
    server does not pass on. If it is empty, these callers are refused."""
    grant: Grant = Grant()
    """The rights of the principal `shared`."""
    description: str = ""

    def declared(self) -> card.Scheme:
        """Returns the scheme as it stands on the card."""
        return card.MutualTls(description=self.description)


Scheme = ApiKeys | Passwords | Tokens | Jwt | Certificates
