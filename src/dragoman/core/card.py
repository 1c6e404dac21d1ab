"""What an agent says about itself, free of any version's spelling."""

from __future__ import annotations

from msgspec import Struct

from .model import Json


class Provider(Struct, frozen=True, omit_defaults=True):
    """Who offers the agent."""

    organization: str
    url: str = ""


class Extension(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something beyond the protocol that the agent understands."""

    uri: str
    description: str = ""
    required: bool = False
    params: dict[str, Json] | None = None


class ApiKey(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="apiKey"):
    """A key in a header, the query or a cookie."""

    name: str
    location: str = "header"
    description: str = ""


class HttpAuth(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="http"):
    """The Authorization header: `basic`, `bearer`..."""

    scheme: str
    bearer_format: str = ""
    description: str = ""


class OAuthFlow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to get a token."""

    kind: str
    """authorizationCode, clientCredentials, deviceCode, implicit or password."""
    token_url: str = ""
    authorization_url: str = ""
    device_authorization_url: str = ""
    refresh_url: str = ""
    scopes: dict[str, str] = {}
    pkce_required: bool = False


class OAuth2(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="oauth2"):
    """OAuth 2 tokens."""

    flows: tuple[OAuthFlow, ...]
    metadata_url: str = ""
    description: str = ""


class OpenId(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="openIdConnect"
):
    """OpenID Connect tokens."""

    url: str
    description: str = ""


class MutualTls(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="mutualTLS"
):
    """A certificate of the client's."""

    description: str = ""


Scheme = ApiKey | HttpAuth | OAuth2 | OpenId | MutualTls


def takes_scopes(scheme: Scheme) -> bool:
    """Whether a requirement may list scopes for it; for others it lists none (as in OpenAPI)."""
    return isinstance(scheme, OAuth2 | OpenId)


Requirement = dict[str, tuple[str, ...]]
"""Names of schemes, all of which are needed, with the scopes each must have."""
Requirements = tuple[Requirement, ...]
"""Any one of these will do."""


class Signature(Struct, frozen=True, omit_defaults=True):
    """A detached JWS over the card (A2A 1.0 §8.4)."""

    protected: str
    signature: str
    header: dict[str, Json] | None = None


class CardSkill(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something the agent can do."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security: Requirements = ()
    """Any one of these opens it, beside what the agent itself asks for."""


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something one side has the other run: a name, and what it takes and gives as JSON Schema."""

    name: str
    description: str = ""
    parameters: Json = None
    """None: anything."""
    returns: Json = None


class Interface(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One address where the agent speaks one version over one binding."""

    url: str
    binding: str
    version: str
    tenant: str = ""


class Card(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent's own account: who it is, what it can do, where it listens."""

    name: str
    description: str
    version: str
    interfaces: tuple[Interface, ...] = ()
    provider: Provider | None = None
    documentation_url: str = ""
    icon_url: str = ""
    streaming: bool = True
    push: bool = False
    extended: bool = False
    extensions: tuple[Extension, ...] = ()
    input_modes: tuple[str, ...] = ("text/plain",)
    output_modes: tuple[str, ...] = ("text/plain",)
    skills: tuple[CardSkill, ...] = ()
    schemes: dict[str, Scheme] = {}
    """The ways to say who one is, by name,"""
    security: Requirements = ()
    """and which of them are asked for: any one of these."""
    signatures: tuple[Signature, ...] = ()
