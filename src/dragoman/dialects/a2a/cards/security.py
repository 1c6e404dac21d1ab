"""Security schemes and requirements on a card, in the spelling of 1.0, of 0.3, and of both at once.

1.0 identifies a scheme by the member that holds it, 0.3 by a `type` among its members (a2a-wire
§10.2). The two do not collide, so one object can have both forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman.core.card import (
    ApiKey,
    HttpAuth,
    MutualTls,
    OAuth2,
    OAuthFlow,
    OpenId,
    Requirement,
    Scheme,
)
from dragoman.core.model import Json

Word = str | None


class SecurityStruct(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The base of all structs here. Members without a default are always written."""


class Flow(SecurityStruct, frozen=True):
    authorization_url: Word = None
    device_authorization_url: Word = None
    token_url: Word = None
    refresh_url: Word = None
    scopes: dict[str, str] | None = None
    pkce_required: bool | None = None


class Flows(SecurityStruct, frozen=True):
    """The OAuth flows. 1.0 allows exactly one, 0.3 several (but no deviceCode)."""

    authorization_code: Flow | None = None
    client_credentials: Flow | None = None
    device_code: Flow | None = None
    implicit: Flow | None = None
    password: Flow | None = None


class Kind(SecurityStruct, frozen=True):
    """The members of a scheme, which 1.0 nests in a member of their own and 0.3 does not."""

    name: Word = None
    location: Word = None
    scheme: Word = None
    bearer_format: Word = None
    flows: Flows | None = None
    oauth2_metadata_url: Word = None
    open_id_connect_url: Word = None
    description: Word = None


class WireScheme(Kind, frozen=True, kw_only=True):
    """A scheme in either spelling, or in both."""

    type: Word = None
    in_: Word = field(default=None, name="in")
    api_key_security_scheme: Kind | None = None
    http_auth_security_scheme: Kind | None = None
    oauth2_security_scheme: Kind | None = None
    open_id_connect_security_scheme: Kind | None = None
    mtls_security_scheme: Kind | None = None


class WireSignature(SecurityStruct, frozen=True):
    protected: str
    signature: str
    header: dict[str, Json] | None = None


_MEMBERS = {
    "apiKey": "api_key_security_scheme",
    "http": "http_auth_security_scheme",
    "oauth2": "oauth2_security_scheme",
    "openIdConnect": "open_id_connect_security_scheme",
    "mutualTLS": "mtls_security_scheme",
}
"""Maps the types of 0.3 to the members of 1.0."""
_FLOWS = {
    "authorizationCode": "authorization_code",
    "clientCredentials": "client_credentials",
    "deviceCode": "device_code",
    "implicit": "implicit",
    "password": "password",
}


# Schemes out


def scheme_1_0(scheme: Scheme) -> WireScheme:
    """Returns a scheme in the form of 1.0."""
    type, kind = _kind(scheme)
    return replace(WireScheme(), **{_MEMBERS[type]: kind})


def scheme_both(scheme: Scheme) -> WireScheme:
    """Returns a scheme that readers of 1.0 and of 0.3 both understand (a2a-wire §15.3)."""
    type, kind = _kind(scheme)
    flows = kind.flows
    if isinstance(scheme, OAuth2):
        old = [flow for flow in scheme.flows if flow.kind != "deviceCode"]
        flows = Flows(**{_FLOWS[flow.kind]: _flow_out(flow) for flow in old})
    return replace(
        scheme_1_0(scheme),
        name=kind.name,
        in_=kind.location,
        scheme=kind.scheme,
        bearer_format=kind.bearer_format,
        flows=flows,
        oauth2_metadata_url=kind.oauth2_metadata_url,
        open_id_connect_url=kind.open_id_connect_url,
        description=kind.description,
        type=type,
    )


def _kind(scheme: Scheme) -> tuple[str, Kind]:
    described = scheme.description or None
    match scheme:
        case ApiKey():
            return "apiKey", Kind(name=scheme.name, location=scheme.location, description=described)
        case HttpAuth():
            format = scheme.bearer_format or None
            return "http", Kind(scheme=scheme.scheme, bearer_format=format, description=described)
        case OAuth2():
            # 1.0 has room for only one flow, so the first one is used.
            one = {_FLOWS[flow.kind]: _flow_out(flow) for flow in scheme.flows[:1]}
            url = scheme.metadata_url or None
            return "oauth2", Kind(
                flows=Flows(**one), oauth2_metadata_url=url, description=described
            )
        case OpenId():
            return "openIdConnect", Kind(open_id_connect_url=scheme.url, description=described)
        case MutualTls():
            return "mutualTLS", Kind(description=described)


