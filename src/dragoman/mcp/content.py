"""What a task or a reply says, as the result of an MCP tool, and the other way round."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from urllib.parse import quote, unquote

import msgspec
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from dragoman.agent.mcp_calls import McpResult
from dragoman.core.errors import PeerMisbehaved
from dragoman.core.model import AnyPart, Blob, Data, Json, Link, Message, State, Task, Text
from dragoman.core.questions import Question

from .tools import ANSWER

TASK = "dragoman/taskId"
"""In the `_meta` of a result: the id of the task that was done."""
OVER = {
    State.FAILED: "The task failed",
    State.REJECTED: "The agent rejected the task",
    State.CANCELED: "The task was canceled",
}


def result_of(found: Task | Message) -> CallToolResult:
    """Returns the result of a call: the reply, or the finished task. A task that did not complete
    is an error with its reason."""
    if isinstance(found, Message):
        return _result(found.parts)
    meta = {TASK: found.id}
    if found.state is State.COMPLETED:
        made = [part for artifact in found.artifacts for part in artifact.parts]
        return _result([*made, *(found.answer.parts if found.answer is not None else ())], meta)
    said = found.status.text
    what = OVER.get(found.state, f"The task is {found.state.value}")
    return refusal(f"{what}: {said}" if said else f"{what}.", meta)


def result_in(result: CallToolResult) -> McpResult:
    """Returns the result of a tool that a skill has called."""
    return McpResult(tuple(map(_part_in, result.content)), result.structured_content)


def _part_in(block: ContentBlock) -> AnyPart:
    match block:
        case TextContent(text=text):
            return Text(text)
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return Blob(_bytes(data), media_type=kind)
        case ResourceLink(uri=uri):
            return Link(uri, filename=block.name, media_type=block.mime_type or "")
        case EmbeddedResource(resource=TextResourceContents(text=text) as found):
            return Text(text, filename=_last(found.uri), media_type=found.mime_type or "")
        case EmbeddedResource(resource=BlobResourceContents(blob=blob) as found):
            content = _bytes(blob)
            return Blob(content, filename=_last(found.uri), media_type=found.mime_type or "")
    raise PeerMisbehaved("The tool returned content of an unknown kind")


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise PeerMisbehaved("The tool returned a file that is not Base64") from None


def _last(uri: str) -> str:
    return unquote(uri.rstrip("/").rpartition("/")[2])


def refusal(words: str, meta: dict[str, Json] | None = None) -> CallToolResult:
    """Returns the result of a call that did not succeed. Models read it, and may do better."""
    return CallToolResult(content=[_text(words)], is_error=True, _meta=meta)


def open_question(question: Question, reference: str) -> CallToolResult:
    """Returns the result of a call whose task waits for an answer, which nobody could be asked for.
    It says how to give the answer later."""
    words = [f"The task is not finished. The agent asks: {question_words(question)}"]
    if answerable(question):
        words.append(
            "Ask the user unless you know the answer, then call the tool "
            f"`{ANSWER}` with task_id={reference!r} and the answer."
        )
    else:
        words.append(
            "MCP must not carry credentials. Give them to the agent in another way; the task "
            f"{reference!r} goes on when it has them."
        )
    about = {
        "task_id": reference,
        "kind": question.kind.value,
        "question": question.prompt,
        "details": question.details,
    }
    return CallToolResult(
        content=[_text("\n".join(words)), *_blocks(question.more, "")], structured_content=about
    )


def answerable(question: Question) -> bool:
    """Returns whether the answer may pass through an MCP client. Its forms must not ask for
    secrets, and what a model is told is no secret any more."""
    return question.kind.value != "credentials"


def question_words(question: Question) -> str:
    """Returns what is asked, with the details that the answer is about."""
    words = question.prompt or "more input"
    return words if question.details is None else f"{words}\n{_json(question.details)}"


def _result(parts: Sequence[AnyPart], meta: dict[str, Json] | None = None) -> CallToolResult:
    values = [part.value for part in parts if isinstance(part, Data)]
    # Before 2026-07-28, structured content is an object.
    structured = values[0] if len(values) == 1 and isinstance(values[0], dict) else None
    task = str((meta or {}).get(TASK, ""))
    return CallToolResult(content=_blocks(parts, task), structured_content=structured, _meta=meta)


def _blocks(parts: Sequence[AnyPart], task: str) -> list[ContentBlock]:
    found: list[ContentBlock] = []
    growing = False
    for part in parts:
        match part:
            case Text(text=text) if growing and isinstance(found[-1], TextContent):
                found[-1].text += text  # chunks of one artifact are one text
            case Text(text=text):
                found.append(_text(text))
            case Data(value=value):
                found.append(_text(_json(value)))
            case Blob():
                found.append(_file(part, f"task:{quote(task)}/{len(found) + 1}"))
            case Link(url=url):
                found.append(
                    ResourceLink(
                        uri=url,
                        name=part.filename or url,
                        mime_type=part.media_type or None,
                    )
                )
        growing = isinstance(part, Text)
    return found


def _file(part: Blob, place: str) -> ContentBlock:
    kind = part.media_type or "application/octet-stream"
    if kind.startswith("image/"):
        return ImageContent(data=b64encode(part.content).decode(), mime_type=kind)
    if kind.startswith("audio/"):
        return AudioContent(data=b64encode(part.content).decode(), mime_type=kind)
    uri = f"{place}/{quote(part.filename or 'file')}"
    if kind.startswith("text/"):
        try:
            text = part.content.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            return EmbeddedResource(
                resource=TextResourceContents(uri=uri, mime_type=kind, text=text)
            )
    blob = b64encode(part.content).decode()
    return EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=kind, blob=blob))


def _text(words: str) -> TextContent:
    return TextContent(text=words)


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
