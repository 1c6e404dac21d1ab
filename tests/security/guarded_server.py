"""A server with every door open to the right callers, and a way to ask it in every binding."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import httpx2
import msgspec
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from dialects.narrow import IAT_ASKS
from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Jwt
from dragoman.core.model import Hook, Message, Role, Text
from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    Invoke,
    ListHooks,
    ListTasks,
    Operation,
    SendMessage,
    SetHook,
    Watch,
)
from dragoman.core.peer import Context
from dragoman.core.session import Call
from dragoman.dialects.a2a import PYTHON_PATHS, jsonrpc, routes
from dragoman.dialects.a2a.grpc.callee import RPCS
from dragoman.dialects.a2a.legacy import a2a_go
from dragoman.dialects.a2a.legacy.detect import SHARED
from dragoman.dialects.a2a.legacy.v0_1 import V0_1
from dragoman.dialects.a2a.proto import POOL
from dragoman.dialects.a2a.v1_0 import V1_0
from dragoman.dialects.a2a.version import RpcMethod, Version, own_method
from dragoman.dialects.iat import IatCaller
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.security.call_policy import CallPolicy
from dragoman.server.app import App, engine_for
from dragoman.server.serve import address
from dragoman.settings import PolicyRule, Server, Settings
from security.issuer import AUDIENCE, ISSUER, Issuer
from waiting import turns

CANARY = "canary-4711-of-alice"
HOOK = "hook-of-alice"
RECEIVER = "http://127.0.0.1:9/x"
"""Where nobody listens."""
RECALL = "keeper.house/recall"
"""A method of the agent's own: what the caller told it to keep."""
HYBRID = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
}
"""What fasta2a asks, and how 1.0 calls it."""


class Asking(Struct):
    """One way to ask one thing: the binding, its name there, and what it asks."""

    binding: str
    name: str
    op: type[Operation[Any]]
    stream: bool
    send: Callable[..., Any]
    """`send(server, token, task_id, tenant) -> (status, body)`; a status is HTTP's or gRPC's."""
    tenants: bool
    """Whether the binding has a word for tenants."""

    @property
    def about_a_task(self) -> bool:
        return self.op in (GetTask, CancelTask, Watch, SetHook, GetHook, ListHooks, DeleteHook)


def question(op: type[Operation[Any]], task_id: str) -> Operation[Any]:
    """An operation as every binding can spell it."""
    text = Message(message_id="m", role=Role.USER, parts=(Text(text="go"),), task_id=task_id)
    hook = Hook(hook_id="other", task_id=task_id, url=RECEIVER)
    made: dict[type[Operation[Any]], Operation[Any]] = {
        SendMessage: SendMessage(message=text, wait=False),
        GetTask: GetTask(task_id=task_id),
        ListTasks: ListTasks(),
        CancelTask: CancelTask(task_id=task_id),
        Watch: Watch(task_id=task_id),
        GetExtendedCard: GetExtendedCard(),
        SetHook: SetHook(hook=hook),
        GetHook: GetHook(task_id=task_id, hook_id=HOOK),
        ListHooks: ListHooks(task_id=task_id),
        DeleteHook: DeleteHook(task_id=task_id, hook_id=HOOK),
        Invoke: Invoke(method=RECALL, params={}),
    }
    return made[op]


