"""A2A 0.3 over HTTP+JSON: its own shapes, beneath `/v1`."""

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
    # GET in the .proto, POST in the text; servers of the time know only the first.
    ("GET", "/tasks/{id}:subscribe", calls.WATCH),
    ("POST", "/tasks/{id}:subscribe", calls.WATCH),
    ("POST", _CONFIGS, hooks.SET),
    ("GET", _CONFIG, hooks.GET),
    ("GET", _CONFIGS, hooks.LIST),
    ("DELETE", _CONFIG, hooks.DELETE),
    ("GET", "/card", calls.CARD),
)
"""Of two ways to ask the same, the first is ours."""

ROUTES_BARE = (("POST", _CONFIGS, hooks.SET_BARE),)
"""What some servers read in another way: as the .proto's annotations say, and a2a-sdk does not."""