def _flow_out(flow: OAuthFlow) -> Flow:
    return Flow(
        flow.authorization_url or None,
        flow.device_authorization_url or None,
        flow.token_url or None,
        flow.refresh_url or None,
        flow.scopes,
        flow.pkce_required or None,
    )


# Schemes in


def scheme_in(wire: WireScheme) -> Scheme | None:
    """Returns the scheme, or None if it is of an unknown kind."""
    for type, member in _MEMBERS.items():
        kind: Kind | None = getattr(wire, member)
        if kind is not None:
            more = wire.flows if wire.type == type else None
            return _known(type, kind, more)
    location = wire.location or wire.in_
    return _known(wire.type or "", replace(wire, location=location), None)


def _known(type: str, kind: Kind, more: Flows | None) -> Scheme | None:
    described = kind.description or ""
    match type:
        case "apiKey":
            location = kind.location or "header"
            return ApiKey(name=kind.name or "", location=location, description=described)
        case "http":
            scheme, format = kind.scheme or "", kind.bearer_format or ""
            return HttpAuth(scheme=scheme, bearer_format=format, description=described)
        case "oauth2":
            flows = _flows_in(more) | _flows_in(kind.flows)
            first = _flows_in(kind.flows) | flows
            url = kind.oauth2_metadata_url or ""
            return OAuth2(flows=tuple(first.values()), metadata_url=url, description=described)
        case "openIdConnect":
            return OpenId(url=kind.open_id_connect_url or "", description=described)
        case "mutualTLS":
            return MutualTls(description=described)
        case _:
            return None


def _flows_in(flows: Flows | None) -> dict[str, OAuthFlow]:
    found = {kind: getattr(flows, member, None) for kind, member in _FLOWS.items()}
    return {
        kind: OAuthFlow(
            kind=kind,
            token_url=flow.token_url or "",
            authorization_url=flow.authorization_url or "",
            device_authorization_url=flow.device_authorization_url or "",
            refresh_url=flow.refresh_url or "",
            scopes=flow.scopes or {},
            pkce_required=bool(flow.pkce_required),
        )
        for kind, flow in found.items()
        if flow is not None
    }


# Requirements


def required_1_0(requirements: Iterable[Requirement]) -> list[Json] | None:
    """Returns requirements as ProtoJSON, which leaves out empty members."""
    return [
        {
            "schemes": {
                name: {"list": list(scopes)} if scopes else {} for name, scopes in needed.items()
            }
        }
        if needed
        else {}
        for needed in requirements
    ] or None


def required_0_3(requirements: Iterable[Requirement]) -> list[Json] | None:
    """Returns requirements in the form of OpenAPI."""
    return [
        {name: list(scopes) for name, scopes in needed.items()} for needed in requirements
    ] or None


def required_in(listed: Iterable[Mapping[str, Json]]) -> tuple[Requirement, ...]:
    """Reads requirements in any of the three spellings that are in use (a2a-wire §4.2)."""
    return tuple(map(_requirement_in, listed))


def _requirement_in(requirement: Mapping[str, Json]) -> Requirement:
    inner = requirement.get("schemes")
    # A list here means that 0.3 has a scheme which is called "schemes".
    named = inner if isinstance(inner, dict) else requirement
    return {name: _scopes_in(scopes) for name, scopes in named.items()}


def _scopes_in(scopes: Json) -> tuple[str, ...]:
    listed = scopes.get("list") if isinstance(scopes, dict) else scopes
    if not isinstance(listed, list):
        return ()
    return tuple(scope for scope in listed if isinstance(scope, str))


# 0.1


class WireAuthentication(SecurityStruct, frozen=True):
    """The authentication of 0.1, which only names schemes of the Authorization header."""

    schemes: list[str] | None = None


def authentication_out(schemes: Iterable[Scheme]) -> WireAuthentication | None:
    """Returns the names of these schemes in 0.1."""
    names = list(dict.fromkeys(map(_old_name, schemes)))
    return WireAuthentication(names) if names else None


def _old_name(scheme: Scheme) -> str:
    match scheme:
        case HttpAuth(scheme=name):
            return name.capitalize()
        case OAuth2() | OpenId():
            return "Bearer"
        case ApiKey():
            return "ApiKey"
        case MutualTls():
            return "MutualTLS"


def authentication_in(authentication: WireAuthentication) -> dict[str, Scheme]:
    """Returns schemes for the names of 0.1, any one of which is sufficient."""
    return {name: HttpAuth(scheme=name.lower()) for name in authentication.schemes or ()}
