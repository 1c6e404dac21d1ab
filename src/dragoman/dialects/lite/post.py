"""A post: what one side says in a room at once, as the sessions exchange it with their channel.

The frame of a session is a post as JSON: the text, and the files that the channel carries beside
it. The text may be too long for one message of the channel; `splitting` sees to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from dragoman.core.errors import DragomanError, Malformed
from dragoman.core.model import Json
from dragoman.core.session import Frame, Session

from .parts import PostFile
from .wire import LiteMessage, parse, render


class Post(Struct, frozen=True, omit_defaults=True):
    """A text with its files."""

    text: str
    files: tuple[PostFile, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Post).decode


def frame_out(message: LiteMessage, files: tuple[PostFile, ...] = ()) -> Frame:
    """Writes a message. The `name` of the frame is the task that it is about."""
    return Frame(_encode(Post(render(message), files)), name=message.task)


def post_in(frame: Frame) -> Post:
    """Reads a post. Raises `Malformed`."""
    try:
        return _decode(frame.body)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise Malformed(str(exc)) from None


def message_in(frame: Frame) -> tuple[Post, LiteMessage]:
    """Reads a post that begins with a marker. Raises `Malformed` for any other."""
    post = post_in(frame)
    message = parse(post.text)
    if message is None:
        raise Malformed("no marker")
    return post, message


class PostSession(Session):
    """One of the two sides of a conversation in a room. It notes why it ignored a post."""

    _ignored = ""

    def _read(self, frame: Frame) -> tuple[Post, LiteMessage] | None:
        """Reads a post, unless it is to be ignored."""
        self._ignored = ""
        try:
            return message_in(frame)
        except DragomanError as error:
            self._ignored = error.message
            return None

    def notes(self) -> Iterable[Mapping[str, Json]]:
        """Returns why the last post was ignored."""
        return ({"ignored": self._ignored},) if self._ignored else ()