def all_ways() -> Iterator[Asking]:
    """Every operation in every binding, out of the tables the server itself is made of."""
    shared = [(name, (V0_1, V0_1.methods[name])) for name in SHARED]  # told apart by the header
    for name, (version, method) in (*jsonrpc._METHODS.items(), *shared, *_own_methods()):
        yield Asking(
            f"JSON-RPC {version.name}",
            name,
            method.op,
            method.stream,
            _rpc_sender("/", name, version.name, method),
            version.name == "1.0" and method.op is not Invoke,  # its params are the method's
        )
    for name, method in a2a_go.A2A_GO.methods.items():
        sender = _rpc_sender("/a2a-go", name, "", method)
        yield Asking("a2a-go", name, method.op, method.stream, sender, False)
    for name, spelled in HYBRID.items():  # names of 0.3, shapes of 1.0, and no id
        method = V1_0.methods[spelled]
        sender = _rpc_sender("/", name, "", method, ident=1 if method.stream else None)
        yield Asking("hybrid", name, method.op, method.stream, sender, False)
    for path in PYTHON_PATHS:
        for name, method in (*V0_1.methods.items(), (RECALL, own_method(RECALL))):
            sender = _rpc_sender(path, name, "", method)
            yield Asking("python-a2a", f"{path} {name}", method.op, method.stream, sender, False)
    for binding in routes.BINDINGS:
        for route in (*binding.routes, routes._own_route(RECALL)):
            yield Asking(
                f"REST {binding.version.name}",
                f"{route.verb} {route.path}",
                route.method.op,
                route.method.stream,
                _rest_sender(binding, route),
                binding.version.name == "1.0",
            )
    usual = {binding.prefix + route.path for binding in routes.BINDINGS for route in binding.routes}
    for path, (binding, found) in routes.PLAIN.items():
        for route in found.verbs.values() if path not in usual else ():
            sender = _rest_sender(binding, route, path)
            name = f"{route.verb} {path}"
            yield Asking("paths of 0.2", name, route.method.op, route.method.stream, sender, False)
    yield from _iat_ways()
    yield Asking("MCP", "tools/call", SendMessage, False, _mcp_answer, False)
    for path, (service, each) in RPCS.items():
        name = path.rpartition("/")[2]
        kind = _kind(name)
        sender = _grpc_sender(path, service.name, name, kind, stream=each.stream)
        version, tenants = service.version, service.version == "1.0" and kind is not Invoke
        yield Asking(f"gRPC {version}", name, kind, each.stream, sender, tenants)


IAT_OPS = ((SendMessage, True), (Watch, True), *((op, False) for op in IAT_ASKS if op is not Watch))


def _iat_ways() -> Iterator[Asking]:
    """IAT in both forms, what real hosts post without an envelope, and no handshake."""
    for flat in (False, True):
        for op, stream in IAT_OPS:
            name = f"{'flat' if flat else 'nested'} {op.__name__}"
            yield Asking("IAT", name, op, stream, _iat_sender(op, flat=flat, stream=stream), False)
    for path in ("/a2a", "/a2a/stream"):
        yield Asking("IAT", path, SendMessage, False, _plain_sender(path), False)
    yield Asking("IAT", "/iat/ws", Watch, False, _unshaken, False)


def _iat_sender(op: type[Operation[Any]], *, flat: bool, stream: bool) -> Callable[..., Any]:
    async def send(
        running: GuardedServer, token: str, task_id: str, tenant: str
    ) -> tuple[int, str]:
        caller = IatCaller(me="", flat=flat, now=lambda: 0, new_id=lambda: uuid4().hex)
        (frame,) = caller.send(Call("1", question(op, task_id), stream))  # type: ignore[arg-type]
        return await _heard(running, "/iat", frame.body, dict(frame.headers) | _headers(token))

    return send


def _plain_sender(path: str) -> Callable[..., Any]:
    async def send(
        running: GuardedServer, token: str, task_id: str, tenant: str
    ) -> tuple[int, str]:
        headers = {"content-type": "application/json"} | _headers(token)
        return await _heard(running, path, b'{"content":"go"}', headers)

    return send


async def _unshaken(
    running: GuardedServer, token: str, task_id: str, tenant: str
) -> tuple[int, str]:
    reply = await running.client.get("/iat/ws", headers=_headers(token))
    return reply.status_code, reply.text


async def _mcp_answer(
    running: GuardedServer, token: str, task_id: str, tenant: str
) -> tuple[int, str]:
    """The tool that answers a task, without a session before it."""
    version, tool = "2026-07-28", "answer_task"
    about = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    arguments = {"task_id": task_id, "answer": "go"}
    params = {"name": tool, "arguments": arguments, "_meta": about}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": version,
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }
    return await _heard(running, "/mcp", msgspec.json.encode(asked), headers | _headers(token))


async def _heard(
    running: GuardedServer, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, str]:
    """A whole answer; of a stream, which may wait for ever, what comes first."""
    async with running.client.stream("POST", path, content=body, headers=headers) as reply:
        told = ""
        async for piece in reply.aiter_text():
            told += piece
            if reply.headers["content-type"] == "text/event-stream":
                break
    told = re.sub(r'"(timestamp|at)":\d+', "", told)
    return 400 if reply.status_code == 200 and '"error"' in told else reply.status_code, told


