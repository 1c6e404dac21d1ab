"""A2A 1.0 over HTTP+JSON: the objects of JSON-RPC, with a path for each method (1.0 §11.3)."""

from msgspec.structs import replace

from . import V1_0

V1_0_REST = replace(V1_0, dialect="a2a-1.0-rest")

_CONFIGS = "/tasks/{taskId}/pushNotificationConfigs"
_CONFIG = f"{_CONFIGS}/{{id}}"
_METHODS = V1_0.methods

ROUTES = (
    ("POST", "/message:send", _METHODS["SendMessage"]),
    ("POST", "/message:stream", _METHODS["SendStreamingMessage"]),
    ("GET", "/tasks/{id}", _METHODS["GetTask"]),
    ("GET", "/tasks", _METHODS["ListTasks"]),
    ("POST", "/tasks/{id}:cancel", _METHODS["CancelTask"]),
    # It is POST in the text and in all clients, and GET in the .proto.
    ("POST", "/tasks/{id}:subscribe", _METHODS["SubscribeToTask"]),
    ("GET", "/tasks/{id}:subscribe", _METHODS["SubscribeToTask"]),
    ("POST", _CONFIGS, _METHODS["CreateTaskPushNotificationConfig"]),
    ("GET", _CONFIG, _METHODS["GetTaskPushNotificationConfig"]),
    ("GET", _CONFIGS, _METHODS["ListTaskPushNotificationConfigs"]),
    ("DELETE", _CONFIG, _METHODS["DeleteTaskPushNotificationConfig"]),
    ("GET", "/extendedAgentCard", _METHODS["GetExtendedAgentCard"]),
)
"""The routes. If two have the same meaning, our callers use the first."""
