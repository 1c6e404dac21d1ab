"""The spelling of our errors in A2A 0.1, where -32006 and below had other meanings (a2a-wire
§9)."""

from __future__ import annotations

from dragoman.core import errors as e
from dragoman.core.model import Json
from dragoman.core.task_names import called

from ...errors import SPELLINGS as LATER
from ...errors import Spelling, details_0_3

SPELLINGS: dict[type[e.DragomanError], Spelling] = LATER | {
    # An error that 0.1 does not have is sent as its base class: not supported, or our own failure.
    e.AgentMisbehaved: LATER[e.DragomanError],
    e.PeerMisbehaved: LATER[e.DragomanError],
    e.NoExtendedCard: LATER[e.Unsupported],
    e.ExtensionRequired: LATER[e.Unsupported],
    e.VersionUnsupported: LATER[e.Unsupported],
    e.Unauthenticated: Spelling(-32007, "AUTHENTICATION_REQUIRED", 401, "UNAUTHENTICATED", 401),
    e.Forbidden: Spelling(-32008, "AUTHORIZATION_FAILED", 403, "PERMISSION_DENIED", 403),
    e.TaskFinished: Spelling(-32009, "INVALID_TASK_STATE", 400),
    e.TooMany: Spelling(-32010, "RATE_LIMIT_EXCEEDED", 429, "RESOURCE_EXHAUSTED", 429),
    e.StoreUnavailable: Spelling(-32011, "RESOURCE_UNAVAILABLE", 503, "UNAVAILABLE", 503),
    e.PeerUnreachable: Spelling(-32011, "RESOURCE_UNAVAILABLE", 503, "UNAVAILABLE", 503),
}
MEANINGS: dict[int, type[e.DragomanError]] = {
    spelling.code: cls for cls, spelling in reversed(SPELLINGS.items())
}
"""The errors by code; if several errors share a code, it means the first one."""
del MEANINGS[SPELLINGS[e.DragomanError].code]
MEANINGS[-32006] = e.Unsupported  # it means that streaming is not supported


def details(error: e.DragomanError) -> Json:
    """Returns `error.data`: the public details, in which tasks have the names that their callers
    gave them."""
    public = details_0_3(error)
    return {key: called(value) for key, value in public.items()} if public else None
