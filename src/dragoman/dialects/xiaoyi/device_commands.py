"""Commands that an agent sends to the phone behind its session, such as to find its location.

They come as data of an artifact, and the phone answers with an event in a message of its own. An
agent waits a minute for that event, so a server without a phone answers at once that it has none.
"""

from __future__ import annotations

from dragoman.core.model import Json

from . import wire

NOT_AVAILABLE = 1
"""The code of a result; every code but 0 is an error."""
MAX_COMMANDS = 20
"""The commands of one frame that are answered."""


def commands_in(part: wire.PartIn) -> list[Json]:
    """Returns the commands in a part; none if it is not about commands."""
    data = part.data
    if part.text is not None or part.file is not None or not isinstance(data, dict):
        return []
    commands = data.get("commands")
    return commands[:MAX_COMMANDS] if isinstance(commands, list) else []


def refusal_of(command: Json) -> wire.Part:
    """Returns the event with which a phone says that it cannot execute a command."""
    intent = _text_at(command, "payload", "executeParam", "intentName") or _text_at(
        command, "header", "name"
    )
    outputs: dict[str, Json] = {
        "code": NOT_AVAILABLE,
        "errorMsg": "not available: there is no phone behind this session",
    }
    event: Json = {
        "header": {"namespace": "Common", "name": "UploadExeResult"},
        "payload": {"intentName": intent, "outputs": outputs},
    }
    return wire.Part("data", data={"events": [event]})


def _text_at(value: Json, *path: str) -> str:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