def _own_methods() -> Iterator[tuple[str, tuple[Version, RpcMethod]]]:
    """The agent's own method over JSON-RPC, of whatever version the header names."""
    for version in {version.name: version for version, _ in jsonrpc._METHODS.values()}.values():
        yield RECALL, (version, own_method(RECALL))


def _rpc_sender(
    path: str, name: str, version: str, method: Any, ident: int | None = 1
) -> Callable[..., Any]:
    async def send(
        running: GuardedServer, token: str, task_id: str, tenant: str
    ) -> tuple[int, str]:
        params = msgspec.to_builtins(method.op_out(question(method.op, task_id))) or {}
        if tenant:
            params["tenant"] = tenant
        body = {"jsonrpc": "2.0", "id": ident, "method": name, "params": params}
        headers = _headers(token) | ({"a2a-version": version} if version else {})
        reply = await running.client.post(path, json=body, headers=headers)
        return _rpc_status(reply), reply.text

    return send


def _rpc_status(reply: httpx2.Response) -> int:
    """An error in a good answer counts as 400; HTTP's own errors as what they are."""
    return 400 if reply.status_code == 200 and '"error"' in reply.text else reply.status_code


def _rest_sender(binding: Any, route: Any, at: str = "") -> Callable[..., Any]:
    async def send(
        running: GuardedServer, token: str, task_id: str, tenant: str
    ) -> tuple[int, str]:
        said = msgspec.to_builtins(route.method.op_out(question(route.method.op, task_id))) or {}
        path = at or binding.prefix + route.path
        for variable in route.ids:
            path = path.replace("{" + variable + "}", str(said.pop(variable, "x")))
        if tenant:
            path = f"/{tenant}{path}"
        headers = _headers(token) | {"a2a-version": binding.version.name}
        body = said if route.verb == "POST" else None
        reply = await running.client.request(route.verb, path, json=body, headers=headers)
        return reply.status_code, reply.text

    return send


_KINDS: tuple[tuple[str, type[Operation[Any]]], ...] = (
    ("Send", SendMessage),
    ("Create", SetHook),
    ("Set", SetHook),
    ("Delete", DeleteHook),
    ("GetTaskPush", GetHook),
    ("ListTaskPush", ListHooks),
    ("ListTask", ListTasks),
    ("GetTask", GetTask),
    ("Cancel", CancelTask),
    ("Sub", Watch),
    ("TaskSub", Watch),
    ("GetExtended", GetExtendedCard),
    ("GetAgentCard", GetExtendedCard),
    ("Invoke", Invoke),
)


def _kind(name: str) -> type[Operation[Any]]:
    return next(op for start, op in _KINDS if name.startswith(start))


def _fields(old: bool, op: type[Operation[Any]], task: str) -> dict[str, Any]:
    """The request of each rpc, in the shape of lf.a2a.v1 or (old) of a2a.v1."""
    url = RECEIVER
    if old:
        part = {"text": "go"}
        message = {"message_id": "m", "role": 1, "content": [part], "task_id": task}
        config = f"tasks/{task}/pushNotificationConfigs"
        made: dict[type[Operation[Any]], dict[str, Any]] = {
            SendMessage: {"request": message},
            SetHook: {
                "parent": f"tasks/{task}",
                "config_id": "other",
                "config": {
                    "name": f"{config}/other",
                    "push_notification_config": {"id": "other", "url": url},
                },
            },
            GetHook: {"name": f"{config}/{HOOK}"},
            DeleteHook: {"name": f"{config}/{HOOK}"},
            ListHooks: {"parent": f"tasks/{task}"},
            ListTasks: {},
            GetExtendedCard: {},
        }
        return made.get(op, {"name": f"tasks/{task}"})
    message = {"message_id": "m", "role": 1, "parts": [{"text": "go"}], "task_id": task}
    made = {
        SendMessage: {"message": message},
        SetHook: {"task_id": task, "id": "other", "url": url},
        GetHook: {"task_id": task, "id": HOOK},
        DeleteHook: {"task_id": task, "id": HOOK},
        ListHooks: {"task_id": task},
        ListTasks: {},
        GetExtendedCard: {},
        Invoke: {"method": RECALL},
    }
    return made.get(op, {"id": task})


