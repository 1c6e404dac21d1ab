"""The requests of the doctor, written once in the form of 1.0 and translated for each version.

Only the outer structure is translated, so deliberate mistakes (a missing part, an unknown role) are
preserved.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

Args = dict[str, Any]

RPC_METHODS: dict[str, dict[str, str]] = {
    "1.0": {
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "get": "GetTask",
        "list": "ListTasks",
        "cancel": "CancelTask",
        "subscribe": "SubscribeToTask",
        "push.set": "CreateTaskPushNotificationConfig",
        "push.get": "GetTaskPushNotificationConfig",
        "push.list": "ListTaskPushNotificationConfigs",
        "push.delete": "DeleteTaskPushNotificationConfig",
        "extended": "GetExtendedAgentCard",
    },
    "0.3": {
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
        "push.set": "tasks/pushNotificationConfig/set",
        "push.get": "tasks/pushNotificationConfig/get",
        "push.list": "tasks/pushNotificationConfig/list",
        "push.delete": "tasks/pushNotificationConfig/delete",
        "extended": "agent/getAuthenticatedExtendedCard",
    },
    "0.1": {
        "send": "tasks/send",
        "stream": "tasks/sendSubscribe",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
    },
}
ROUTES: dict[str, tuple[str, str]] = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "get": ("GET", "/tasks/{id}"),
    "list": ("GET", "/tasks"),
    "cancel": ("POST", "/tasks/{id}:cancel"),
    "subscribe": ("GET", "/tasks/{id}:subscribe"),
    "push.set": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "push.get": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "push.list": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "push.delete": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "extended": ("GET", "/extendedAgentCard"),
}
OLD_ROUTES = {**ROUTES, "extended": ("GET", "/card")}
OLD_ROLES = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}


def rpc_params(version: str, op: str, args: Args) -> Args:
    """Returns the params of a JSON-RPC call."""
    if version == "1.0":
        return args
    if op in ("send", "stream"):
        return _oldest_send(args) if version == "0.1" else _old_send(args)
    if op == "push.set":
        config = {key: value for key, value in args.items() if key != "taskId"}
        return {"taskId": args["taskId"], "pushNotificationConfig": config}
    if op.startswith("push."):
        asked = {"id": args["taskId"]}
        if "id" in args:
            asked["pushNotificationConfigId"] = args["id"]
        return asked
    return args


def _old_send(args: Args) -> Args:
    params = dict(args)
    if isinstance(message := args.get("message"), dict):
        params["message"] = {"kind": "message", **_old_message(message, "kind")}
    params["configuration"] = _old_configuration(args)
    return params


def _old_configuration(args: Args) -> Args:
    configuration = dict(args.get("configuration", {}))
    configuration["blocking"] = not configuration.pop("returnImmediately", False)
    return configuration


def _old_message(message: Args, discriminator: str) -> Args:
    spelled = dict(message)
    if "role" in message:
        spelled["role"] = OLD_ROLES.get(message["role"], message["role"])
    if isinstance(message.get("parts"), list):
        spelled["parts"] = [
            {discriminator: "text" if "text" in part else "data", **part}
            for part in message["parts"]
        ]
    return spelled


def _oldest_send(args: Args) -> Args:
    message = args.get("message", {})
    spelled = _old_message(message, "type")
    kept = {key: value for key, value in spelled.items() if key in ("role", "parts", "metadata")}
    task = message.get("taskId") or f"doctor-{message.get('messageId', '')}"
    return {"id": task, "message": kept, **args.get("configuration", {})}


def rest_request(
    version: str, op: str, args: Args, *, config_alone: bool = False
) -> tuple[str, str, Args | None]:
    """Returns the method, the path with its query, and the body of a REST call.

    0.3 has two bodies that set a webhook: the whole request, as its SDK for Python reads it, and
    its `config` alone, as the annotation of its .proto says (`body: "config"`).
    """
    verb, path = (ROUTES if version == "1.0" else OLD_ROUTES)[op]
    rest = dict(args)
    for name in ("taskId", "id"):
        if "{" + name + "}" in path:
            path = path.replace("{" + name + "}", quote(str(rest.pop(name, "")), safe=""))
    if version != "1.0":
        path = "/v1" + path
        rest = _proto_args(op, {**args, **rest})
        if op == "push.set" and config_alone:
            rest = rest["config"]
    if verb == "POST":
        return verb, path, rest
    if version != "1.0":
        rest = {key: value for key, value in rest.items() if key == "historyLength"}
    query = {k: str(v).lower() if isinstance(v, bool) else v for k, v in rest.items()}
    return verb, path + (f"?{urlencode(query)}" if query else ""), None


def _proto_args(op: str, args: Args) -> Args:
    """Returns a message in the protobuf form of 0.3, as JSON."""
    if op in ("send", "stream"):
        params = dict(args)
        if isinstance(message := args.get("message"), dict):
            params["message"] = {
                "content" if key == "parts" else key: value for key, value in message.items()
            }
        params["configuration"] = _old_configuration(args)
        return params
    if op == "push.set":
        return proto_push(args)
    return {} if op == "cancel" else args


def proto_push(args: Args) -> Args:
    """Returns the request of CreateTaskPushNotificationConfig in 0.3."""
    parent = f"tasks/{args['taskId']}"
    config = {key: value for key, value in args.items() if key != "taskId"}
    name = f"{parent}/pushNotificationConfigs/{args.get('id', '')}"
    return {
        "parent": parent,
        "configId": args.get("id", ""),
        "config": {"name": name, "pushNotificationConfig": config},
    }


def grpc_request(version: str, op: str, args: Args) -> tuple[str, str, Args]:
    """Returns the path of the method, the name of the request's message, and its fields by JSON
    names."""
    if version == "1.0":
        method = RPC_METHODS["1.0"][op]
        name = "TaskPushNotificationConfig" if op == "push.set" else f"{method}Request"
        name = "SendMessageRequest" if op == "stream" else name
        return f"/lf.a2a.v1.A2AService/{method}", f"lf.a2a.v1.{name}", args
    method, name = _OLD_GRPC[op]
    if op in ("send", "stream"):
        fields = _proto_args(op, args)
        if "message" in fields:
            fields["request"] = fields.pop("message")
    elif op == "push.set":
        fields = proto_push(args)
    elif op == "push.list":
        fields = {"parent": f"tasks/{args['taskId']}"}
    elif op.startswith("push."):
        fields = {"name": f"tasks/{args['taskId']}/pushNotificationConfigs/{args['id']}"}
    elif op == "extended":
        fields = {}
    else:
        fields = {**args, "name": f"tasks/{args.get('id', '')}"}
        fields.pop("id", None)
    return f"/a2a.v1.A2AService/{method}", f"a2a.v1.{name}", fields


_OLD_GRPC = {
    "send": ("SendMessage", "SendMessageRequest"),
    "stream": ("SendStreamingMessage", "SendMessageRequest"),
    "get": ("GetTask", "GetTaskRequest"),
    "cancel": ("CancelTask", "CancelTaskRequest"),
    "subscribe": ("TaskSubscription", "TaskSubscriptionRequest"),
    "push.set": ("CreateTaskPushNotificationConfig", "CreateTaskPushNotificationConfigRequest"),
    "push.get": ("GetTaskPushNotificationConfig", "GetTaskPushNotificationConfigRequest"),
    "push.list": ("ListTaskPushNotificationConfig", "ListTaskPushNotificationConfigRequest"),
    "push.delete": ("DeleteTaskPushNotificationConfig", "DeleteTaskPushNotificationConfigRequest"),
    "extended": ("GetAgentCard", "GetAgentCardRequest"),
}
