"""The OpenAPI 3.1 document of an agent's REST binding, made from the same tables that serve it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from dragoman.core.card import Card

from .cards import documents
from .cards.canonical import document_in
from .rest import A2A_JSON
from .routes import REST_1_0, RestRoute
from .v1_0 import wire
from .v1_0.calls import METHODS
from .v1_0.convert import STATES_OUT

Schema = dict[str, Any]
_REF = "#/components/schemas/{name}"
_RENAMED = {
    "SendParams": "SendMessageRequest",
    "CancelParams": "CancelTaskRequest",
    "WatchParams": "SubscribeToTaskRequest",
    "PushConfig": "TaskPushNotificationConfig",
    "Step": "StreamResponse",
    "Page": "ListTasksResponse",
    "PushPage": "ListTaskPushNotificationConfigsResponse",
    "Authentication": "AuthenticationInfo",
    "Configuration": "SendMessageConfiguration",
    "Status": "TaskStatus",
    "StatusUpdate": "TaskStatusUpdateEvent",
    "ArtifactUpdate": "TaskArtifactUpdateEvent",
}
"""The names of the specification for our structs."""
_ANSWERS: dict[str, type[msgspec.Struct]] = {
    "SendMessage": wire.Step,
    "SendStreamingMessage": wire.Step,
    "SubscribeToTask": wire.Step,
    "GetTask": wire.Task,
    "CancelTask": wire.Task,
    "ListTasks": wire.Page,
    "CreateTaskPushNotificationConfig": wire.PushConfig,
    "GetTaskPushNotificationConfig": wire.PushConfig,
    "ListTaskPushNotificationConfigs": wire.PushPage,
}
_ABOUT = {
    "SendMessage": "Sends a message, and waits until the task rests",
    "SendStreamingMessage": "Sends a message, and streams the events of the task",
    "SubscribeToTask": "Streams the events of a task",
    "GetTask": "Returns a task",
    "ListTasks": "Lists your tasks",
    "CancelTask": "Cancels a task",
    "CreateTaskPushNotificationConfig": "Registers a webhook for a task",
    "GetTaskPushNotificationConfig": "Returns a webhook of a task",
    "ListTaskPushNotificationConfigs": "Lists the webhooks of a task",
    "DeleteTaskPushNotificationConfig": "Deletes a webhook of a task",
    "GetExtendedAgentCard": "Returns the card for authenticated callers",
}
_OURS = frozenset(("title", "default", "description"))
"""What is said of our structs, and not of the objects of the specification."""
_ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "status": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "array", "items": {"type": "object"}},
            },
        }
    },
}


def document(card: Card, url: str) -> bytes:
    """Returns the document for the agent at `url`."""
    older = document_in(documents.legacy(card))  # 0.3 has the security objects of OpenAPI
    components: Schema = {"schemas": _schemas()}
    made: Schema = {
        "openapi": "3.1.0",
        "info": {"title": card.name, "description": _description(card), "version": card.version},
        "servers": [{"url": url.rstrip("/")}],
        "paths": _paths(card),
        "components": components,
    }
    if schemes := older.get("securitySchemes"):
        components["securitySchemes"] = schemes
        made["security"] = older.get("security") or [{}]
    return msgspec.json.encode(made)


def _description(card: Card) -> str:
    skills = [f"- `{skill.id}`: {skill.description or skill.name}" for skill in card.skills]
    named = "\n\nSkills (`message.metadata.skillId`):\n\n" + "\n".join(skills) if skills else ""
    return card.description + named


def _schemas() -> Schema:
    posted = [route for route in REST_1_0.routes if route.verb == "POST"]
    types = {*_ANSWERS.values(), *(route.method.params for route in posted)}
    ordered = sorted(types, key=lambda each: each.__name__)
    _, found = msgspec.json.schema_components(ordered, ref_template=_REF)
    used = {name: _plain(schema) for name, schema in found.items()}
    for route in posted:  # what the path says need not be in the body
        body = used[route.method.params.__name__]
        body["required"] = [name for name in body["required"] if name not in route.ids]
    del used["Part"]["properties"]["file"]  # only read, to be refused
    used["Status"]["properties"]["state"] = {"type": "string", "enum": [*STATES_OUT.values()]}
    named = {_RENAMED.get(name, name): schema for name, schema in used.items()}
    return {**named, "Error": _ERROR}


def _plain(schema: Any) -> Any:
    """Returns a schema of what we write, without the other spellings that we read: twins in
    snake_case, enums as numbers, numbers as texts and null for what is absent."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        types = {each.get("type") for each in kinds}
        if "integer" in types and "string" in types:
            wanted = "integer" if "number" in types else "string"
            kinds = [{"type": wanted}]
        return _plain(kinds[0]) if len(kinds) == 1 else {"anyOf": _plain(kinds)}
    made = {key: _plain(value) for key, value in schema.items() if key not in _OURS}
    if "$ref" in made:
        name = made["$ref"].rpartition("/")[2]
        made["$ref"] = _REF.format(name=_RENAMED.get(name, name))
    if isinstance(properties := schema.get("properties"), dict):
        known = {name: value for name, value in properties.items() if "_" not in name}
        made["properties"] = {name: _plain(value) for name, value in known.items()}
    return made


def _paths(card: Card) -> Schema:
    names = {id(method): name for name, method in reversed(METHODS.items())}
    paths: Schema = {}
    for route in REST_1_0.routes:
        name = names[id(route.method)]
        if route.method.stream and not card.streaming:
            continue
        paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route, name)
    return paths


def _operation(route: RestRoute, name: str) -> Schema:
    answer: Schema = {"description": "The answer"}
    if (kind := _ANSWERS.get(name)) is not None:
        media = "text/event-stream" if route.method.stream else "application/json"
        answer["content"] = {media: {"schema": _ref(kind)}}
    error = {"description": "An error", "content": {A2A_JSON: {"schema": _ref_to("Error")}}}
    made: Schema = {
        # GET and POST of one path may mean the same, but ids must differ.
        "operationId": name if route.verb != "GET" or not route.method.stream else f"{name}ByGet",
        "summary": _ABOUT[name],
        "parameters": [*_parameters(route)],
        "responses": {"200": answer, "default": error},
    }
    if route.verb == "POST":
        body = {"application/json": {"schema": _ref(route.method.params)}}
        made["requestBody"] = {"required": not route.ids, "content": body}
    return made


def _parameters(route: RestRoute) -> Iterator[Schema]:
    for name in re.findall(r"\{(\w+)\}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    if route.verb == "GET":
        _, found = msgspec.json.schema_components((route.method.params,), ref_template=_REF)
        properties = _plain(found[route.method.params.__name__])["properties"]
        for name, schema in properties.items():
            if name not in (*route.ids, "tenant"):
                yield {"name": name, "in": "query", "schema": schema}
    version = {"type": "string", "default": "1.0"}
    yield {"name": "A2A-Version", "in": "header", "schema": version}


def _ref(kind: type[msgspec.Struct]) -> Schema:
    return _ref_to(_RENAMED.get(kind.__name__, kind.__name__))


def _ref_to(name: str) -> Schema:
    return {"$ref": _REF.format(name=name)}
