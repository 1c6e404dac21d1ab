"""The actions of envelopes: converts actions to operations, and operations to actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from dragoman.core import json_schema
from dragoman.core.card import Card, Extension, Interface, Tool
from dragoman.core.errors import BadParams, DragomanError, PeerMisbehaved
from dragoman.core.model import AnyPart, Data, Json, Message, Role, Text
from dragoman.core.operations import (
    AnyOperation,
    CancelTask,
    GetTask,
    Invoke,
    Resolve,
    SendMessage,
    Watch,
)
from dragoman.core.questions import answer_value
from dragoman.core.session import Id, Introduction

from ..jsonrpc import check
from .decode import parts_in
from .events import FULL, THEIRS, Payload, lines_out, question_id, question_in
from .wire import Envelope, Kind

ALIASES = {"execute_task": "execute", "task_result": "done", "helo": "HELO", "hello": "HELO"}
"""The names that real hosts use, and those of the requirement."""
ACTIONS = (
    *("execute", "call_tool", "terminate", "task_status", "watch"),
    *("HELO", "register", "pulse", "grant_tool"),
)
"""The actions that an agent of ours supports."""


class Execute(Struct, frozen=True, gc=False):
    """The payload of `execute`, with members beyond the requirement."""

    query: str | None = None
    content: Json = None
    context_fragments: tuple[Json, ...] | None = None
    workspace_root: str | None = None
    skill: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    parts: tuple[AnyPart, ...] | None = None
    message: Message | None = None
    wait: bool | None = None
    history_length: int | None = None
    accepts: tuple[str, ...] | None = None
    metadata: dict[str, Json] | None = None
    open_as: str | None = None


class ToolsIn(Struct, frozen=True, gc=False):
    """The tools of any call."""

    allowed_tools: tuple[Json, ...] | None = None
    """Names of tools, or complete descriptions."""
    tools: tuple[Json, ...] | None = None


class CallTool(Struct, frozen=True, gc=False):
    """The payload of `call_tool` to an agent: one of its skills, or a method of its own."""

    tool_name: str
    arguments: Json = None
    context_id: str | None = None


class TaskIn(Struct, frozen=True, gc=False):
    """A payload that only names a task."""

    task_id: str = ""
    history_length: int | None = None
    metadata: dict[str, Json] | None = None


class IntroductionIn(Struct, frozen=True, gc=False):
    """The payload of `register` and `HELO`."""

    agent_id: str | None = None
    name: str | None = None
    description: str | None = None
    version: str | None = None
    endpoint: str | None = None
    tools: tuple[Json, ...] | None = None
    workspace_root: str | None = None
    actions: tuple[Json, ...] | None = None
    extensions: tuple[str, ...] | None = None


class ToolIn(Struct, frozen=True, gc=False):
    """A tool in any of its spellings (dialects §2.2)."""

    name: str
    description: str | None = None
    parameters: Json = None
    input_schema: Json = None
    inputSchema: Json = None  # noqa: N815  as it is spelled
    returns: Json = None
    output_schema: Json = None
    outputSchema: Json = None  # noqa: N815


_read_manifest = msgspec.json.Decoder(dict[str, Json]).decode


def execute_in(envelope: Envelope) -> SendMessage:
    """Returns the send of an `execute`."""
    found = msgspec.convert(envelope.payload, Execute)
    metadata = found.metadata
    if found.workspace_root:
        metadata = {**(metadata or {}), "workspace_root": found.workspace_root}
    return SendMessage(
        message=found.message or _message_in(envelope, found),
        wait=found.wait is not False,
        history_length=found.history_length,
        accepts=found.accepts or (),
        metadata=metadata,
        context=found.context_fragments or (),
        open_as=found.open_as or "",
    )


def _message_in(envelope: Envelope, found: Execute) -> Message:
    parts = found.parts or ()
    words = found.query if found.query is not None else found.content
    if isinstance(words, str):
        parts = (Text(words), *parts)
    elif words is not None:
        parts = (Data(words), *parts)
    if not parts:
        raise BadParams("execute needs a query", field="payload.query")
    return Message(
        message_id=envelope.id or "1",
        role=Role.USER,
        parts=parts,
        task_id=found.task_id or "",
        context_id=found.context_id or "",
        metadata={"skillId": found.skill} if found.skill else None,
    )


class Offer(Struct, frozen=True, gc=False):
    """The tools of a call, as far as the call itself names them."""

    allowed: tuple[Tool, ...] | None = None
    """The names of the allowed tools; None if the call names none."""
    described: tuple[Tool, ...] | None = None

    def tools(self, known: tuple[Tool, ...], granted: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """Returns the allowed tools, as described in the call or earlier by its sender."""
        if self.allowed is None:
            return granted if self.described is None else self.described
        described = {tool.name: tool for tool in (*known, *granted, *(self.described or ()))}
        return tuple(described.get(tool.name, tool) for tool in self.allowed)


NO_OFFER = Offer()


def offer_in(envelope: Envelope) -> Offer:
    """Returns the tools that a call names or describes. Raises `msgspec.ValidationError` or
    `BadParams` if they are not valid."""
    if envelope.payload.keys().isdisjoint(("allowed_tools", "tools")):
        return NO_OFFER
    found = msgspec.convert(envelope.payload, ToolsIn)
    return Offer(
        None if found.allowed_tools is None else tools_in(found.allowed_tools),
        None if found.tools is None else tools_in(found.tools),
    )


def tools_in(values: Iterable[Json]) -> tuple[Tool, ...]:
    """Returns the described tools. Raises `BadParams` for an invalid schema (R04)."""
    found: list[Tool] = []
    for each in values:
        try:
            given = msgspec.convert({"name": each} if isinstance(each, str) else each, ToolIn)
        except msgspec.ValidationError as exc:
            raise BadParams(str(exc), field="payload.tools") from None
        taken = _first(given.parameters, given.input_schema, given.inputSchema)
        gives = _first(given.returns, given.output_schema, given.outputSchema)
        json_schema.check(taken)
        json_schema.check(gives)
        found.append(
            Tool(
                name=given.name,
                description=given.description or "",
                parameters=taken,
                returns=gives,
            )
        )
    return tuple(found)


def _first(*values: Json) -> Json:
    return next((each for each in values if each is not None), None)


def tools_out(tools: Iterable[Tool]) -> list[Json]:
    """Describes tools, always with both schemas."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": {"type": "object"} if tool.parameters is None else tool.parameters,
            "returns": {} if tool.returns is None else tool.returns,
        }
        for tool in tools
    ]


