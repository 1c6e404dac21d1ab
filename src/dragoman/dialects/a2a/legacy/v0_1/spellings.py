"""How A2A 0.1 spells our errors: -32006 and below meant other things then (a2a-wire §9)."""

from __future__ import annotations

from dragoman.core import errors as e
from dragoman.core.model import Json
from dragoman.core.task_names import called

from ...errors import SPELLINGS as LATER
from ...errors import Spelling, details_0_3

SPELLINGS: dict[type[e.DragomanError], Spelling] = LATER | {
    # What 0.1 has no word for is what it is made of: not supported, or our own fault.
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
"""The first class of a code is what is heard in it."""
del MEANINGS[SPELLINGS[e.DragomanError].code]
MEANINGS[-32006] = e.Unsupported  # streaming is


def details(error: e.DragomanError) -> Json:
    """`error.data`: the public details, with tasks called as their callers do."""
    public = details_0_3(error)
    return {key: called(value) for key, value in public.items()} if public else None