def _grpc_sender(
    path: str, service: str, name: str, kind: type[Operation[Any]], *, stream: bool
) -> Callable[..., Any]:
    # Some names answer without standing in the proto; they are spelled like the one that does.
    methods = POOL.FindServiceByName(service).methods
    alike = [each for each in methods if _kind(each.name) is kind]
    alike.sort(key=lambda each: (each.name != name, each.server_streaming != stream))
    if alike:
        kinds = alike[0].input_type, alike[0].output_type
    else:  # the 0.3 proto has no list
        package = service.rpartition(".")[0]
        words = "Request", "Response"
        kinds = tuple(POOL.FindMessageTypeByName(f"{package}.ListTasks{word}") for word in words)
    request, answer = map(GetMessageClass, kinds)
    old = service.startswith("a2a.")

    async def send(
        running: GuardedServer, token: str, task_id: str, tenant: str
    ) -> tuple[int, str]:
        fields = _fields(old, kind, task_id) | ({"tenant": tenant} if tenant else {})
        metadata = tuple(_headers(token).items())
        about = {
            "request_serializer": lambda fields: request(**fields).SerializeToString(),
            "response_deserializer": answer.FromString,
        }
        try:
            if not stream:
                call = running.channel.unary_unary(path, **about)
                return 0, str(await call(fields, metadata=metadata, timeout=60))
            heard = []
            steps = running.channel.unary_stream(path, **about)(
                fields, metadata=metadata, timeout=60
            )
            async for step in steps:
                heard.append(str(step))
                if kind is Watch or len(heard) > 3:
                    steps.cancel()
                    break
            return 0, "\n".join(heard)
        except grpc.aio.AioRpcError as error:
            trailers = [
                (key, value)
                for key, value in error.trailing_metadata() or ()
                if key != "www-authenticate"
            ]
            return error.code().value[0], f"{error.details()} {trailers}"

    return send


def _headers(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


class GuardedServer:
    """A running server."""

    def __init__(self, app: App, client: httpx2.AsyncClient, channel: Any, issuer: Issuer) -> None:
        self.app, self.client, self.channel, self.issuer = app, client, channel, issuer

    def token(self, user: str = "alice", tenant: str = "acme", **claims: Any) -> str:
        return self.issuer.token(self.issuer.claims(sub=user, org=[tenant], **claims))


def make_agent() -> Agent:
    agent = Agent("Keeper", description="Keeps things to itself.")

    @agent.skill("keep")
    async def keep(turn: Turn) -> str:
        await turn.say(f"I know {turn.text}")
        answer = await turn.ask(f"More than {turn.text}?")
        return f"{turn.text} {answer}"

    kept: dict[tuple[str, str], str] = {}

    @agent.method(RECALL)
    async def recall(caller: Context, note: str = "") -> str:
        if note:
            kept[caller.tenant, caller.principal] = note
        return kept.get((caller.tenant, caller.principal), "nothing")

    @agent.skill("hidden", extended=True, scopes=("deep",))
    async def hidden(turn: Turn) -> str:
        return "deep"

    return agent


@cache
def shared_issuer() -> Issuer:
    """One for all houses: a new RSA key takes its time."""
    return Issuer()


@asynccontextmanager
async def open_server(
    folder: Path,
    agent: Agent | None = None,
    log_fd: int = 2,
    policy: CallPolicy | None = None,
    policy_rules: tuple[PolicyRule, ...] = (),
    **sections: Any,
) -> AsyncIterator[GuardedServer]:
    """A server with tokens of an issuer, over HTTP and gRPC, on free ports."""
    issuer = shared_issuer()
    scheme = Jwt(
        issuer=ISSUER, audience=(AUDIENCE,), keys_file=issuer.save(folder), tenant_claim="org"
    )
    server = Server(store="memory:", grpc_port=0, allow_private=True, grpc=True)
    settings = Settings(
        **{"server": server, "auth": {"sso": scheme}, "policy": policy_rules, **sections}
    )
    agent = agent or make_agent()
    sock = bind("127.0.0.1", 0)
    base = address(sock)
    engine = engine_for(agent, settings)
    app = App(agent, engine, settings, Log("debug", fd=log_fd), base, policy=policy)
    await app.start()
    listener = GranianServer(app, sock, settings.limits)
    listener.begin()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{app.ports['grpc']}")
    try:
        async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
            yield GuardedServer(app, client, channel, issuer)
    finally:
        await channel.close()
        listener.refuse()
        await app.stop()
        await listener.end(1)
        await turns()  # what was closed has its last turn