def call_tool_in(envelope: Envelope) -> SendMessage | Invoke:
    """Returns the operation of a `call_tool`: a skill, or a method with a namespace."""
    found = msgspec.convert(envelope.payload, CallTool)
    if "/" in found.tool_name:
        return Invoke(method=found.tool_name, params=found.arguments)
    return SendMessage(
        message=Message(
            message_id=envelope.id or "1",
            role=Role.USER,
            parts=(Data({} if found.arguments is None else found.arguments),),
            context_id=found.context_id or "",
            metadata={"skillId": found.tool_name},
        )
    )


def _task_in(envelope: Envelope) -> TaskIn:
    found = msgspec.convert(envelope.payload, TaskIn)
    if not found.task_id:
        raise BadParams(f"{envelope.action} needs a task_id", field="payload.task_id")
    return found


def status_in(envelope: Envelope) -> GetTask:
    """Returns the operation of a `task_status`."""
    found = _task_in(envelope)
    return GetTask(task_id=found.task_id, history_length=found.history_length)


def watch_in(envelope: Envelope) -> Watch:
    """Returns the operation of a `watch`, which continues a broken stream."""
    return Watch(task_id=_task_in(envelope).task_id)


def terminate_in(envelope: Envelope) -> CancelTask:
    """Returns the operation of a `terminate` of one task."""
    found = _task_in(envelope)
    return CancelTask(task_id=found.task_id, metadata=found.metadata)


def resolve_in(envelope: Envelope) -> Resolve:
    """Returns the operation of an answer to a question of a run."""
    payload = envelope.payload
    task_id, question = question_in(envelope.parent)
    if not task_id:
        named = payload.get("approval_id")
        task_id, question = question_in(named if isinstance(named, str) else "")
    if not task_id or not question:
        raise BadParams("This response answers no question of ours", field="header.parent_id")
    parts = parts_in(payload)
    if parts and payload.keys().isdisjoint(_DECISIONS):
        # The text beside them is for readers that know nothing of parts.
        return Resolve(task_id=task_id, question=question, value=None, parts=parts)
    return Resolve(task_id=task_id, question=question, value=_value_in(payload), parts=parts)


_DECISIONS = frozenset(("approved", "result", "error"))
"""What answers an approval or a tool call, whatever stands beside it."""


def _value_in(payload: Payload) -> Json:
    if "value" in payload:
        return payload["value"]
    if "approved" in payload:  # R06; anything but a clear yes is a no: approvals fail closed
        return {**_bare(payload), "approved": payload["approved"] is True}
    for key in ("result", "error"):
        if key in payload:
            return {key: payload[key]}
    return _bare(payload)


def _bare(payload: Payload) -> Payload:
    ours = {"action", "detail", "approval_id", "task_id", "parts"}
    return {key: value for key, value in payload.items() if key not in ours}


