"""The JSON Schema of cards in the source document, member by member."""

from __future__ import annotations

from dragoman.core.model import Json

MODES = ("text", "file", "image", "audio", "video")

_STRING: Json = {"type": "string"}
_BOOLEAN: Json = {"type": "boolean"}
_MODES: Json = {"type": "array", "items": {"type": "string", "enum": list(MODES)}}
_NAMED: dict[str, Json] = {"id": _STRING, "name": _STRING}


def _object(*required: str, **properties: Json) -> dict[str, Json]:
    rest: dict[str, Json] = {"required": list(required)} if required else {}
    return {"type": "object", **rest, "properties": properties}


_AGENT = _object(
    *("id", "name", "framework"),
    **_NAMED,
    framework={"type": "string", "enum": ["clawdbot", "openclaw", "other"]},
    version=_STRING,
)
_SKILL = _object(
    *("id", "name", "description"),
    **_NAMED,
    description=_STRING,
    inputModes=_MODES,
    outputModes=_MODES,
)
_CAPABILITIES = ("streaming", "fileTransfer", "asyncTasks", "pushNotifications")
SCHEMA: Json = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **_object(
        *("protocol", "agent", "skills"),
        protocol={"type": "string", "pattern": r"^a2a-lite/[0-9]+\.[0-9]+$"},
        agent=_AGENT,
        description=_STRING,
        skills={"type": "array", "items": _SKILL},
        capabilities=_object(**dict.fromkeys(_CAPABILITIES, _BOOLEAN)),
        limits=_object(maxFileSize=_STRING, maxConcurrentTasks={"type": "integer"}),
        channels={"type": "array", "items": _STRING},
        contact=_object(human=_STRING, timezone=_STRING),
    ),
}
"""A card that we write is valid against it. A card that is not is read as far as possible."""
