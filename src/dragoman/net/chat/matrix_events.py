"""What Matrix events say. Nothing here does I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from .channel import ChatFile, ChatMessage, mentions

FILES = ("m.file", "m.image", "m.audio", "m.video")
_MXC = re.compile(r"mxc://([A-Za-z0-9.:\[\]-]+)/([A-Za-z0-9_-]+)")
_ROOM_ID = re.compile(r"![^\s\x00-\x1f]{1,254}")
_USER_ID = re.compile(r"@[a-z0-9._=/+-]{1,200}:[A-Za-z0-9.:\[\]-]{1,200}")
_FALLBACK = re.compile(r"\A(?:>[^\n]*\n)+\n?")


class _Info(Struct):
    mimetype: str = ""
    size: int | None = None


class _InReplyTo(Struct):
    event_id: str = ""


class _Relation(Struct, rename={"in_reply_to": "m.in_reply_to"}):
    rel_type: str = ""
    in_reply_to: _InReplyTo | None = None


class _Mentions(Struct):
    user_ids: list[str] = []


class _Content(Struct, rename={"relates_to": "m.relates_to", "mentions": "m.mentions"}):
    msgtype: str
    body: str
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    info: _Info | None = None
    relates_to: _Relation | None = None
    mentions: _Mentions | None = None


class _Event(Struct):
    event_id: str
    sender: str
    type: str
    content: dict[str, Any]
    origin_server_ts: int = 0
    state_key: str | None = None
    unsigned: dict[str, Any] = {}


def message_in(
    source: Mapping[str, Any], *, room: str, me: str, name: str, authors: Mapping[str, str]
) -> ChatMessage | None:
    """Returns what somebody else said, or None if the event is something else, or an edit.

    `name` is our display name, and `authors` tells the senders of messages that may be replied
    to."""
    try:
        event = msgspec.convert(source, _Event)
        if event.type != "m.room.message" or event.sender == me:
            return None
        content = msgspec.convert(event.content, _Content)
    except msgspec.ValidationError:
        return None
    relation = content.relates_to or _Relation()
    if relation.rel_type == "m.replace":
        return None
    reply_to = relation.in_reply_to.event_id if relation.in_reply_to else ""
    text = content.body
    files: tuple[ChatFile, ...] = ()
    if content.msgtype in FILES:
        if not _MXC.fullmatch(content.url):
            return None  # an encrypted file, or none
        file = _file(content)
        # A body beside a file name is a caption (Matrix 1.10).
        text, files = (text if content.filename and text != content.filename else ""), (file,)
    elif reply_to:
        text = _FALLBACK.sub("", text)  # the quote that older clients put before a reply
    named = me in (content.mentions.user_ids if content.mentions else ())
    pilled = f"https://matrix.to/#/{me}" in content.formatted_body
    in_text = me in text or (bool(name) and mentions(name, text))
    return ChatMessage(
        id=event.event_id,
        room=room,
        sender=event.sender,
        text=text,
        files=files,
        mentioned=named or pilled or in_text or authors.get(reply_to) == me,
        from_bot=content.msgtype == "m.notice",
        reply_to=reply_to,
        at=event.origin_server_ts,
    )


def _file(content: _Content) -> ChatFile:
    info = content.info or _Info()
    return ChatFile(
        name=content.filename or content.body,
        media_type=info.mimetype,
        size=info.size,
        source=content.url,
    )


def media_path(source: object) -> str:
    """Returns the path at which the homeserver has a file; empty if that is no file of Matrix."""
    found = _MXC.fullmatch(str(source))
    return f"/_matrix/client/v1/media/download/{found[1]}/{found[2]}" if found else ""


def is_join_of(source: Mapping[str, Any], user: str) -> bool:
    """Returns whether this is the event with which a user came into the room."""
    try:
        event = msgspec.convert(source, _Event)
    except msgspec.ValidationError:
        return False
    if event.type != "m.room.member" or event.state_key != user:
        return False
    before = event.unsigned.get("prev_content")
    was = before.get("membership") if isinstance(before, dict) else None
    return event.content.get("membership") == "join" and was != "join"


def is_encryption(source: Mapping[str, Any]) -> bool:
    """Returns whether this is the state of a room which says that it is encrypted."""
    return source.get("type") == "m.room.encryption" and source.get("state_key") == ""


def replacement_in(source: Mapping[str, Any]) -> str:
    """Returns the room that takes the place of an upgraded one, if this is the event that names it;
    otherwise an empty text."""
    if source.get("type") != "m.room.tombstone" or source.get("state_key") != "":
        return ""
    content = source.get("content")
    found = content.get("replacement_room") if isinstance(content, dict) else ""
    return found if isinstance(found, str) and _ROOM_ID.fullmatch(found) else ""


def message_out(text: str, *, msgtype: str, reply_to: str, author: str) -> dict[str, Any]:
    """Returns the content of a message; `author` is the one who is replied to, if it is known. It
    mentions that one, and the user with whose id one of the first two lines begins."""
    content: dict[str, Any] = {"msgtype": msgtype, "body": text}
    # Programs that follow the specification look for mentions here, and not in the text (§11.37).
    named = [found[0] for line in text.split("\n", 2)[:2] if (found := _USER_ID.match(line))]
    if reply_to:
        content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
        named += [author] if author else []
    content["m.mentions"] = {"user_ids": [*dict.fromkeys(named)]} if named else {}
    return content


def file_out(name: str, media_type: str, size: int, uri: str) -> dict[str, Any]:
    """Returns the content of a message with a file."""
    major = media_type.partition("/")[0]
    return {
        "msgtype": f"m.{major}" if f"m.{major}" in FILES else "m.file",
        "body": name,
        "filename": name,
        "url": uri,
        "info": {"mimetype": media_type or "application/octet-stream", "size": size},
    }
