"""The JSON Schema of cards in the source document, member by member."""

from __future__ import annotations

from dragoman.core.model import Json

MODES = ("text", "file", "image", "audio", "video")

_STRING = {"type": "string"}
_BOOLEAN = {"type": "boolean"}
_MODES = {"type": "array", "items": {"type": "string", "enum": list(MODES)}}
_AGENT = {
    "type": "object",
    "required": ["id", "name", "framework"],
    "properties": {
        "id": _STRING,
        "name": _STRING,
        "framework": {"type": "string", "enum": ["clawdbot", "openclaw", "other"]},
        "version": _STRING,
    },
}
_SKILL = {
    "type": "object",
    "required": ["id", "name", "description"],
    "properties": {
        "id": _STRING,
        "name": _STRING,
        "description": _STRING,
        "inputModes": _MODES,
        "outputModes": _MODES,
    },
}
SCHEMA: Json = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["protocol", "agent", "skills"],
    "properties": {
        "protocol": {"type": "string", "pattern": r"^a2a-lite/[0-9]+\.[0-9]+$"},
        "agent": _AGENT,
        "description": _STRING,
        "skills": {"type": "array", "items": _SKILL},
        "capabilities": {
            "type": "object",
            "properties": {
                "streaming": _BOOLEAN,
                "fileTransfer": _BOOLEAN,
                "asyncTasks": _BOOLEAN,
                "pushNotifications": _BOOLEAN,
            },
        },
        "limits": {
            "type": "object",
            "properties": {"maxFileSize": _STRING, "maxConcurrentTasks": {"type": "integer"}},
        },
        "channels": {"type": "array", "items": _STRING},
        "contact": {"type": "object", "properties": {"human": _STRING, "timezone": _STRING}},
    },
}
"""A card that we write is valid against it. A card that is not is read as far as possible."""
