"""A2A 0.3 over HTTP+JSON: its own objects, below `/v1`."""

from ... import errors
from ...version import Version
from . import calls, hooks
from .calls import event_in, event_out

V0_3_REST = Version(
    name="0.3",
    dialect="a2a-0.3-rest",
    extensions_header="x-a2a-extensions",
    methods={},
    event_out=event_out,
    event_in=event_in,
    spellings=errors.SPELLINGS_0_3,
    details=errors.details_0_3,
)

_CONFIGS = "/tasks/{id}/pushNotificationConfigs"
_CONFIG = f"{_CONFIGS}/{{pushNotificationConfigId}}"

ROUTES = (
    ("POST", "/message:send", calls.SEND),
    ("POST", "/message:stream", calls.STREAM),
    ("GET", "/tasks/{id}", calls.GET),
    ("GET", "/tasks", calls.LIST),
    ("POST", "/tasks/{id}:cancel", calls.CANCEL),
    # It is GET in the .proto and POST in the text; servers of the time know only GET.
    ("GET", "/tasks/{id}:subscribe", calls.WATCH),
    ("POST", "/tasks/{id}:subscribe", calls.WATCH),
    ("POST", _CONFIGS, hooks.SET),
    ("GET", _CONFIG, hooks.GET),
    ("GET", _CONFIGS, hooks.LIST),
    ("DELETE", _CONFIG, hooks.DELETE),
    ("GET", "/card", calls.CARD),
)
"""The routes. If two have the same meaning, our callers use the first."""

ROUTES_BARE = (("POST", _CONFIGS, hooks.SET_BARE),)
"""The routes that some servers read differently: as the annotations of the .proto say, and unlike
a2a-sdk."""
