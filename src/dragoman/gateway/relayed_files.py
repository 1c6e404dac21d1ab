"""The files of a relayed task, in the forms that the agent and our caller accept."""

from __future__ import annotations

import posixpath
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from dragoman.agent import Turn
from dragoman.agent.parts import json_of
from dragoman.client.addresses import origins_of
from dragoman.client.credentials import origin_of
from dragoman.core.errors import BadParams
from dragoman.core.model import AnyPart, Data, Link, Role, Text
from dragoman.core.peer import BearerToken
from dragoman.dialects import DIALECTS
from dragoman.dialects.losses import FileForms, file_forms
from dragoman.files import FileDoor
from dragoman.files.transfer import FileTransfer, RelayedFiles, has_files, room_in

from .token_exchange import ActingFor
from .upstream_peer import UpstreamPeer

if TYPE_CHECKING:
    from .upstream_agent import UpstreamAgent

MAX_EARLIER_MESSAGES = 1000
"""How many messages of a conversation are searched for links that the caller brought."""
_ADDRESS = re.compile(r"""https?://[^\s<>"'`|]+""", re.IGNORECASE)
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_PUNCTUATION = ".,;:!?)]}*_"


@runtime_checkable
class Downloads(Protocol):
    """A connected agent that downloads with our credentials for it."""

    def download(
        self, url: str, *, max_size: int | None = None, bearer: BearerToken | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yields a file as it arrives. `bearer` takes the place of our own credentials."""


def prepare_files(
    agent: UpstreamAgent,
    peer: UpstreamPeer,
    turn: Turn,
    parts: Iterable[AnyPart],
    count: Callable[[int], None],
) -> None:
    """Prepares the conversion of the files of a task, if there are any among these parts, or if
    results may have to be converted. `count` counts what is kept of results."""
    if peer.files is None and converts_files(agent, turn, parts):
        peer.files = _relayed_files(agent, peer, turn, count)


def converts_files(agent: UpstreamAgent, turn: Turn, parts: Iterable[AnyPart]) -> bool:
    """Returns whether a task may have files to convert: among these parts, or as results."""
    if agent.door is None:
        return False
    return has_files(parts) or converts_results(agent, turn.caller.dialect)


def converts_results(agent: UpstreamAgent, dialect: str) -> bool:
    """Returns whether the files that an agent creates may have to be converted for a caller that
    speaks this dialect."""
    if agent.result_files != "auto" or agent.inline_size:
        return True
    takes = _taken_by(dialect)
    return not (takes.by_value and takes.by_reference)


def _relayed_files(
    agent: UpstreamAgent, peer: UpstreamPeer, turn: Turn, count: Callable[[int], None]
) -> RelayedFiles:
    """Returns the converter of the files of one task."""
    door = agent.door
    assert door is not None  # noqa: S101  it is asked before
    dialect = DIALECTS[peer.dialect]
    down = FileTransfer(
        door=door,
        task_id=turn.task_id,
        takes=file_forms(peer.dialect)[0],
        form=agent.file_form(peer),
        room=agent.inline_size or room_in(dialect),
    )
    up: FileTransfer | None = None
    if converts_results(agent, turn.caller.dialect):
        connected: object = peer.agent
        chunks = None
        if isinstance(connected, Downloads):
            chunks = partial(_download, connected, agent.acting_for(lambda: turn.caller), door)
        up = FileTransfer(
            door=door,
            task_id=turn.task_id,
            takes=_taken_by(turn.caller.dialect),
            form=agent.result_files,
            room=agent.inline_size,
            chunks=chunks,
            is_own=partial(_is_of, agent),
            is_brought=partial(_is_brought, turn),
            count=count,
            note=partial(turn.log, level="warning"),
        )
    return RelayedFiles(down, up)


async def _download(
    agent: Downloads, acting: ActingFor | None, door: FileDoor, url: str
) -> AsyncGenerator[bytes, None]:
    """Yields a file of an agent: with the token of the caller, if the agent is called for it, and
    otherwise with our own credentials."""
    bearer = await acting.token() if acting is not None else None
    async with aclosing(agent.download(url, max_size=door.stored.max_size, bearer=bearer)) as file:
        async for chunk in file:
            yield chunk


async def _is_brought(turn: Turn, url: str) -> bool:
    """Returns whether our caller named this address itself, in any message of the conversation: as
    a link, in a text or in data. An agent that repeats it has not made the file, and our
    credentials for the agent would open it for a caller that has none."""
    wanted = _spelling(url)
    earlier = await turn.conversation(MAX_EARLIER_MESSAGES)
    for message in (turn.message, *earlier):
        if message.role is not Role.USER:
            continue
        for part in message.parts:
            if isinstance(part, Link):
                found = [part.url]
            elif isinstance(part, Text | Data):
                words = part.text if isinstance(part, Text) else json_of(part.value).decode()
                found = [each.rstrip(_PUNCTUATION) for each in _ADDRESS.findall(words)]
            else:
                continue
            if any(wanted == _spelling(each) for each in found):
                return True
    return False


def _spelling(url: str) -> tuple[str, str, str]:
    """Returns the origin, the path and the query of an address, the same for all its spellings."""
    try:
        origin, parts = origin_of(url), urlsplit(url)
    except (BadParams, ValueError):
        return url, "", ""
    if parts.hostname in _THIS_MACHINE:
        origin = f"{parts.scheme}://localhost:{origin.rpartition(':')[2]}"
    path = posixpath.normpath("/" + unquote(parts.path).lstrip("/"))
    return origin, path, unquote(parts.query)


def _taken_by(dialect: str) -> FileForms:
    """Returns the forms that a caller accepts. After a restart its dialect may not be known."""
    return file_forms(dialect)[1] if dialect in DIALECTS else FileForms()


def _is_of(agent: UpstreamAgent, url: str) -> bool:
    """Returns whether a link leads to the agent itself, where our credentials may be needed."""
    try:
        origin = origin_of(url)
    except BadParams:
        return False
    return any(
        origin in origins_of(each.url, each.options.get("origins", ()))
        for each in agent.pool.addresses
    )
