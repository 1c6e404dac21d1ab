"""A2A 1.0 over HTTP+JSON: the shapes of JSON-RPC, found by path (1.0 §11.3)."""

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
    # POST in the text and in all clients, GET in the .proto.
    ("POST", "/tasks/{id}:subscribe", _METHODS["SubscribeToTask"]),
    ("GET", "/tasks/{id}:subscribe", _METHODS["SubscribeToTask"]),
    ("POST", _CONFIGS, _METHODS["CreateTaskPushNotificationConfig"]),
    ("GET", _CONFIG, _METHODS["GetTaskPushNotificationConfig"]),
    ("GET", _CONFIGS, _METHODS["ListTaskPushNotificationConfigs"]),
    ("DELETE", _CONFIG, _METHODS["DeleteTaskPushNotificationConfig"]),
    ("GET", "/extendedAgentCard", _METHODS["GetExtendedAgentCard"]),
)
"""Of two ways to ask the same, the first is ours."""
