"""The agent card in its canonical form, which does not depend on a protocol version."""

from __future__ import annotations

from msgspec import Struct

from .model import Json


class Provider(Struct, frozen=True, omit_defaults=True):
    """The organization that offers the agent."""

    organization: str
    url: str = ""


class Extension(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An extension of the protocol that the agent supports."""

    uri: str
    description: str = ""
    required: bool = False
    params: dict[str, Json] | None = None


class ApiKey(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="apiKey"):
    """A security scheme: an API key in a header, the query or a cookie."""

    name: str
    location: str = "header"
    description: str = ""


class HttpAuth(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="http"):
    """A security scheme: the Authorization header with `basic`, `bearer` or another HTTP scheme."""

    scheme: str
    bearer_format: str = ""
    description: str = ""


class OAuthFlow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One OAuth flow by which a client gets a token."""

    kind: str
    """The flow: authorizationCode, clientCredentials, deviceCode, implicit or password."""
    token_url: str = ""
    authorization_url: str = ""
    device_authorization_url: str = ""
    refresh_url: str = ""
    scopes: dict[str, str] = {}
    pkce_required: bool = False


class OAuth2(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="oauth2"):
    """A security scheme: tokens of an OAuth 2 authorization server."""

    flows: tuple[OAuthFlow, ...]
    metadata_url: str = ""
    description: str = ""


class OpenId(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="openIdConnect"
):
    """A security scheme: tokens of an OpenID Connect provider."""

    url: str
    description: str = ""


class MutualTls(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="mutualTLS"
):
    """A security scheme: mutual TLS with a client certificate."""

    description: str = ""


Scheme = ApiKey | HttpAuth | OAuth2 | OpenId | MutualTls


def takes_scopes(scheme: Scheme) -> bool:
    """Returns whether a requirement may list scopes for this scheme. For other schemes it lists
    none, as in OpenAPI."""
    return isinstance(scheme, OAuth2 | OpenId)


Requirement = dict[str, tuple[str, ...]]
"""The names of schemes that are needed together, each with the scopes that it must grant."""
Requirements = tuple[Requirement, ...]
"""Requirements of which a caller has to meet any one."""


class Signature(Struct, frozen=True, omit_defaults=True):
    """A detached JWS over the card (A2A 1.0 §8.4)."""

    protected: str
    signature: str
    header: dict[str, Json] | None = None


class CardSkill(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A skill as it stands on the card."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security: Requirements = ()
    """The requirements of this skill, beside those of the agent itself."""


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that one side runs for the other: its name, and JSON Schemas of its parameters and its
    result."""

    name: str
    description: str = ""
    parameters: Json = None
    """None accepts any parameters."""
    returns: Json = None


class Interface(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address at which the agent serves one protocol version over one binding."""

    url: str
    binding: str
    version: str
    tenant: str = ""


class Card(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent card: who the agent is, what it can do and where it is reached."""

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
    """The security schemes of the agent, by name."""
    security: Requirements = ()
    """The requirements of the agent; a caller has to meet any one of them."""
    signatures: tuple[Signature, ...] = ()
