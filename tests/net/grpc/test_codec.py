"""The codec without a wire: every rpc, every error, and what each version carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.core import errors
from dragoman.core.card import (
    ApiKey,
    Card,
    CardSkill,
    Extension,
    HttpAuth,
    Interface,
    MutualTls,
    OAuth2,
    OAuthFlow,
    OpenId,
    Provider,
    Signature,
)
from dragoman.core.errors import BadParams, DragomanError, TaskNotFound, UnknownMethod
from dragoman.core.events import Ask, Asked, Note, Noted, Stamped, StateChanged
from dragoman.core.model import Hook, Message, Role, State, Text
from dragoman.core.nesting import MAX_CONTAINERS
from dragoman.core.operations import (
    DeleteHook,
    GetExtendedCard,
    GetHook,
    HookPage,
    Invoke,
    ListHooks,
    SendMessage,
    SetHook,
)
from dragoman.core.session import Call, End, Fault, Frame, Result, Update
from dragoman.dialects.a2a.grpc.callee import METHODS, RPCS, SERVICES, GrpcCallee
from dragoman.dialects.a2a.proto import POOL, object_in, reader, value_in, value_out, writer

NEW, OLD = "lf.a2a.v1", "a2a.v1"
HOOK = Hook(
    hook_id="h", task_id="t", url="https://x.example", token="k", scheme="Bearer", credentials="c"
)


def asked(package: str, rpc: str, message: str, fields: dict[str, Any]) -> tuple[GrpcCallee, Any]:
    """The session after this request, and the operation it heard; or the error."""
    session = GrpcCallee()
    body = writer(f"{package}.{message}")(fields)
    service = f"{package}.A2AService" if package != "dragoman.v1" else f"{package}.Methods"
    (signal,) = session.receive(Frame(body, f"/{service}/{rpc}"))
    return session, signal.op if isinstance(signal, Call) else signal.error


def answered(session: GrpcCallee, value: Any, message: str) -> Any:
    (frame,) = session.send(Result(None, value))
    return reader(message)(frame.body)


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_every_rpc_of_the_proto_is_answered_with_its_messages(service: Any) -> None:
    for method in POOL.FindServiceByName(service.name).methods:
        _, rpc = RPCS[f"/{service.name}/{method.name}"]
        assert rpc.stream == method.server_streaming, method.name
        body = b""
        assert rpc.read(body).DESCRIPTOR.full_name == method.input_type.full_name


def test_an_unknown_rpc_is_a_fault() -> None:
    (fault,) = GrpcCallee().receive(Frame(b"", "/lf.a2a.v1.A2AService/Nonsense"))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, UnknownMethod)


PATH = "tasks/t/pushNotificationConfigs/h"
CONFIG_1_0 = {
    "task_id": "t",
    "id": "h",
    "url": "https://x.example",
    "token": "k",
    "authentication": {"scheme": "Bearer", "credentials": "c"},
}
CONFIG_0_3 = {
    "id": "h",
    "url": "https://x.example",
    "token": "k",
    "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "c"},
}
T = "TaskPushNotificationConfig"


@pytest.mark.parametrize(
    ("package", "rpc", "message", "fields", "op"),
    [
        (NEW, f"Create{T}", T, CONFIG_1_0, SetHook(hook=HOOK)),
        (
            OLD,
            f"Create{T}",
            f"Create{T}Request",
            {
                "parent": "tasks/t/pushNotificationConfigs",
                "config_id": "else",
                "config": {"push_notification_config": CONFIG_0_3},
            },
            SetHook(hook=replace(HOOK, other_schemes=("Basic",))),
        ),
        (
            NEW,
            f"Get{T}",
            f"Get{T}Request",
            {"task_id": "t", "id": "h"},
            GetHook(task_id="t", hook_id="h"),
        ),
        (OLD, f"Get{T}", f"Get{T}Request", {"name": PATH}, GetHook(task_id="t", hook_id="h")),
        (NEW, f"Get{T}", f"Get{T}Request", {"task_id": "t"}, GetHook(task_id="t")),
        (OLD, f"Get{T}", f"Get{T}Request", {"name": "tasks/t"}, GetHook(task_id="t")),
        (
            NEW,
            f"List{T}s",
            f"List{T}sRequest",
            {"task_id": "t", "page_size": 3, "page_token": "p"},
            ListHooks(task_id="t", page_size=3, page_token="p"),
        ),
        (OLD, f"List{T}", f"List{T}Request", {"parent": "tasks/t"}, ListHooks(task_id="t")),
        (
            NEW,
            f"Delete{T}",
            f"Delete{T}Request",
            {"task_id": "t", "id": "h"},
            DeleteHook(task_id="t", hook_id="h"),
        ),
        (
            OLD,
            f"Delete{T}",
            f"Delete{T}Request",
            {"name": PATH},
            DeleteHook(task_id="t", hook_id="h"),
        ),
        (
            "dragoman.v1",
            "Invoke",
            "InvokeRequest",
            {"method": "org.x/do", "params": {"n": 3}},
            Invoke(method="org.x/do", params={"n": 3}),
        ),
    ],
)
def test_what_is_asked(
    package: str, rpc: str, message: str, fields: dict[str, Any], op: object
) -> None:
    _, found = asked(package, rpc, message, fields)
    assert found == op


def test_a_webhook_comes_with_a_send_and_back_as_it_was() -> None:
    said = {"message_id": "m", "role": 1, "parts": [{"text": "hi"}]}
    options = {"task_push_notification_config": CONFIG_1_0 | {"task_id": ""}}
    _, op = asked(
        NEW, "SendMessage", "SendMessageRequest", {"message": said, "configuration": options}
    )
    assert isinstance(op, SendMessage)
    assert op.hook is not None
    assert (op.hook.url, op.hook.scheme) == ("https://x.example", "Bearer")

    session, _ = asked(NEW, f"Create{T}", T, CONFIG_1_0)
    told = answered(session, HOOK, f"{NEW}.{T}")
    assert writer(f"{NEW}.{T}")(CONFIG_1_0) == told.SerializeToString()
    session, _ = asked(OLD, f"List{T}", f"List{T}Request", {"parent": "tasks/t"})
    several = replace(HOOK, other_schemes=("Basic",))
    page = answered(session, HookPage((several,), "next"), f"{OLD}.List{T}Response")
    assert (page.configs[0].name, page.next_page_token) == (PATH, "next")
    told_schemes = page.configs[0].push_notification_config.authentication.schemes
    assert list(told_schemes) == ["Bearer", "Basic"]


@pytest.mark.parametrize(
    ("package", "rpc", "message", "fields", "says"),
    [
        (NEW, "SendMessage", "SendMessageRequest", {}, "message"),
        (NEW, "SendMessage", "SendMessageRequest", {"message": {"role": 1}}, "message.messageId"),
        (
            NEW,
            "SendMessage",
            "SendMessageRequest",
            {"message": {"role": 7, "message_id": "m"}},
            "message.role",
        ),
        (
            NEW,
            "SendMessage",
            "SendMessageRequest",
            {"message": {"role": 1, "message_id": "m"}},
            "message.parts",
        ),
        (
            NEW,
            "SendMessage",
            "SendMessageRequest",
            {"message": {"role": 1, "message_id": "m", "parts": [{"text": "a"}, {}]}},
            "message.parts[1]",
        ),
        (NEW, "GetTask", "GetTaskRequest", {}, ".id"),
        (NEW, "GetTask", "GetTaskRequest", {"id": "t", "history_length": -1}, "historyLength"),
        (NEW, "ListTasks", "ListTasksRequest", {"page_size": 101}, "pageSize"),
        (NEW, "ListTasks", "ListTasksRequest", {"status": 99}, "status"),
        (NEW, f"Create{T}", T, {"task_id": "t"}, "url"),
        (OLD, "GetTask", "GetTaskRequest", {"name": "things/t"}, "name"),
        (OLD, "GetTask", "GetTaskRequest", {}, "name"),
        (OLD, f"Get{T}", f"Get{T}Request", {"name": "t/c"}, "name"),
        (OLD, f"Delete{T}", f"Delete{T}Request", {"name": "tasks/t"}, "name"),
        (NEW, f"List{T}s", f"List{T}sRequest", {"task_id": "t", "page_size": -1}, "pageSize"),
        ("dragoman.v1", "Invoke", "InvokeRequest", {}, "method"),
    ],
)
def test_what_is_wrong_is_named(
    package: str, rpc: str, message: str, fields: dict[str, Any], says: str
) -> None:
    _, error = asked(package, rpc, message, fields)
    assert isinstance(error, errors.BadParams)
    assert says in error.message


def tree(cls: type[DragomanError]) -> Iterator[type[DragomanError]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


EVERY = sorted(set(tree(DragomanError)), key=lambda cls: cls.__name__)


@pytest.mark.parametrize("package", [NEW, OLD])
@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_error_can_be_said(package: str, cls: type[DragomanError]) -> None:
    fields = {"id": "t"} if package == NEW else {"name": "tasks/t"}
    session, _ = asked(package, "GetTask", "GetTaskRequest", fields)
    (frame,) = session.send(Fault(None, cls("x" * 9000, task_id="t1")))
    assert frame.status
    text = frame.headers["grpc-message"]
    assert text.endswith("xxx")
    assert len(text) <= 400
    assert len(frame.body) < 4000
    status = reader("google.rpc.Status")(frame.body)
    info = reader("google.rpc.ErrorInfo")(status.details[0].value)
    assert (status.code, info.domain) == (frame.status, "a2a-protocol.org")
    assert info.metadata["taskId"] == "t1"


def test_0_3_puts_the_name_in_front() -> None:
    session, _ = asked(OLD, "GetTask", "GetTaskRequest", {"name": "tasks/t"})
    (frame,) = session.send(Fault(None, TaskNotFound("no")))
    assert (frame.status, frame.headers["grpc-message"]) == (
        5,
        "TaskNotFoundError: Task not found: no",
    )


def test_a_tenant_is_read_from_the_request() -> None:
    session, _ = asked(NEW, "GetTask", "GetTaskRequest", {"id": "t", "tenant": "acme"})
    assert session.tenant == "acme"
    session, _ = asked(OLD, "GetTask", "GetTaskRequest", {"name": "tasks/t"})
    assert session.tenant == ""


def stream_of(package: str, extensions: str) -> GrpcCallee:
    session = GrpcCallee()
    message = "SubscribeToTaskRequest" if package == NEW else "TaskSubscriptionRequest"
    rpc = message.removesuffix("Request")
    body = writer(f"{package}.{message}")({"id": "t"} if package == NEW else {"name": "tasks/t"})
    list(
        session.receive(Frame(body, f"/{package}.A2AService/{rpc}", {"a2a-extensions": extensions}))
    )
    return session


@pytest.mark.parametrize("package", [NEW, OLD])
def test_notes_are_told_only_to_those_who_want_them(package: str) -> None:
    entry = Stamped("t", "c", 3, 1000, Noted(kind=Note.THOUGHT, body={"text": "hm"}))
    read = reader(f"{package}.StreamResponse")
    for extensions, told in (("", {}), ("urn:dragoman:work:1", {"text": "hm"})):
        (frame,) = stream_of(package, extensions).send(Update(None, entry))
        update = read(frame.body).status_update
        found = object_in(update.metadata).get("urn:dragoman:work:1/thought", {})
        assert (found, frame.mark) == (told, "3")
        assert update.status.state == 2


@pytest.mark.parametrize("package", [NEW, OLD])
def test_a_question_is_told_with_its_words(package: str) -> None:
    message = Message(message_id="q", role=Role.AGENT, parts=(Text("Which?"),))
    asks = Asked(question="q", kind=Ask.INPUT, message=message)
    session = stream_of(package, "")
    (frame,) = session.send(Update(None, Stamped("t", "c", 3, 1000, asks)))
    update = reader(f"{package}.StreamResponse")(frame.body).status_update
    said = update.status.message if package == NEW else update.status.update
    assert (update.status.state, said.message_id, said.role) == (6, "q", 2)
    assert (update.status.timestamp.seconds, update.status.timestamp.nanos) == (1, 0)
    if package == OLD:
        assert update.final
        failed = StateChanged(state=State.WORKING)
        (frame,) = session.send(Update(None, Stamped("t", "c", 4, 0, failed)))
        update = reader(f"{package}.StreamResponse")(frame.body).status_update
        assert not update.final
        assert not update.status.HasField("timestamp")
    assert session.send(End(None)) == ()


CARD = Card(
    name="Desk",
    description="Does",
    version="1",
    interfaces=(
        Interface(url="https://x/", binding="JSONRPC", version="1.0", tenant="acme"),
        Interface(url="https://x/", binding="JSONRPC", version="0.3"),
        Interface(url="x:8421", binding="GRPC", version="0.3"),
    ),
    provider=Provider("Org", "https://org"),
    documentation_url="https://docs",
    icon_url="https://icon",
    push=True,
    extended=True,
    extensions=(Extension(uri="urn:e", required=True, params={"a": [1]}),),
    skills=(CardSkill(id="s", name="S", description="d", tags=("t",), security=({"key": ()},)),),
    schemes={
        "key": ApiKey(name="X-Key", location="query", description="a key"),
        "http": HttpAuth(scheme="bearer", bearer_format="JWT"),
        "device": OAuth2(
            flows=(
                OAuthFlow(
                    kind="deviceCode", token_url="https://t", device_authorization_url="https://d"
                ),
                OAuthFlow(
                    kind="authorizationCode",
                    token_url="https://t",
                    authorization_url="https://a",
                    scopes={"read": "Reads"},
                    pkce_required=True,
                ),
            ),
            metadata_url="https://m",
        ),
        "open": OpenId(url="https://o"),
        "mtls": MutualTls(),
    },
    security=({"device": ("read",), "mtls": ()}, {"key": ()}),
    signatures=(Signature("p", "s", {"kid": "1"}),),
)


def test_the_card_in_1_0() -> None:
    session, op = asked(NEW, "GetExtendedAgentCard", "GetExtendedAgentCardRequest", {})
    assert op == GetExtendedCard()
    card = answered(session, CARD, f"{NEW}.AgentCard")
    first = card.supported_interfaces[0]
    assert (first.protocol_binding, first.protocol_version, first.tenant) == (
        *("JSONRPC", "1.0"),
        "acme",
    )
    assert len(card.supported_interfaces) == 3
    assert (card.capabilities.push_notifications, card.capabilities.extended_agent_card) == (
        *(True,),
        True,
    )
    assert object_in(card.capabilities.extensions[0].params) == {"a": [1]}
    flows = card.security_schemes["device"].oauth2_security_scheme.flows
    assert flows.device_code.device_authorization_url == "https://d"
    assert card.security_schemes["key"].api_key_security_scheme.location == "query"
    assert list(card.security_requirements[0].schemes["device"].list) == ["read"]
    assert card.skills[0].security_requirements[0].schemes["key"].list == []
    assert (card.signatures[0].protected, card.icon_url) == ("p", "https://icon")


def test_the_card_in_0_3() -> None:
    session, _ = asked(OLD, "GetAgentCard", "GetAgentCardRequest", {})
    card = answered(session, CARD, f"{OLD}.AgentCard")
    assert (card.url, card.preferred_transport, card.protocol_version) == (
        *("https://x/", "JSONRPC"),
        "0.3.0",
    )
    transports = [(each.url, each.transport) for each in card.additional_interfaces]
    assert transports == [("https://x/", "JSONRPC"), ("x:8421", "GRPC")]
    # 0.3 knows no device flow: the next one stands for all.
    flows = card.security_schemes["device"].oauth2_security_scheme.flows
    assert flows.authorization_code.scopes["read"] == "Reads"
    assert list(card.security[0].schemes["device"].list) == ["read"]
    assert card.supports_authenticated_extended_card


def test_a_method_of_the_agents_own_gives_any_value() -> None:
    for value in ({"a": 1}, [1, 2], "x", None, 3):
        session, _ = asked("dragoman.v1", "Invoke", "InvokeRequest", {"method": "org.x/do"})
        told = answered(session, value, "dragoman.v1.InvokeResponse")
        assert value_in(told.result) == value
    assert METHODS.name == "dragoman.v1.Methods"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_value_comes_back_as_it_was(value: Any) -> None:
    body = writer("google.protobuf.Value")(value_out(value))
    assert value_in(reader("google.protobuf.Value")(body)) == value


@given(st.binary(max_size=200), st.sampled_from(sorted(RPCS)))
def test_any_bytes_are_a_call_or_a_fault(body: bytes, path: str) -> None:
    (signal,) = GrpcCallee().receive(Frame(body, path))
    assert isinstance(signal, Call | Fault)


def nested(value: object, levels: int) -> object:
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("package", [NEW, OLD])
def test_messages_of_countless_pieces_are_refused(package: str) -> None:
    parts, request = {NEW: ("parts", "message"), OLD: ("content", "request")}[package]
    said = {"message_id": "m", "role": 1, parts: [{"text": ""}] * (MAX_CONTAINERS + 1)}
    _, error = asked(package, "SendMessage", "SendMessageRequest", {request: said})
    assert isinstance(error, BadParams)
    assert f"at most {MAX_CONTAINERS}" in error.message
    half = {"rows": [[]] * (MAX_CONTAINERS // 2)}  # twice this and the two rows around it
    said = {"message_id": "m", "role": 1, parts: [{"text": "", "metadata": half}] * 2}
    _, error = asked(package, "SendMessage", "SendMessageRequest", {request: said})
    assert isinstance(error, BadParams)
    said = {"message_id": "m", "role": 1, parts: [{"text": "", "metadata": half}]}
    _, op = asked(package, "SendMessage", "SendMessageRequest", {request: said})
    assert isinstance(op, SendMessage)


def test_no_value_is_deeper_than_over_json() -> None:
    deep = {"message_id": "m", "role": 1, "parts": [{"text": ""}], "metadata": nested(1, 65)}
    _, error = asked(NEW, "SendMessage", "SendMessageRequest", {"message": deep})
    assert isinstance(error, BadParams)
