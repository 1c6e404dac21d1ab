"""Checks versions, extensions, the extended card and credentials."""

from __future__ import annotations

from ..card_fields import required as required_schemes
from ..check import GRPC, HTTP, REST, RPC, V0_3, V1, Body, Broken, Level, check, given, need
from ..expected_errors import (
    ANY,
    NEEDS_EXTENSION,
    NO_EXTENDED,
    NO_VERSION,
    NOT_FOUND,
    UNSUPPORTED,
    explained,
)
from ..subject import NO_TASK, Case


def explains(it: Case) -> None:
    """Raises `Broken` unless an error of A2A carries an ErrorInfo."""
    explained(it.ask("get", id=NO_TASK).refusal, NOT_FOUND)


INFO = "An error of A2A carries an ErrorInfo with its reason and a2a-protocol.org."
check("rpc.error-info", "1.0 §9.5", Level.SHOULD, bindings=RPC, versions=V1, says=INFO)(explains)
check("rest.error-info", "1.0 §11.6", bindings=REST, versions=V1, says=INFO)(explains)
check("grpc.error-info", "1.0 §10.6", bindings=GRPC, versions=V1, says=INFO)(explains)


def refuses(version: str, kind: str) -> Body:
    """Asks for an unknown task with this version."""
    return lambda it: it.refused(it.ask("get", {"A2A-Version": version}, id=NO_TASK), kind)


check(
    "version.unknown",
    "1.0 §3.6.2",
    versions=V1,
    says="An unsupported version is refused as such.",
)(refuses("9.9", NO_VERSION))
PATCH = "A patch number in A2A-Version changes nothing."
check("version.patch", "1.0 §3.6", Level.SHOULD, says=PATCH, versions=V1)(
    refuses("1.0.1", NOT_FOUND)
)
NAMED = "A caller of 0.3 that names its version is served like one that does not."
check("version.header-0.3", "1.0 §3.6.2", Level.SHOULD, says=NAMED, versions=V0_3)(
    refuses("0.3", NOT_FOUND)
)


@check("version.next", "1.0 §3.6.2", versions=V1)
def next_call(it: Case) -> None:
    """The call after a refused version works."""
    it.ask("get", {"A2A-Version": "9.9"}, id=NO_TASK)
    it.refused(it.ask("get", id=NO_TASK), NOT_FOUND)


UNKNOWN = "https://example.com/doctor/v1"


def echoed(it: Case, uri: str) -> str:
    """Activates an extension, and returns the extensions that the answer names as active."""
    (name,) = asked = it.extensions(uri)
    answer = it.send(headers=asked).answer
    return answer.headers.get(name.lower(), "") if answer is not None else ""


@check("extensions.unknown", "1.0 §4.6; 0.3 §5.5.2.1")
def unknown_extension(it: Case) -> None:
    """An extension that the agent does not know is ignored."""
    it.told(it.send(headers=it.extensions(UNKNOWN)))


@check("extensions.echo", "1.0 §4.6.2", Level.SHOULD, bindings=HTTP)
def echo(it: Case) -> None:
    """Activated extensions are named in the answer."""
    uris = [str(one.get("uri")) for one in it.agent.extensions]
    given(uris, "the card declares no extensions")
    for uri in uris:
        if uri in echoed(it, uri):
            return
    raise Broken(f"none of {len(uris)} declared extensions is named")


@check("extensions.not-echoed", "1.0 §4.6.2", bindings=HTTP)
def not_echoed(it: Case) -> None:
    """An extension that the agent does not know is not named as activated."""
    told = echoed(it, UNKNOWN)
    need(UNKNOWN not in told, f"it answers {told!r}")


@check("extensions.required", "1.0 §4.6; 0.3 §5.5.2.1")
def required(it: Case) -> None:
    """Without a required extension, a call is refused as such."""
    given(it.agent.required, "no extension is required")
    it.refused(
        it.send(headers=dict.fromkeys(it.extensions(), "")),
        NEEDS_EXTENSION if it.version == "1.0" else ANY,
    )


@check("extended.declared", "1.0 §3.1.11; 0.3 §7.10")
def extended(it: Case) -> None:
    """A declared extended card is returned, or requires credentials."""
    given(has_extended(it), "the card declares no extended card")
    reply = it.ask("extended")
    refusal = reply.refusal
    if refusal is not None:
        forbids = refusal.status == 403 or refusal.code == -31403
        forbids = forbids or refusal.grpc == "PERMISSION_DENIED"
        need(refusal.unauthenticated or forbids, f"refused: {refusal}")
    else:
        need(isinstance(reply.result, dict) and reply.result.get("name"), "it is no card")


@check("extended.undeclared", "1.0 §3.1.11; 0.3 §7.10")
def no_extended(it: Case) -> None:
    """An extended card that is not declared is refused; gRPC of 0.3 may give the public card."""
    given(not has_extended(it), "the card declares an extended card")
    reply = it.ask("extended")
    if it.version == "0.3" and it.binding == "grpc" and reply.refusal is None:
        # Its only method for cards is GetAgentCard (0.3 a2a.proto), so it has both meanings.
        name = reply.result.get("name") if isinstance(reply.result, dict) else None
        need(name == it.agent.card.get("name"), f"GetAgentCard gives the card of {name!r}")
        return
    it.refused(reply, NO_EXTENDED, UNSUPPORTED)


def has_extended(it: Case) -> bool:
    """Returns whether the card declares an extended card."""
    old = it.agent.card.get("supportsAuthenticatedExtendedCard") is True
    return it.agent.can("extendedAgentCard") or old


@check("auth.refused", "1.0 §7.5; 0.3 §4.4", bindings=HTTP)
def auth_refused(it: Case) -> None:
    """A call without the required credentials is 401 with WWW-Authenticate."""
    given(list(required_schemes(it.agent.card)), "the card asks for no credentials")
    with it.agent.wire.anonymous():
        answer = it.ask("get", id=NO_TASK).answer
    need(answer and answer.status in (401, 403), f"the status is {answer and answer.status}")
    told = answer and (answer.status == 403 or "www-authenticate" in answer.headers)
    need(told, "401 without WWW-Authenticate")