CALLS: dict[str, tuple[Callable[[Envelope], AnyOperation], bool]] = {
    "execute": (execute_in, True),
    "call_tool": (call_tool_in, False),
    "task_status": (status_in, False),
    "watch": (watch_in, True),
    "terminate": (terminate_in, False),
}
"""The operation of each action, and whether its answer may be a stream."""


def introduction_in(id: Id, envelope: Envelope) -> Introduction:
    """Decodes the introduction in a `register` or `HELO` message."""
    found = msgspec.convert(envelope.payload, IntroductionIn)
    who = found.agent_id or envelope.sender
    if not who:
        raise BadParams(f"{envelope.action} needs an agent_id", field="payload.agent_id")
    card = Card(
        name=found.name or who,
        description=found.description or "",
        version=found.version or "",
        interfaces=(Interface(url=found.endpoint, binding="IAT", version="1"),)
        if found.endpoint
        else (),
        extensions=tuple(Extension(uri=uri) for uri in found.extensions or ()),
    )
    tools = tools_in(found.tools or ())
    # An agent that names no capabilities may be called; a mere client declares that it has none.
    asked = found.actions is None or bool(found.actions)
    return Introduction(id, who, card, tools, found.workspace_root or "", asked)


def manifest_in(body: bytes) -> Introduction:
    """Returns the agent that a manifest describes. Raises `PeerMisbehaved` if the body is not a
    manifest."""
    try:
        check(body)
        return introduction_in(None, Envelope(kind=Kind.RESPONSE, payload=_read_manifest(body)))
    except (DragomanError, msgspec.DecodeError, RecursionError) as exc:
        raise PeerMisbehaved(f"This is not a manifest: {exc}") from None


def grant_in(id: Id, envelope: Envelope) -> Introduction:
    """Returns one more tool, which is named or described."""
    tool = envelope.payload.get("tool", envelope.payload.get("content"))
    if not isinstance(tool, str | dict):
        raise BadParams("grant_tool needs a tool", field="payload.tool")
    return Introduction(id, envelope.sender, None, tools_in((tool,)))


def introduction_out(ours: Introduction) -> Payload:
    """Returns the payload of our introduction."""
    card = ours.card
    actions = [*ACTIONS] if ours.callable else []
    payload: Payload = {"agent_id": ours.who, "tools": tools_out(ours.tools), "actions": actions}
    if card is not None:
        payload |= {"name": card.name, "description": card.description, "version": card.version}
        if card.interfaces:
            payload["endpoint"] = card.interfaces[0].url
        if card.extensions:
            payload["extensions"] = [extension.uri for extension in card.extensions]
    if ours.workspace:
        payload["workspace_root"] = ours.workspace
    return payload


# Asking.


def operation_out(op: AnyOperation) -> tuple[str, Payload] | None:
    """Returns the action and the payload of an operation, or None if IAT cannot express it."""
    match op:
        case SendMessage():
            return "execute", FULL | _execute_out(op)
        case GetTask(task_id=task_id, history_length=length):
            return "task_status", FULL | _drop_none(task_id=task_id, history_length=length)
        case Watch(task_id=task_id):
            return "watch", FULL | {"task_id": task_id}
        case CancelTask(task_id=task_id, metadata=metadata):
            return "terminate", FULL | _drop_none(task_id=task_id, metadata=metadata)
        case Invoke(method=method, params=params):
            return "call_tool", {"tool_name": method, "arguments": params}
        case _:
            return None


def _execute_out(op: SendMessage) -> Payload:
    root = (op.metadata or {}).get("workspace_root")
    return {
        # The text alone is what agents read that know the requirement and nothing else.
        "query": lines_out(op.message.parts),
        "message": msgspec.to_builtins(op.message),
        **_drop_none(
            wait=None if op.wait else False,
            history_length=op.history_length,
            accepts=list(op.accepts) or None,
            metadata=op.metadata,
            workspace_root=root if isinstance(root, str) else None,
            context_fragments=list(op.context) or None,
            open_as=op.open_as or None,
        ),
    }


def _drop_none(**members: Json) -> Payload:
    return {key: value for key, value in members.items() if value is not None}


def resolve_out(op: Resolve) -> tuple[str, Payload]:
    """Returns the payload of an answer, and the question that it answers."""
    theirs = op.question.removeprefix(THEIRS)
    parent = theirs if theirs != op.question else question_id(op.task_id, op.question)
    value = answer_value(op.value)
    said: Payload = FULL | {"value": value}
    if isinstance(value, dict) and value.keys() & _DECISIONS:
        said = FULL | value
    alone = Text(value) if isinstance(value, str) else Data(value)
    if not op.parts or op.parts == (alone,):
        return parent, said
    if "value" in said and any(isinstance(part, Text) for part in op.parts):
        said["value"] = lines_out(op.parts)
    return parent, said | {"parts": msgspec.to_builtins(op.parts)}
